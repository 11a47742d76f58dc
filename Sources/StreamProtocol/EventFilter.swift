import Events

/// Which events of a stream a subscription receives: those for which all conditions hold. An event that is no JSON text
/// fits no condition. Source: WIRE.md, "Filters".
///
///     try EventFilter(.init("/symbol", .oneOf(["AAPL", "MSFT"])), .init("/price", .greaterThan(100)))
public struct EventFilter: Hashable, Sendable {
  /// A string, a number, a boolean or null. Strings are equal if their code points are; numbers if their values are.
  public enum Scalar: Sendable, ExpressibleByStringLiteral, ExpressibleByIntegerLiteral, ExpressibleByFloatLiteral,
    ExpressibleByBooleanLiteral, ExpressibleByNilLiteral
  {
    case string(String)
    case number(Number)
    case boolean(Bool)
    case null

    /// From a literal.
    public init(stringLiteral value: String) { self = .string(value) }
    /// From a literal.
    public init(integerLiteral value: Int) { self = .number(Number(value)) }
    /// From a literal.
    public init(floatLiteral value: Double) { self = .number(Number(floatLiteral: value)) }
    /// From a literal.
    public init(booleanLiteral value: Bool) { self = .boolean(value) }
    /// From a literal.
    public init(nilLiteral: ()) { self = .null }
  }

  /// A number by its decimal value, which no conversion rounds.
  public struct Number: Hashable, Sendable, CustomStringConvertible, ExpressibleByIntegerLiteral,
    ExpressibleByFloatLiteral
  {
    /// Maximum characters of a number in a filter, and of a number in an event that fits a condition on numbers.
    public static let characterLimit = 1024

    /// The number in JSON: the same text for all texts of this value.
    public let description: String

    /// - Parameter text: a number as JSON allows it, of at most `characterLimit` characters, with an exponent of at most nine
    ///   digits.
    /// - Returns: `nil` for any other text.
    public init?(_ text: String) {
      guard let value = JSONValue(Array(text.utf8)), value.bytes.count == text.utf8.count else { return nil }
      self.init(value)
    }

    /// A whole number.
    public init(_ value: some FixedWidthInteger) { self.init(valid: Array(String(value).utf8)) }

    /// The shortest decimal number whose nearest `Double` is this one, as `print` writes it: 0.1 is one tenth.
    /// - Returns: `nil` for infinity and NaN.
    public init?(_ value: Double) {
      guard value.isFinite else { return nil }
      self.init("\(value)")
    }

    /// From a literal.
    public init(integerLiteral value: Int) { self.init(value) }

    /// From a literal.
    /// - Precondition: it is finite.
    public init(floatLiteral value: Double) {
      guard let number = Number(value) else { preconditionFailure("a filter compares with \(value)") }
      self = number
    }

    init?(_ value: JSONValue) {
      let text = Array(value.bytes)
      guard value.kind == .number, text.count <= Self.characterLimit else { return nil }
      guard !JSONNumber(text.span).isExtreme else { return nil }
      self.init(valid: text)
    }

    /// - Parameter text: a number as JSON allows it, not extreme.
    private init(valid text: [UInt8]) {
      var bytes: [UInt8] = []
      JSONNumber(text.span).appendJSON(in: text.span, to: &bytes)
      description = String(decoding: bytes, as: UTF8.self)
    }
  }

  /// What must hold for a value. Only `exists(false)` holds where there is none.
  public enum Test: Sendable {
    case equals(Scalar)
    case oneOf([Scalar])
    /// The value is a string with these first code points.
    case hasPrefix(String)
    /// The value is a number.
    case greaterThan(Number)
    case atLeast(Number)
    case lessThan(Number)
    case atMost(Number)
    /// Whether there is a value; null is a value.
    case exists(Bool)
  }

  /// A test of one value of an event.
  public struct Condition: Sendable {
    /// A JSON pointer: `/symbol`, `/prices/0`; empty: the whole event. Source: RFC 6901.
    public let pointer: String
    /// What must hold for the value there.
    public let test: Test

    /// The value at `pointer` must pass `test`.
    public init(_ pointer: String, _ test: Test) { (self.pointer, self.test) = (pointer, test) }
  }

  /// Maximum number of conditions.
  public static let conditionLimit = 16
  /// Maximum bytes of a filter as JSON.
  public static let byteLimit = 4096

  /// Sorted by their pointers: filters with equal conditions are equal.
  public let conditions: [Condition]
  /// The filter on the wire.
  package let json: [UInt8]
  /// The hash of `json`: a request looks its filter up for each of its streams.
  private let digest: Int

  /// - Throws: an error whose description is one sentence: at a limit, without a condition, with two conditions of one
  ///   kind for one value, and for an invalid pointer.
  public init(_ conditions: Condition...) throws { try self.init(conditions) }

  /// - Throws: as above.
  package init(_ conditions: [Condition]) throws(SubscribeOptions.Malformed) {
    guard (1...Self.conditionLimit).contains(conditions.count) else {
      throw .init("a filter has 1 to \(Self.conditionLimit) conditions")
    }
    var members: [[UInt8]: [Test]] = [:]
    for condition in conditions {
      guard Self.isPointer(condition.pointer) else {
        throw .init("\(JSONScalar.quoted(condition.pointer)) is no JSON pointer, such as \"/symbol\"")
      }
      members[Array(condition.pointer.utf8), default: []].append(condition.test)
    }
    let sorted = members.sorted { $0.key.lexicographicallyPrecedes($1.key) }
      .map { (pointer: String(decoding: $0.key, as: UTF8.self), tests: $0.value.sorted { $0.name < $1.name }) }
    guard sorted.allSatisfy({ Set($0.tests.map(\.name)).count == $0.tests.count }) else {
      throw .init("a filter has two conditions of one kind for one value")
    }
    self.conditions = sorted.flatMap { member in member.tests.map { Condition(member.pointer, $0) } }
    let texts = sorted.map { JSONScalar.quoted($0.pointer) + ":" + Self.text(of: $0.tests) }
    json = Array("{\(texts.joined(separator: ","))}".utf8)
    guard json.count <= Self.byteLimit else {
      throw .init("a filter of \(json.count) bytes: \(Self.byteLimit) at most")
    }
    var hasher = Hasher()
    unsafe json.withUnsafeBytes { unsafe hasher.combine(bytes: $0) }
    digest = hasher.finalize()
  }

  private static func text(of tests: [Test]) -> String {
    if tests.count == 1, case .equals(let scalar) = tests[0] { return scalar.json }
    return "{" + tests.map { "\"\($0.name)\":\($0.operand)" }.joined(separator: ",") + "}"
  }

  private static func isPointer(_ text: String) -> Bool {
    let bytes = Array(text.utf8)
    guard bytes.isEmpty || bytes[0] == UInt8(ascii: "/") else { return false }
    return bytes.indices.allSatisfy { index in
      bytes[index] != UInt8(ascii: "~") || index + 1 < bytes.count && (bytes[index + 1] | 1) == UInt8(ascii: "1")
    }
  }

  /// Whether both have the same conditions.
  public static func == (one: EventFilter, other: EventFilter) -> Bool {
    one.digest == other.digest && one.json == other.json
  }
  /// Hashes the conditions.
  public func hash(into hasher: inout Hasher) { hasher.combine(digest) }
}

extension EventFilter.Scalar {
  fileprivate var json: String {
    switch self {
    case .string(let text): JSONScalar.quoted(text)
    case .number(let number): number.description
    case .boolean(let flag): flag ? "true" : "false"
    case .null: "null"
    }
  }

  fileprivate init?(_ value: JSONValue) {
    switch value.kind {
    case .string:
      guard let text = value.string else { return nil }
      self = .string(text)
    case .number:
      guard let number = EventFilter.Number(value) else { return nil }
      self = .number(number)
    case .boolean: self = .boolean(value.flag == true)
    case .null: self = .null
    case .array, .object: return nil
    }
  }
}

extension EventFilter.Test {
  /// The name on the wire; a single `equals` has none.
  fileprivate var name: String {
    switch self {
    case .equals, .oneOf: "in"
    case .hasPrefix: "prefix"
    case .greaterThan: "gt"
    case .atLeast: "ge"
    case .lessThan: "lt"
    case .atMost: "le"
    case .exists: "exists"
    }
  }

  fileprivate var operand: String {
    switch self {
    case .equals(let scalar): "[\(scalar.json)]"
    case .oneOf(let scalars): "[\(scalars.map(\.json).joined(separator: ","))]"
    case .hasPrefix(let text): JSONScalar.quoted(text)
    case .greaterThan(let number), .atLeast(let number), .lessThan(let number), .atMost(let number):
      number.description
    case .exists(let flag): flag ? "true" : "false"
    }
  }

  fileprivate init?(_ name: String, _ operand: JSONValue) {
    switch name {
    case "in":
      guard let elements = operand.elements else { return nil }
      var scalars: [EventFilter.Scalar] = []
      for element in elements {
        guard let scalar = EventFilter.Scalar(element) else { return nil }
        scalars.append(scalar)
      }
      self = .oneOf(scalars)
    case "prefix":
      guard let text = operand.string else { return nil }
      self = .hasPrefix(text)
    case "exists":
      guard let flag = operand.flag else { return nil }
      self = .exists(flag)
    case _:
      guard let number = EventFilter.Number(operand) else { return nil }
      switch name {
      case "gt": self = .greaterThan(number)
      case "ge": self = .atLeast(number)
      case "lt": self = .lessThan(number)
      case "le": self = .atMost(number)
      case _: return nil
      }
    }
  }
}

extension EventFilter {
  /// - Parameter json: a filter as in the option `where`.
  package init(json: [UInt8]) throws(SubscribeOptions.Malformed) {
    guard let value = JSONValue(json) else { throw Self.noObject }
    try self.init(value)
  }

  /// - Parameter value: the value of the option `where`.
  init(_ value: JSONValue) throws(SubscribeOptions.Malformed) {
    guard value.bytes.count <= Self.byteLimit else {
      throw .init("option \"where\" has \(value.bytes.count) bytes: \(Self.byteLimit) at most")
    }
    guard let members = value.members else { throw Self.noObject }
    var conditions: [Condition] = []
    var pointers: Set<[UInt8]> = []
    for (name, value) in members where conditions.count <= Self.conditionLimit {
      guard let pointer = name.string else {
        throw .init("option \"where\": \(String(decoding: name.bytes, as: UTF8.self)) is no JSON pointer")
      }
      guard pointers.insert(Array(pointer.utf8)).inserted else {
        throw .init("option \"where\": \(JSONScalar.quoted(pointer)) is given twice")
      }
      if let scalar = Scalar(value) {
        conditions.append(Condition(pointer, .equals(scalar)))
        continue
      }
      let count = conditions.count
      guard let tests = value.members else { throw Self.noCondition(pointer) }
      for (name, operand) in tests where conditions.count <= Self.conditionLimit {
        guard let test = name.string.flatMap({ Test($0, operand) }) else { throw Self.noCondition(pointer) }
        conditions.append(Condition(pointer, test))
      }
      guard conditions.count > count else { throw Self.noCondition(pointer) }
    }
    do {
      try self.init(conditions)
    } catch {
      throw .init("option \"where\": \(error.sentence)")
    }
  }

  private static let noObject = SubscribeOptions.Malformed(
    "option \"where\" must be a JSON object of pointers and conditions")

  private static func noCondition(_ pointer: String) -> SubscribeOptions.Malformed {
    .init(
      "option \"where\": the condition for \(JSONScalar.quoted(pointer)) must be a string, a number, true, false, "
        + "null, or an object of \"in\" (a list of these), \"prefix\" (a string), \"gt\", \"ge\", \"lt\", \"le\" (a number) and "
        + "\"exists\" (true or false)")
  }
}
