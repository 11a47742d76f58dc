import StreamServer
import StreamSources
import TestSupport
import Testing

@testable import streamd

/// Templates: names, their terms, and the streams that they make.
struct ConfigurationTemplateTests {
  /// The only template of a file.
  private func template(_ text: String, credentials: String? = nil) throws -> Configuration.Template {
    let configuration = try parse(text, credentials: credentials)
    #expect(configuration.templates.count == 1)
    return try #require(configuration.templates.first)
  }

  private func values(_ name: String, of template: Configuration.Template) throws -> NameValues {
    guard case .values(let values) = template.name.match(name) else { throw Other() }
    return values
  }

  private struct Other: Error {}

  /// The stream of this name, which the template makes.
  private func stream(_ name: String, of template: Configuration.Template) throws -> Configuration.Stream {
    try template.stream(values(name, of: template))
  }

  // MARK: Terms

  @Test func aTemplateNeedsOnlyASource() throws {
    let template = try template("[streams.\"sensors/{room}/{device}\"]\npublish = true")
    #expect(template.name.text == "sensors/{room}/{device}" && template.name.parameterNames == ["room", "device"])
    #expect(template.streams == 1000 && template.forget == .seconds(600) && template.metrics == .template)
    #expect(template.name.parameters == [.any, .any] && !template.needsLookUp)
    let stream = try stream("sensors/kitchen/lamp", of: template)
    var expected = Configuration.Stream(name: "sensors/kitchen/lamp", source: .publish)
    expected.buffer = .init(events: 256, bytes: 256 << 10)
    #expect(stream == expected && stream.template == "sensors/{room}/{device}")
  }

  @Test func aTemplateHasTermsOfItsOwn() throws {
    let template = try template(
      """
      [streams."weather/{city}"]
      publish = true
      streams = 1000000
      forget = "never"
      metrics = "each"
      parameters.city = { characters = "a-z-", length = 40 }
      buffer.events = 7
      """)
    #expect(template.streams == 1_000_000 && template.forget == nil && template.metrics == .each)
    #expect(template.name.parameters.map(\.characters) == [NameCharacters("a-z-")])
    #expect(template.name.parameters.map(\.length) == [40])
    #expect(try stream("weather/oslo", of: template).buffer == .init(events: 7, bytes: 256 << 10))
  }

  @Test func aParameterMayHaveAListOfValues() throws {
    let template = try template(
      "[streams.\"{kind}-{id}\"]\npublish = true\nparameters.kind.values = [\"in\", \"out\"]")
    #expect(template.name.parameters[0].values == ["in", "out"])
    #expect(try stream("out-7", of: template).name == "out-7")
  }

  @Test(arguments: [
    ("streams = 0", "streams: expected a whole number from 1 to 1000000, got 0"),
    ("streams = 1000001", "streams: expected a whole number from 1 to 1000000, got 1000001"),
    ("forget = \"soon\"", #"forget: expected a duration such as "30s", or "never", got "soon""#),
    ("metrics = \"none\"", #"metrics: expected "template" or "each", got "none""#),
    ("parameters = 5", "parameters: expected a table such as { city = { length = 40 } }, got a number"),
    ("parameters.x = 5", "parameters.x: expected a table, such as x = { length = 40 }, got a number"),
    ("parameters.y.length = 5", "parameters.y: unknown parameter; did you mean \"x\"?"),
    ("parameters.yyy.length = 5", "parameters.yyy: unknown parameter; expected one of: x"),
    (
      "parameters.X.length = 5",
      #"parameters.X: expected the name of a parameter, with small letters, digits and "_", a letter first"#
    ),
    ("parameters.x.length = 0", "parameters.x.length: expected a whole number from 1 to 128, got 0"),
    ("parameters.x.length = 129", "parameters.x.length: expected a whole number from 1 to 128, got 129"),
    ("parameters.x.size = 1", "parameters.x.size: unknown key; expected one of: characters, length, values"),
    (
      "parameters.x.characters = \"a/b\"",
      #"parameters.x.characters: expected a set such as "A-Z0-9." of letters, digits, ".", "_" and "-", got "a/b""#
    ),
    ("parameters.x.values = []", "parameters.x.values: expected a list of one or more, got an empty array"),
    (
      "parameters.x.values = [\"a\", \"..\"]",
      #"parameters.x.values: expected a value of 1 to 128 letters, digits, ".", "_" and "-", neither "." nor "..", got "..""#
    ),
    ("parameters.x.values = [\"a\", \"a\"]", "parameters.x.values: expected each value once"),
    (
      "parameters.x = { values = [\"ab\"], length = 1 }",
      #"parameters.x.values: expected values that characters and length permit, got "ab""#
    ),
    (
      "parameters.x = { values = [\"ab\"], characters = \"b\" }",
      #"parameters.x.values: expected values that characters and length permit, got "ab""#
    ),
    ("share = \"fleet\"", #"share: expected no share = "fleet" in a template: each host makes its own streams"#),
    ("replay = 257", "replay: expected at most buffer.events, which is 256, got 257"),
    ("forgit = \"1m\"", "forgit: unknown key; did you mean \"forget\"?"),
  ])
  func errorsOfTermsHaveLineAndKey(line: String, sentence: String) {
    #expect(errors("[streams.\"t/{x}\"]\npublish = true\n\(line)") == ["test.toml:3: streams.\"t/{x}\".\(sentence)"])
  }

  @Test func aTemplateBeginsWithAClient() {
    #expect(
      errors("[streams.\"t/{x}\"]\ntimer.every = \"1s\"\nstart = \"always\"") == [
        #"test.toml:3: streams."t/{x}".start: expected start = "subscribed" or "first" in a template: its streams begin with a client"#
      ])
    #expect(errors("[streams.\"t/{x}\"]\ntimer.every = \"1s\"\nstart = \"first\"").isEmpty)
  }

  @Test func aPlaceOfOneStreamIsInNoTemplate() {
    #expect(
      errors("[streams.\"t/{x}\"]\nserial.device = \"/dev/ttyS0\"") == [
        #"test.toml:2: streams."t/{x}".serial: expected no device in a template that one stream alone can have"#
      ])
  }

  @Test(arguments: ["parameters.x.length = 1", "streams = 5", "forget = \"1m\"", "metrics = \"each\""])
  func onlyATemplateHasThem(line: String) {
    let key = line.prefix { $0.isLetter }
    #expect(
      errors("[streams.s]\npublish = true\n\(line)") == [
        "test.toml:3: streams.s.\(key): expected \(key) only with a name that has an expression, such as "
          + "[streams.\"NAME/{x}\"]"
      ])
  }

  // MARK: Names

  @Test(arguments: [
    (
      "{x}{y}",
      "expected a character between {x} and {y} that no value of x has; parameters.x.characters restricts them"
    ),
    ("a/{x}/{x}", "expected {x} once"),
    ("a b/{x}", #"expected a name of letters, digits, ".", "_", "-", "/" and expressions such as {city}"#),
    ("a/{X}", "expected expressions such as {city}, each with small letters, digits and \"_\", a letter first"),
  ])
  func errorsOfNamesAreThoseOfTheirTables(name: String, sentence: String) {
    #expect(errors("\n[streams.\"\(name)\"]\npublish = true") == ["test.toml:2: streams.\"\(name)\": \(sentence)"])
  }

  @Test func templatesThatShareANameAreErrorsThatShowIt() {
    let text = """
      [streams."a/{x}"]
      publish = true
      [streams."{y}/b"]
      publish = true
      [streams."a/{z}/c"]
      publish = true
      """
    #expect(
      errors(text) == [
        #"test.toml:3: streams."{y}/b": expected names that no other template has, got "a/b", which "a/{x}" has, too"#
      ])
    #expect(errors(text + "\n[streams.\"a/{x}\".parameters.x]\ncharacters = \"c-z\"").isEmpty)
    // Whichever comes first, and with expressions in any segments.
    for (one, other) in [("{y}/b", "a/{x}"), ("{x}/a", "{y}/{z}"), ("a/{x}", "a/{y}"), ("{x}", "{y}")] {
      let found = errors("[streams.\"\(one)\"]\npublish = true\n[streams.\"\(other)\"]\npublish = true")
      #expect(found.count == 1 && found[0].contains("\"\(other)\": expected names that no other template has"))
    }
  }

  @Test func aConfiguredNameMayFitATemplate() throws {
    let configuration = try parse("[streams.\"a/{x}\"]\npublish = true\n[streams.\"a/b\"]\npublish = true")
    #expect(configuration.streams.map(\.name) == ["a/b"] && configuration.templates.map(\.name.text) == ["a/{x}"])
  }

  // MARK: Streams

  @Test func streamsHaveTheSettingsOfTheirTemplate() throws {
    let template = try template(
      """
      [streams."weather/{city}"]
      http = { url = "https://api.example.org/v1/now{?city}", every = "60s", headers = { A = "b {city}" } }
      description = "Weather in {city}"
      jq = ".[] | select(.city == $city)"
      read = ["gid:7"]
      """)
    #expect(template.description == "Weather in {city}" && template.variables == ["city"])
    let stream = try stream("weather/oslo", of: template)
    #expect(stream.description == "Weather in oslo" && stream.read == [.group(7)])
    let http = try #require(stream.source.section as? Configuration.HTTP)
    #expect(http.url == "https://api.example.org/v1/now?city=oslo" && http.fetching == .poll(every: .seconds(60)))
    #expect(http.headers == [.init(name: "A", value: .plain("b oslo"))])
    #expect(stream.variables == ["city": "oslo"])
    let other = try self.stream("weather/rome", of: template)
    #expect(other.variables == ["city": "rome"] && other.pipelineText != stream.pipelineText)
    #expect(ConfigurationDifference.Change(former: stream, stream: other).hasOtherFeed)
  }

  @Test func aStreamWithoutExpressionsInItsTextsIsThatOfItsTemplateWithAnotherName() throws {
    let template = try template(
      "[streams.\"t/{x}\"]\npublish = true\ndescription = \"{ braces }\"\njq = \"{a: $x, b: {x}}\"")
    #expect(!template.reading.memory.hasExpressions && template.variables == ["x"])
    let stream = try stream("t/7", of: template)
    #expect(stream.description == "{ braces }" && stream.jq == "{a: $x, b: {x}}" && stream.variables == ["x": "7"])
  }

  @Test func secretsAreReadOnce() throws {
    let folder = try TemporaryFolder(["token": "secret"])
    let template = try template(
      """
      [streams."t/{x}"]
      http = { url = "http://h/{x}", every = "1s", bearer = { credential = "token" } }
      """, credentials: folder.path)
    try folder.write(Array("another".utf8), to: "token")
    let http = try #require(try stream("t/a", of: template).source.section as? Configuration.HTTP)
    #expect(http.authorization == .bearer(Secret(name: "token", content: "secret")) && http.url == "http://h/a")
  }

  @Test func defaultsOfAllSourcesApplyToStreamsOfTemplates() throws {
    let template = try template(
      "[http]\nuser_agent = \"me\"\n[streams.\"t/{x}\"]\nhttp = { url = \"http://h/{x}\", every = \"1s\" }")
    let http = try #require(try stream("t/a", of: template).source.section as? Configuration.HTTP)
    #expect(http.settings.userAgent == "me")
  }

  @Test func aStreamOfAnotherStreamdHasTheNameOfTheStream() throws {
    let template = try template(
      "[streams.\"t/{x}\"]\nstreamd = { address = \"unix:/other\", where = { \"/a\" = \"{x}\" } }")
    let stream = try stream("t/b", of: template)
    let peer = try #require(stream.source.section as? Configuration.Peer)
    let configuration = PeerConfiguration(peer, of: stream)
    #expect(
      configuration.stream == "t/b"
        && configuration.filter.map { String(decoding: $0.json, as: UTF8.self) } == #"{"/a":"b"}"#)
  }

  @Test func valuesThatMakeATextInvalidAreErrors() {
    #expect(
      errors("[streams.\"t/{x}\"]\npublish = true\ndescription = \"\(String(repeating: "d", count: 1000)){x}\"") == [
        "test.toml:3: streams.\"t/{x}\".description: expected a text of at most 1024 bytes, got \""
          + String(repeating: "d", count: 60) + "…\" (with x = \"aaaaaaaaaaaaaaaaaaaa…\")"
      ])
    let journal = "[streams.\"t/{x}\"]\njournal.match = [\"PRIORITY={x}\"]\n"
    #expect(
      errors(journal) == [
        "test.toml:2: streams.\"t/{x}\".journal.match: expected PRIORITY= with a number from 0 to 7, or a range such as "
          + "\"PRIORITY=0..4\", got a string (with x = \"a\")"
      ])
    #expect(errors(journal + "parameters.x.values = [\"0\", \"8\"]")[0].hasSuffix("got a string (with x = \"8\")"))
    #expect(errors(journal + "parameters.x.values = [\"0\", \"7\"]").isEmpty)
  }

  // MARK: Rules

  @Test func aRuleForAUserThatNobodyIsAdmitsNobody() throws {
    let template = try template(
      "[streams.\"inbox/{user}\"]\npublish = true\nread = [\"user:{user}\"]\nwrite = [\"group:{user}\"]")
    #expect(template.needsLookUp)
    #expect(try stream("inbox/root", of: template).read == [.user(0)])
    #expect(try stream("inbox/root", of: template).write == [.group(0)])
    let nobody = try stream("inbox/nobody-has-this-name", of: template)
    #expect(nobody.read == [.user(.max)] && nobody.write == [.group(.max)])
    let rules = try template.accessRules(values("inbox/root", of: template))
    #expect(rules.read == AccessRules([.user(0)]) && rules.write == AccessRules([.group(0)]))
  }

  @Test func aRuleWithoutAnExpressionNamesAUserThatExists() throws {
    #expect(
      errors("[streams.\"t/{x}\"]\npublish = true\nread = [\"user:nobody-has-this-name\"]") == [
        #"test.toml:3: streams."t/{x}".read: expected a user that exists, got "user:nobody-has-this-name""#
      ])
    let template = try template("[streams.\"t/{x}\"]\npublish = true\nread = [\"user:root\"]\ndescription = \"{x}\"")
    #expect(try !template.needsLookUp && stream("t/a", of: template).read == [.user(0)])
  }

  @Test func tokensNameATemplateOrItsStreams() throws {
    let secrets = ["a", "b", "c", "d", "e"].map { ($0, "0123456789abcdef\($0)") }
    let folder = try TemporaryFolder(Dictionary(uniqueKeysWithValues: secrets))
    let tokens = [
      ("a", "weather/{city}"), ("b", "weather/*"), ("c", "weather/oslo"), ("d", "weather/o*"), ("e", "other/*"),
    ]
    let text = tokens.map { "[[tokens]]\nname = \"\($0)\"\ncredential = \"\($0)\"\nread = [\"\($1)\"]\n" }.joined()
    let template = try template(text + "[streams.\"weather/{city}\"]\npublish = true", credentials: folder.path)
    #expect(template.tokens.map(\.name) == ["a", "b", "c", "d"])
    #expect(try stream("weather/oslo", of: template).readers == ["a", "b", "c", "d"])
    #expect(try stream("weather/orsa", of: template).readers == ["a", "b", "d"])
    #expect(try stream("weather/rome", of: template).readers == ["a", "b"])
    let rules = try template.accessRules(values("weather/rome", of: template))
    #expect(rules.read == AccessRules([.anyone]).adding(tokens: ["a", "b"]))
  }

  @Test func aServerThatOtherMachinesReachNeedsRulesOfTemplates() {
    let server = "[server]\nlisten = [\"0.0.0.0:7878\"]\nhosts = [\"h\"]\n"
    #expect(errors(server + "[streams.\"t/{x}\"]\npublish = true").count == 1)
    #expect(errors(server + "[streams.\"t/{x}\"]\npublish = true\nread = [\"*\"]").isEmpty)
  }

  // MARK: Derived streams

  @Test func aStreamMayBeDerivedOfStreamsOfTemplates() throws {
    let configuration = try parse(
      """
      [streams."sensors/{room}/{device}"]
      publish = true
      [streams."all/{room}"]
      of = ["sensors/{room}/door", "sensors/{room}/lamp"]
      [streams.kitchen]
      of = ["all/kitchen"]
      """)
    #expect(configuration.streams[0].bases == ["all/kitchen"])
    #expect(try stream("all/hall", of: configuration.templates[1]).bases == ["sensors/hall/door", "sensors/hall/lamp"])
  }

  @Test func aBaseThatNothingMakesIsAnErrorWithItsValue() {
    let feed = "[streams.\"feed/{s}\"]\npublish = true\nparameters.s.characters = \"A-Z\"\n"
    #expect(
      errors(feed + "[streams.\"quotes/{s}\"]\nof = [\"feed/{s}\"]") == [
        "test.toml:5: streams.\"quotes/{s}\".of: expected a stream of this configuration, got \"feed/a\", and in "
          + "\"feed/{s}\" \"s\" has the characters \"A-Z\" only (with s = \"a\")"
      ])
    #expect(errors(feed + "[streams.\"quotes/{s}\"]\nof = [\"feed/{s}\"]\nparameters.s.characters = \"A-F\"").isEmpty)
    #expect(
      errors(feed + "[streams.\"quotes/{s}\"]\nof = [\"fed\"]\nwhere = { \"/s\" = \"{s}\" }") == [
        "test.toml:5: streams.\"quotes/{s}\".of: expected a stream of this configuration, got \"fed\""
      ])
    // The only error is that of the template.
    #expect(errors("[streams.\"feed/{s}\"]\n[streams.d]\nof = [\"feed/a\"]").count == 1)
  }

  @Test func templatesInACycleAreErrors() {
    let cycle = "[streams.\"a/{x}\"]\nof = [\"b/{x}\"]\n[streams.\"b/{x}\"]\nof = [\"a/{x}\"]\n"
    #expect(
      errors(cycle) == [#"test.toml:2: streams."a/{x}".of: expected no cycle, got a/{x} of b/{x} of a/{x}"#])
    let own = "[streams.\"tree/{x}\"]\nof = [\"tree/root\"]\n"
    #expect(errors(own) == [#"test.toml:2: streams."tree/{x}".of: expected no cycle, got tree/{x} of tree/{x}"#])
    // A configured name goes before a template.
    #expect(errors(own + "[streams.\"tree/root\"]\npublish = true").isEmpty)
    #expect(errors("[streams.s]\nof = [\"t/a\"]\n[streams.\"t/{x}\"]\nof = [\"s\"]").count == 1)
  }

  // MARK: Changes

  @Test func templatesAreComparedByName() throws {
    func configuration(_ text: String) throws -> Configuration { try parse(text) }
    let same = "[streams.\"same/{x}\"]\npublish = true\n"
    let old = try parse("\(same)[streams.\"a/{x}\"]\npublish = true\n[streams.\"b/{x}\"]\npublish = true")
    let new = try parse(
      "\n# moved\n[streams.\"c/{x}\"]\npublish = true\n[streams.\"a/{x}\"]\npublish = true\nforget = \"1s\"\n\(same)")
    let difference = ConfigurationDifference(from: old, to: new)
    #expect(difference.templates == new.templates)
    #expect(difference.changedTemplates == [.init(former: old.templates[1], template: new.templates[1])])
    #expect(difference.addedTemplates == ["c/{x}"] && difference.removedTemplates == ["b/{x}"])
    #expect(
      difference.summary
        == "0 unchanged, 0 changed, 0 added, 0 removed; 1 template changed; 1 template added; 1 template removed")
    #expect(ConfigurationDifference(from: old, to: old).summary == "0 unchanged, 0 changed, 0 added, 0 removed")
  }

  @Test func aTemplateChangesWithWhatItsStreamsHaveOfOtherPlaces() throws {
    let text = "[streams.\"t/{x}\"]\nhttp = { url = \"http://h/{x}\", every = \"1s\" }\n"
    let plain = try parse(text)
    #expect(try parse(text).templates == plain.templates)
    #expect(try parse(text + "[http]\nuser_agent = \"me\"").templates != plain.templates)
  }

  @Test func theDifferenceIncludesStreamsOfTemplates() throws {
    let old = try template("[streams.\"t/{x}\"]\npublish = true\nbuffer.events = 9")
    let new = try template("[streams.\"t/{x}\"]\npublish = true\nparameters.x.length = 1")
    let former = try ["a", "b", "cc"].map { try stream("t/\($0)", of: old) }
    let kept = try [stream("t/a", of: new), stream("t/b", of: old)]
    let difference = ConfigurationDifference(from: Configuration(), to: Configuration()).including(former, kept)
    #expect(difference.streams.map(\.name) == ["t/a", "t/b"] && difference.removed == ["t/cc"])
    #expect(difference.changed.map(\.stream.name) == ["t/a"] && difference.changed[0].hasOtherLog)
    #expect(difference.unchangedCount == 0 && difference.added.isEmpty)
    let configured = try parse("[streams.\"t/a\"]\npublish = true")
    let other = ConfigurationDifference(from: Configuration(), to: configured).including(former, [])
    #expect(other.added.isEmpty && other.streams.map(\.name) == ["t/a"] && other.removed == ["t/b", "t/cc"])
    #expect(other.changed == [.init(former: former[0], stream: configured.streams[0])])
  }

  // MARK: Limits and remarks

  @Test func memoryOfTemplatesIsAnExcessAtMost() throws {
    let budget = MemoryBudget(limit: 1 << 30, reason: "the machine's memory")
    let text = "[streams.\"t/{x}\"]\npublish = true\nstreams = "
    #expect(budget.verdict(on: try parse(text + "1000")) == .fits)
    guard case .overcommits(let sentence) = budget.verdict(on: try parse(text + "1000000")) else {
      Issue.record("no excess")
      return
    }
    #expect(sentence.hasPrefix("the buffers of all streams that 1 template can make may take 2"))
    #expect(
      sentence.hasSuffix("of memory together, more than the machine's memory, 1 GiB: unused ones are forgotten then"))
  }

  @Test func templatesReserveDescriptorsForAHundredSources() throws {
    func connections(_ text: String) throws -> Int {
      let configuration = try parse(text)
      return try DescriptorBudget(limit: 10000, openCount: 4).connectionLimit(
        for: configuration.streams, configuration.templates, loops: 2)
    }
    let none = try connections("")
    let fetched = "[streams.\"t/{x}\"]\nhttp = { url = \"http://h/{x}\", every = \"1s\" }\nstreams = "
    #expect(try none - connections(fetched + "10") == 70 && none - connections(fetched + "500000") == 700)
  }

  @Test func theCheckSaysWhatATemplateMakes() throws {
    let configuration = try parse(
      """
      [streams.s]
      publish = true
      [streams."weather/{city}"]
      timer.every = "1s"
      [streams."t/{x}"]
      publish = true
      streams = 1001
      forget = "never"
      metrics = "each"
      """)
    #expect(configuration.counts == "1 stream, 2 templates")
    #expect(
      configuration.templates.flatMap(\.remarks) == [
        "weather/{city}: at most 1000 streams such as weather/a (timer), forgotten 10 min after their last use",
        "t/{x}: at most 1001 streams such as t/a (publish), never forgotten",
        "t/{x}: metrics = \"each\" has rows for each of up to 1001 streams",
      ])
  }

  @Test func theListingShowsTemplatesAndTheirDefaults() throws {
    func listing(_ text: String) throws -> String {
      try ConfigurationSource.parse([ConfigurationText(path: "/c", bytes: Array(text.utf8))]).text
    }
    let text = try listing("[streams.\"w/{city}\"]\nhttp = { url = \"http://h/{city}?k={city}\", every = \"1s\" }")
    #expect(text.contains("[streams.\"w/{city}\"]\nhttp = { every = \"1s\", url = \"http://h/{city}?<hidden>\" }\n"))
    #expect(
      text.hasSuffix(
        "\n# Defaults of templates:\n# buffer.events = 256\n# buffer.bytes = \"256KiB\"\n# forget = \"10m\"\n"
          + "# metrics = \"template\"\n# running = 64\n# streams = 1000\n"))
    #expect(try !listing("[streams.s]\npublish = true").contains("forget"))
  }
}
