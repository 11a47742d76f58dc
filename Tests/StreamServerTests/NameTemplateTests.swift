import TestSupport
import Testing

@testable import StreamServer

/// Names with parameters: NameTemplate, NameTemplates, NameValues.
struct NameTemplateTests {
  private typealias Parameter = NameTemplate.Parameter

  private func template(_ text: String, _ parameters: [String: Parameter] = [:]) throws -> NameTemplate {
    try NameTemplate(text, parameters: parameters)
  }

  private func fault(_ text: String, _ parameters: [String: Parameter] = [:]) -> String? {
    do throws(NameTemplate.Fault) {
      _ = try NameTemplate(text, parameters: parameters)
      return nil
    } catch {
      return error.sentence
    }
  }

  private func characters(_ text: String) throws -> NameCharacters { try #require(NameCharacters(text), "\(text)") }

  // MARK: Characters

  @Test(arguments: [
    ("a-z", "a-z"), ("A-Z0-9.", "A-Z0-9."), ("a-z-", "a-z-"), ("-a", "a-"), ("-", "-"), ("_", "_"), ("abc", "a-c"),
    ("ba", "ab"), ("a-cx-z", "a-cx-z"), ("a-a", "a"), ("--.", ".-"), ("0-9A-Fa-f", "A-Fa-f0-9"),
  ])
  func aSetHasCharactersAndRanges(text: String, written: String) throws {
    let set = try characters(text)
    #expect(set.description == written)
    #expect(NameCharacters(written) == set)
  }

  @Test(arguments: ["", "z-a", "A-z", ".-9", "a b", "é", "a-é", "/", "{", "*", "a-z\n", "\0"])
  func aSetHasNothingThatANameCannotHave(text: String) { #expect(NameCharacters(text) == nil) }

  // MARK: Names of templates

  @Test(arguments: [
    ("weather", "expected an expression such as {city}, got none"),
    ("", "expected an expression such as {city}, got none"),
    ("a/{x}/{x}", "expected {x} once"),
    ("a/{X}", "expected expressions such as {city}, each with small letters, digits and \"_\", a letter first"),
    ("a/{}", "expected expressions such as {city}, each with small letters, digits and \"_\", a letter first"),
    ("a/{1x}", "expected expressions such as {city}, each with small letters, digits and \"_\", a letter first"),
    ("a/{+x}", "expected expressions such as {city}, each with small letters, digits and \"_\", a letter first"),
    ("a/{x", "expected expressions such as {city}, each with small letters, digits and \"_\", a letter first"),
    ("a/{x/y}", "expected expressions such as {city}, each with small letters, digits and \"_\", a letter first"),
    ("a/{{x}}", "expected expressions such as {city}, each with small letters, digits and \"_\", a letter first"),
    ("a}/{x}", #"expected a name of letters, digits, ".", "_", "-", "/" and expressions such as {city}"#),
    ("a b/{x}", #"expected a name of letters, digits, ".", "_", "-", "/" and expressions such as {city}"#),
    ("$a/{x}", #"expected a name of letters, digits, ".", "_", "-", "/" and expressions such as {city}"#),
    ("../{x}", #"expected a name without the segments "." and "..", which no URL can have"#),
    ("{x}/./a", #"expected a name without the segments "." and "..", which no URL can have"#),
  ])
  func anotherTextIsNoTemplate(text: String, sentence: String) { #expect(fault(text) == sentence) }

  @Test func aTemplateHasSixteenExpressionsAtMost() {
    let expressions = (1...17).map { "{p\($0)}" }
    #expect(fault(expressions.joined(separator: "/")) == "expected at most 16 expressions, got 17")
    #expect(fault(expressions.dropLast().joined(separator: "/")) == nil)
  }

  @Test func betweenTwoExpressionsInASegmentIsACharacterThatTheFirstOneExcludes() throws {
    let sentence =
      "expected a character between {a} and {b} that no value of a has; parameters.a.characters restricts them"
    for text in ["{a}{b}", "{a}-{b}", "x{a}.y.{b}/{c}"] { #expect(fault(text) == sentence) }
    let letters = Parameter(characters: try characters("a-z"))
    for text in ["{a}-{b}", "{a}x-{b}", "{a}.{b}"] { #expect(fault(text, ["a": letters]) == nil) }
    #expect(fault("{a}{b}", ["a": letters]) == sentence && fault("{a}xy{b}", ["a": letters]) == sentence)
    // The second one's characters do not matter, and a list has the characters of its values.
    #expect(fault("{a}-{b}", ["b": letters]) == sentence)
    #expect(fault("{a}-{b}", ["a": Parameter(values: ["in", "out"])]) == nil)
    #expect(fault("{a}-{b}", ["a": Parameter(values: ["in", "go-out"])]) == sentence)
    #expect(fault("{a}/{b}") == nil)
  }

  @Test func aNameHas255BytesAtMost() throws {
    let long = String(repeating: "n", count: 253)
    #expect(fault("\(long)/{x}") == nil)
    #expect(fault("\(long)n/{x}") == "expected names of at most 255 bytes; the shortest has 256")
    #expect(
      fault("\(long)/{x}", ["x": Parameter(values: ["long", "ab"])])
        == "expected names of at most 255 bytes; the shortest has 256")
    let template = try template("\(long)/{x}")
    #expect(template.match("\(long)/a") == .values(NameValues(["x"], ["a"])))
    #expect(template.match("\(long)/ab") == .other)
  }

  @Test func aParameterThatPermitsNoValueIsAnError() throws {
    let sentence = "expected a value that x can have; its rules permit none"
    let dots = try characters(".")
    #expect(fault("{x}", ["x": Parameter(values: [])]) == sentence)
    #expect(fault("{x}", ["x": Parameter(characters: dots, length: 2)]) == sentence)
    #expect(fault("{x}", ["x": Parameter(characters: dots, length: 3)]) == nil)
  }

  // MARK: Names of streams

  @Test func aNameHasTheValuesOfItsExpressions() throws {
    let letters = Parameter(characters: try characters("a-z"))
    let template = try template("sensors/{room}/{device}.v{version}", ["device": letters])
    #expect(template.parameterNames == ["room", "device", "version"])
    guard case .values(let values) = template.match("sensors/Room_1/lamp.v2.0") else {
      Issue.record("does not fit")
      return
    }
    #expect(values.values == ["Room_1", "lamp", "2.0"])
    #expect(values["device"] == "lamp" && values["other"] == nil)
    #expect(values.description == #"room = "Room_1", device = "lamp", version = "2.0""#)
    #expect(template.name(for: values) == "sensors/Room_1/lamp.v2.0")
  }

  @Test(arguments: [
    "weather", "weather/", "weather//", "weather/a/", "weather/a/b", "/weather/a", "Weather/a", "weathe/a", "",
    "weather2/a", "/", "weather/a/b/c",
  ])
  func aNameOfAnotherFormIsAnother(name: String) throws {
    #expect(try template("weather/{city}").match(name) == .other)
    let templates = NameTemplates([try template("weather/{city}")])
    #expect(templates.match(name) == nil && templates.rule(brokenBy: name) == nil)
  }

  @Test(arguments: [
    ("oslo-", #""city" has at most 4 characters"#), ("OSLO", #""city" has the characters "a-z-" only"#),
    ("öl", #""city" has the characters "a-z-" only"#), ("os o", #""city" has the characters "a-z-" only"#),
    ("{x}", #""city" has the characters "a-z-" only"#), ("..", #""city" has the characters "a-z-" only"#),
  ])
  func aValueThatViolatesARuleIsReportedWithIt(value: String, rule: String) throws {
    let template = try template("weather/{city}", ["city": Parameter(characters: characters("a-z-"), length: 4)])
    #expect(template.match("weather/\(value)") == .violates(rule: rule))
    let templates = NameTemplates([try self.template("other/{x}"), template])
    #expect(templates.match("weather/\(value)") == nil)
    #expect(templates.rule(brokenBy: "weather/\(value)") ?? (0, "") == (1, rule))
  }

  @Test func aListIsTheRule() throws {
    let list = (1...9).map { "v\($0)" }
    let short = try template("{x}", ["x": Parameter(values: ["oslo", "rome", "a"])])
    #expect(short.match("rome") == .values(NameValues(["x"], ["rome"])) && short.match("a") != .other)
    for value in ["rom", "romes", "b", "Z", "0"] {
      #expect(short.match(value) == .violates(rule: #""x" is one of oslo, rome, a"#))
    }
    let long = try template("{x}", ["x": Parameter(values: list)])
    for value in list { #expect(long.match(value) == .values(NameValues(["x"], [value]))) }
    #expect(long.match("v") == .violates(rule: #""x" is one of v1, v2, v3, v4, v5, v6, v7, v8, …"#))
  }

  @Test func noValueIsADotOrTwo() throws {
    let template = try template("a/{x}.{y}", ["x": Parameter(characters: characters("a-z"))])
    #expect(template.match("a/b..") == .violates(rule: #""y" is neither . nor .."#))
    #expect(template.match("a/b...") == .violates(rule: #""y" is neither . nor .."#))
    #expect(template.match("a/b....") == .values(NameValues(["x", "y"], ["b", "..."])))
    for name in ["a/.", "a/.."] { #expect(try self.template("a/{x}").match(name) != .other) }
    #expect(!Parameter.any.permits(".") && !Parameter.any.permits("..") && Parameter.any.permits("..."))
  }

  @Test func theFirstViolationInTheNameIsReported() throws {
    let rules = ["a": Parameter(length: 2), "b": Parameter(length: 1)]
    let template = try template("{a}/{b}", rules)
    #expect(template.match("aaa/bb") == .violates(rule: #""a" has at most 2 characters"#))
    #expect(template.match("aa/bb") == .violates(rule: #""b" has at most 1 character"#))
    // The form is compared before the values.
    #expect(try self.template("{a}/x/{b}", rules).match("aaa/y/b") == .other)
  }

  @Test func theLiteralPartAfterAValueIsFoundWhateverTheValueEndsWith() throws {
    let letters = Parameter(characters: try characters("a-z"))
    let template = try template("{a}xx-x{b}-end", ["a": letters])
    #expect(template.match("xxxx-xb-end") == .values(NameValues(["a", "b"], ["xx", "b"])))
    #expect(template.match("axx-x-end-end") == .values(NameValues(["a", "b"], ["a", "-end"])))
    for name in ["xx-xb-end", "axx-x-end", "ax-xb-end", "axx-xb-en", "axx-xbend"] {
      #expect(template.match(name) == .other, "\(name)")
    }
    #expect(template.match("a-bxx-xb-end") == .other)
    #expect(template.match("Bxx-xb-end") == .violates(rule: #""a" has the characters "a-z" only"#))
  }

  @Test func theNameOfMatchedValuesIsTheName() throws {
    var random = SeededGenerator(1)
    for _ in 0..<500 {
      let (text, parameters) = random.template()
      guard let template = try? NameTemplate(text, parameters: parameters) else { continue }
      for values in template.longestValues + template.oddestValues {
        let name = template.name(for: values)
        #expect(name.utf8.count <= 255)
        #expect(template.match(name) == .values(values), "\(text) \(values)")
      }
    }
  }

  // MARK: Extremes

  @Test func theLongestValuesFillTheName() throws {
    let template = try template("{a}/{b}", ["b": Parameter(values: ["x", "longer"])])
    #expect(template.longestValues.map { $0.values.map(\.utf8.count) } == [[128, 6], [128, 6]])
    let full = try self.template("sensors/{room}/{device}")
    #expect(full.longestValues.map { $0.values.map(\.utf8.count) } == [[128, 118], [118, 128]])
  }

  @Test func theOddestValuesAreThosePermitted() throws {
    let any = try template("{x}").oddestValues.map { $0.values[0] }
    for value in ["-", ".a", "_", "0", "null"] { #expect(any.contains(value), "\(value)") }
    let letters = Parameter(characters: try characters("a-z"))
    #expect(try template("{x}", ["x": letters]).oddestValues.allSatisfy { letters.permits($0.values[0]) })
    #expect(try template("{x}", ["x": Parameter(values: ["b", "a"])]).oddestValues.map { $0.values[0] } == ["b", "a"])
    #expect(try template("{x}", ["x": Parameter(characters: characters("9"), length: 1)]).oddestValues.count == 1)
  }

  // MARK: Two templates

  private func shared(
    _ one: String, _ rules: [String: Parameter], _ other: String, _ others: [String: Parameter]
  ) throws -> String? {
    let templates = [try template(one, rules), try template(other, others)]
    let example = templates[0].example(sharedWith: templates[1])
    #expect((templates[1].example(sharedWith: templates[0]) != nil) == (example != nil))
    for template in templates {
      if let example, case .values = template.match(example) { continue }
      #expect(example == nil)
    }
    return example
  }

  @Test func templatesThatShareANameShowOne() throws {
    #expect(try shared("a/{x}", [:], "a/{y}", [:]) == "a/a")
    #expect(try shared("a/{x}", [:], "{y}/b", [:]) == "a/b")
    #expect(try shared("a/{x}", [:], "b/{y}", [:]) == nil)
    #expect(try shared("a/{x}", [:], "a/{y}/{z}", [:]) == nil)
    let long = String(repeating: "a", count: 100)
    // The shortest name that they share is too long.
    #expect(try shared("\(long){x}/\(long){y}/{z}", [:], "{x}/{y}/\(long){z}", [:]) == nil)
  }

  @Test func charactersLengthsAndListsKeepTemplatesApart() throws {
    let lower = Parameter(characters: try characters("a-z"))
    let digits = Parameter(characters: try characters("0-9"))
    let dots = Parameter(characters: try characters("."), length: 4)
    #expect(try shared("a/{x}", ["x": lower], "a/{y}", ["y": digits]) == nil)
    #expect(try shared("a/{x}", ["x": lower], "a/{y}-{z}", ["y": digits]) == nil)
    #expect(try shared("{x}-{z}", ["x": lower], "{y}-b", [:]) == "a-b")
    #expect(try shared("{x}", ["x": Parameter(length: 3)], "abc{y}", [:]) == nil)
    #expect(try shared("{x}", ["x": Parameter(length: 4)], "abc{y}", [:]) == "abca")
    let list = Parameter(values: ["one", "two"])
    #expect(try shared("{x}", ["x": list], "{y}", ["y": Parameter(values: ["three", "two"])]) == "two")
    #expect(try shared("{x}", ["x": list], "{y}", ["y": Parameter(values: ["tw", "twoo"])]) == nil)
    #expect(try shared("{x}", ["x": Parameter(values: ["ab", "abc"])], "a{y}", ["y": Parameter(length: 1)]) == "ab")
    // Neither a dot nor two are a value.
    #expect(try shared("{x}", ["x": dots], "{y}", ["y": Parameter(length: 2)]) == nil)
    #expect(try shared("{x}", ["x": dots], "{y}", [:]) == "...")
  }

  @Test func aNameIsSharedExactlyIfBothTemplatesHaveIt() throws {
    let names = SeededGenerator.names(of: "a-.", upTo: 4)
    var random = SeededGenerator(2)
    var sharedCount = 0
    for _ in 0..<3000 {
      let templates = (0..<2).compactMap { _ in
        let (text, parameters) = random.template(of: "a-.")
        return try? NameTemplate(text, parameters: parameters)
      }
      guard templates.count == 2 else { continue }
      func haveAll(_ name: String) -> Bool {
        templates.allSatisfy { if case .values = $0.match(name) { true } else { false } }
      }
      if let example = templates[0].example(sharedWith: templates[1]) {
        sharedCount += 1
        #expect(haveAll(example), "\(templates.map(\.text)) \(example)")
      } else {
        #expect(!names.contains(where: haveAll), "\(templates.map(\.text))")
      }
    }
    #expect(sharedCount > 50)
  }

  // MARK: Many templates

  @Test func aSearchFindsTheTemplateThatFits() throws {
    var random = SeededGenerator(3)
    for _ in 0..<100 {
      var templates: [NameTemplate] = []
      for _ in 0..<30 {
        let (text, parameters) = random.template()
        guard let template = try? NameTemplate(text, parameters: parameters) else { continue }
        if templates.allSatisfy({ $0.example(sharedWith: template) == nil }) { templates.append(template) }
      }
      let all = NameTemplates(templates)
      for (index, template) in templates.enumerated() {
        for values in template.oddestValues {
          #expect(all.match(template.name(for: values)) ?? (-1, values) == (index, values))
        }
      }
    }
  }

  @Test func aSearchPrefersWhatFitsToAViolation() throws {
    let templates = NameTemplates([
      try template("a/{x}", ["x": Parameter(length: 1)]), try template("{y}/b{z}", ["y": Parameter(values: ["a"])]),
    ])
    #expect(templates.match("a/bc") ?? (-1, NameValues([], [])) == (1, NameValues(["y", "z"], ["a", "c"])))
    #expect(templates.match("a/cc") == nil)
    #expect(templates.rule(brokenBy: "a/cc") ?? (-1, "") == (0, #""x" has at most 1 character"#))
    #expect(templates.match("c/c") == nil && templates.rule(brokenBy: "c/c") == nil)
    #expect(NameTemplates([]).match("a") == nil)
  }
}

/// Templates of small alphabets, of which many overlap.
private struct SeededGenerator {
  private var state: UInt64

  init(_ seed: UInt64) { state = seed }

  private mutating func number(below limit: Int) -> Int {
    state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
    return Int(state >> 33) % limit
  }

  private mutating func text(of alphabet: String, _ counts: ClosedRange<Int>) -> String {
    let bytes = Array(alphabet.utf8)
    let count = counts.lowerBound + number(below: counts.count)
    return String(decoding: (0..<count).map { _ in bytes[number(below: bytes.count)] }, as: UTF8.self)
  }

  mutating func template(of alphabet: String = "ab-.") -> (String, [String: NameTemplate.Parameter]) {
    var parameters: [String: NameTemplate.Parameter] = [:]
    let segments = (0...number(below: 2)).map { segment in
      (0...number(below: 3)).map { part in
        guard number(below: 2) == 0 else { return text(of: alphabet, 1...2) }
        let name = "p\(segment)\(part)"
        switch number(below: 4) {
        case 0: parameters[name] = .init(characters: NameCharacters(text(of: alphabet, 1...3)) ?? .all)
        case 1: parameters[name] = .init(length: 1 + number(below: 3))
        case 2:
          let values = (0...number(below: 3)).map { _ in text(of: alphabet, 1...3) }
          parameters[name] = .init(values: values.filter(NameTemplate.Parameter.any.permits))
        default: break
        }
        return "{\(name)}"
      }.joined()
    }
    return (segments.joined(separator: "/"), parameters)
  }

  /// All names of these characters and slashes up to a length.
  static func names(of alphabet: String, upTo length: Int) -> [String] {
    var names = [""]
    var last = [""]
    for _ in 0..<length {
      last = last.flatMap { name in (alphabet + "/").map { name + String($0) } }
      names += last
    }
    return names
  }
}
