/// The name of a template: literal parts, and expressions `{x}` (RFC 6570, level 1) that each stand for a value.
///
///     let template = try NameTemplate("weather/{city}", parameters: ["city": .init(characters: "a-z-")])
///     template.match("weather/oslo")  // .values(city = "oslo")
///
/// A name has one set of values at most: between two expressions in one segment there is a character that the first one's
/// values do not have.
public struct NameTemplate: Sendable {
  /// What the values of a parameter may be.
  public struct Parameter: Hashable, Sendable {
    /// The characters of a value.
    public let characters: NameCharacters
    /// Maximum characters, 1 to 128.
    public let length: Int
    /// The only values, in the order of the configuration; nil: any.
    public let values: [String]?

    /// Maximum characters of any value.
    public static let longest = 128
    /// Maximum number of `values`.
    package static let mostValues = 1000
    /// Any value.
    public static let any = Self()

    /// Creates the rules of a parameter.
    public init(characters: NameCharacters = .all, length: Int = longest, values: [String]? = nil) {
      (self.characters, self.length, self.values) = (characters, length, values)
    }

    /// Whether a value obeys all rules.
    public func permits(_ value: String) -> Bool {
      if let values { return values.contains(value) }
      return (1...length).contains(value.utf8.count) && value.utf8.allSatisfy(characters.contains) && value != "."
        && value != ".."
    }

    /// The characters that a value can have.
    package var usedCharacters: NameCharacters {
      guard let values else { return characters }
      return values.reduce(into: NameCharacters()) { set, value in for byte in value.utf8 { set.insert(byte) } }
    }

    /// Whether there can be a value that begins with `byte`.
    package func canBegin(with byte: UInt8) -> Bool {
      values.map { $0.contains { $0.utf8.first == byte } } ?? characters.contains(byte)
    }

    /// The bytes of the shortest value; nil: there is none.
    var shortest: Int? {
      if let values { return values.map(\.utf8.count).min() }
      guard !characters.isEmpty else { return nil }
      // Neither `.` nor `..` is a value.
      let least = characters.members == [UInt8(ascii: ".")] ? 3 : 1
      return length >= least ? least : nil
    }
  }

  /// Why a text is no name of a template, or why two templates cannot be together.
  public struct Fault: Error, Equatable {
    /// Begins with "expected".
    public let sentence: String
  }

  /// The result of a comparison with a stream's name.
  public enum Match: Equatable, Sendable {
    case values(NameValues)
    /// The name has the template's form, but not a value that is permitted. The rule is the end of a sentence, such as `"city"
    /// has at most 40 characters`.
    case violates(rule: String)
    case other
  }

  /// An expression, and the literal part that follows it in its segment.
  struct Part: Sendable {
    /// The index of its parameter.
    let parameter: Int
    let literal: [UInt8]
    /// The first byte of `literal` that no value of the parameter has, by which the value's end is found, and the number of
    /// bytes before it. For the last expression of a segment, which ends with `literal`, it is nil and all of them.
    let stop: UInt8?
    let lead: Int
  }

  /// The text between two slashes.
  struct Segment: Sendable {
    /// The literal part before the first expression.
    var prefix: [UInt8] = []
    /// Empty: the segment has no expression.
    var parts: [Part] = []
  }

  /// Maximum bytes of a stream's name.
  package static let longestName = 255
  /// Maximum number of expressions.
  package static let mostExpressions = 16

  /// The name as written.
  public let text: String
  /// The names of the parameters in the order of the expressions.
  public let parameterNames: [String]
  let segments: [Segment]
  private let rules: [Rules]

  /// The parameters in the order of the expressions.
  public var parameters: [Parameter] { rules.map(\.parameter) }

  /// Reads the name of a template.
  ///
  /// - Parameters:
  ///   - text: the name, with an expression for each parameter.
  ///   - parameters: the rules of its parameters, by name; one without may have any value. Others are ignored.
  /// - Throws: one sentence.
  public init(_ text: String, parameters: [String: Parameter] = [:]) throws(Fault) {
    var reader = NameTemplateReader(text)
    let pieces = try reader.read()
    let names = pieces.compactMap { if case .expression(let name) = $0 { name } else { nil } }
    let rules = names.map { Rules(of: $0, parameters[$0] ?? .any) }
    self.text = text
    (parameterNames, self.rules) = (names, rules)
    segments = try Self.segments(pieces, rules)
    var byteCount = segments.count - 1
    for segment in segments { byteCount += segment.prefix.count + segment.parts.reduce(0) { $0 + $1.literal.count } }
    for rule in rules {
      guard let shortest = rule.parameter.shortest else {
        throw Fault(sentence: "expected a value that \(rule.name) can have; its rules permit none")
      }
      byteCount += shortest
    }
    guard byteCount <= Self.longestName else {
      throw Fault(sentence: "expected names of at most \(Self.longestName) bytes; the shortest has \(byteCount)")
    }
  }

  private static func segments(_ pieces: [NameTemplateReader.Piece], _ rules: [Rules]) throws(Fault) -> [Segment] {
    var segments = [Segment()]
    var open: Int?  // the parameter whose literal part follows
    var literal: [UInt8] = []
    func close(isLast: Bool, before next: Int?) throws(Fault) {
      guard let index = open else {
        segments[segments.count - 1].prefix = literal
        return
      }
      let lead = isLast ? nil : literal.firstIndex { !rules[index].parameter.usedCharacters.contains($0) }
      guard isLast || lead != nil else {
        let (name, other) = (rules[index].name, rules[next ?? 0].name)
        throw Fault(
          sentence: "expected a character between {\(name)} and {\(other)} that no value of \(name) has; "
            + "parameters.\(name).characters restricts them")
      }
      segments[segments.count - 1].parts.append(
        Part(parameter: index, literal: literal, stop: lead.map { literal[$0] }, lead: lead ?? literal.count))
    }
    var count = 0
    for piece in pieces {
      switch piece {
      case .literal(let bytes): literal += bytes
      case .expression:
        try close(isLast: false, before: count)
        (open, literal) = (count, [])
        count += 1
      case .slash:
        try close(isLast: true, before: nil)
        (open, literal) = (nil, [])
        segments.append(Segment())
      }
    }
    try close(isLast: true, before: nil)
    return segments
  }
}

extension NameTemplate: Hashable {
  /// Whether both have the same text and rules.
  public static func == (one: Self, other: Self) -> Bool {
    one.text == other.text && one.parameters == other.parameters
  }

  /// Hashes the text.
  public func hash(into hasher: inout Hasher) { hasher.combine(text) }
}

extension NameTemplate {
  /// Compares a stream's name. Takes a time that is linear in its bytes; allocates for `values` only.
  public func match(_ name: String) -> Match {
    let bytes = name.utf8.span
    var violation: String?
    guard
      bytes.count <= Self.longestName,
      forEachValue(
        in: bytes,
        { parameter, range in
          if violation == nil { violation = rules[parameter].violation(in: bytes.extracting(range)) }
        })
    else { return .other }
    if let violation { return .violates(rule: violation) }
    var values: [String] = []
    values.reserveCapacity(parameterNames.count)
    _ = forEachValue(in: bytes) { _, range in
      let start = name.utf8.index(name.startIndex, offsetBy: range.lowerBound)
      values.append(String(name[start..<name.utf8.index(start, offsetBy: range.count)]))
    }
    return .values(NameValues(matched: values, of: parameterNames))
  }

  /// Calls `body` with the place of each value in order.
  /// - Returns: whether the name has the template's form.
  @inline(__always) private func forEachValue(in name: Span<UInt8>, _ body: (Int, Range<Int>) -> Void) -> Bool {
    var start = 0
    for (index, segment) in segments.enumerated() {
      let end = name.firstIndex(of: UInt8(ascii: "/"), from: start) ?? name.count
      guard (end == name.count) == (index == segments.count - 1) else { return false }
      guard segment.forEachValue(in: name, start..<end, body) else { return false }
      start = end + 1
    }
    return true
  }

  /// The name of the stream with these values, in the order of the expressions.
  public func name(for values: NameValues) -> String {
    var name: [UInt8] = []
    for (index, segment) in segments.enumerated() {
      if index > 0 { name.append(UInt8(ascii: "/")) }
      name += segment.prefix
      for part in segment.parts {
        name += values.values[part.parameter].utf8
        name += part.literal
      }
    }
    return String(decoding: name, as: UTF8.self)
  }
}

extension NameTemplate.Segment {
  /// The literal text of a segment without expressions; nil: it has some.
  var literal: [UInt8]? { parts.isEmpty ? prefix : nil }

  /// Whether it is one expression and nothing else.
  var isExpression: Bool { parts.count == 1 && prefix.isEmpty && parts[0].literal.isEmpty }

  /// - Parameter segment: the place of the segment in the name.
  @inline(__always) func forEachValue(
    in name: Span<UInt8>, _ segment: Range<Int>, _ body: (Int, Range<Int>) -> Void
  ) -> Bool {
    guard name.holds(prefix, at: segment.lowerBound, before: segment.upperBound) else { return false }
    var start = segment.lowerBound + prefix.count
    for part in parts {
      var stop = segment.upperBound
      if let byte = part.stop {
        guard let index = name.firstIndex(of: byte, from: start), index < stop else { return false }
        stop = index
      }
      let end = stop - part.lead
      guard end > start, name.holds(part.literal, at: end, before: segment.upperBound) else { return false }
      body(part.parameter, start..<end)
      start = end + part.literal.count
    }
    return start == segment.upperBound
  }
}

/// The rules of a parameter as `NameTemplate.match` applies them.
private struct Rules: Sendable {
  let name: String
  let parameter: NameTemplate.Parameter
  /// `parameter.values`, sorted.
  private let values: [[UInt8]]?
  // The ends of sentences.
  private let charactersRule: String
  private let lengthRule: String
  private let valuesRule: String

  init(of name: String, _ parameter: NameTemplate.Parameter) {
    (self.name, self.parameter) = (name, parameter)
    values = parameter.values.map { $0.map { Array($0.utf8) }.sorted { $0.lexicographicallyPrecedes($1) } }
    charactersRule = "\"\(name)\" has the characters \"\(parameter.characters)\" only"
    lengthRule = "\"\(name)\" has at most \(parameter.length) character\(parameter.length == 1 ? "" : "s")"
    let shown = (parameter.values ?? []).prefix(8).joined(separator: ", ")
    valuesRule = "\"\(name)\" is one of \(shown)\((parameter.values?.count ?? 0) > 8 ? ", …" : "")"
  }

  /// The rule that a value violates; nil: it obeys all.
  func violation(in value: Span<UInt8>) -> String? {
    if let values { return values.holds(value) ? nil : valuesRule }
    for index in 0..<value.count where !parameter.characters.contains(value[index]) { return charactersRule }
    guard value.count > 0, value.count <= parameter.length else { return lengthRule }
    let isDots = value.count <= 2 && value[0] == UInt8(ascii: ".") && value[value.count - 1] == UInt8(ascii: ".")
    return isDots ? "\"\(name)\" is neither . nor .." : nil
  }
}

extension [[UInt8]] {
  /// Whether a sorted array has an element.
  fileprivate func holds(_ element: Span<UInt8>) -> Bool {
    var range = 0..<count
    while let middle = range.isEmpty ? nil : range.lowerBound + range.count / 2 {
      switch element.order(to: self[middle]) {
      case 0: return true
      case let order: range = order < 0 ? range.lowerBound..<middle : middle + 1..<range.upperBound
      }
    }
    return false
  }
}

extension Span<UInt8> {
  fileprivate func firstIndex(of byte: UInt8, from start: Int) -> Int? {
    var index = start
    while index < count {
      if self[index] == byte { return index }
      index += 1
    }
    return nil
  }

  /// Whether `bytes` are at `start`, and end at `end` at the latest.
  func holds(_ bytes: [UInt8], at start: Int, before end: Int) -> Bool {
    guard bytes.count <= end - start else { return false }
    for index in bytes.indices where self[start + index] != bytes[index] { return false }
    return true
  }

  /// Less than 0 if it is before `other`, 0 if it is equal.
  fileprivate func order(to other: [UInt8]) -> Int {
    for index in 0..<Swift.min(count, other.count) where self[index] != other[index] {
      return Int(self[index]) - Int(other[index])
    }
    return count - other.count
  }
}
