import Foundation

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
    case number(Decimal)
    case boolean(Bool)
    case null

    /// From a literal.
    public init(stringLiteral value: String) { self = .string(value) }
    /// From a literal.
    public init(integerLiteral value: Int) { self = .number(Decimal(value)) }
    /// From a literal.
    public init(floatLiteral value: Double) { self = .number(Decimal(string: "\(value)") ?? Decimal(value)) }
    /// From a literal.
    public init(booleanLiteral value: Bool) { self = .boolean(value) }
    /// From a literal.
    public init(nilLiteral: ()) { self = .null }
  }

  /// What must hold for a value. Only `exists(false)` holds where there is none.
  public enum Test: Sendable {
    case equals(Scalar)
    case oneOf([Scalar])
    /// The value is a string with these first code points.
    case hasPrefix(String)
    /// The value is a number.
    case greaterThan(Decimal)
    case atLeast(Decimal)
    case lessThan(Decimal)
    case atMost(Decimal)
    /// Whether there is a value; null is one.
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

  /// Sorted by their pointers, so that filters with equal conditions are equal.
  public let conditions: [Condition]
  /// The filter on the wire.
  package let json: [UInt8]

  /// - Throws: an error whose description is one sentence: at a limit, without a condition, with two conditions of one
  ///   kind for one value, and for a text that is no pointer.
  public init(_ conditions: Condition...) throws { try self.init(conditions) }

  /// - Throws: as above.
  package init(_ conditions: [Condition]) throws(SubscribeOptions.Malformed) {
    guard (1...Self.conditionLimit).contains(conditions.count) else {
      throw .init("a filter has 1 to \(Self.conditionLimit) conditions, not \(conditions.count)")
    }
    var members: [[UInt8]: [Test]] = [:]
    for condition in conditions {
      guard Self.isPointer(condition.pointer) else {
        throw .init("\(SubscribeOptions.quoted(condition.pointer)) is no JSON pointer, such as \"/symbol\"")
      }
      guard !condition.test.hasNaN else { throw .init("a filter compares with NaN") }
      members[Array(condition.pointer.utf8), default: []].append(condition.test)
    }
    let sorted = members.sorted { $0.key.lexicographicallyPrecedes($1.key) }
      .map { (pointer: String(decoding: $0.key, as: UTF8.self), tests: $0.value.sorted { $0.name < $1.name }) }
    guard sorted.allSatisfy({ Set($0.tests.map(\.name)).count == $0.tests.count }) else {
      throw .init("a filter has two conditions of one kind for one value")
    }
    self.conditions = sorted.flatMap { member in member.tests.map { Condition(member.pointer, $0) } }
    let texts = sorted.map { SubscribeOptions.quoted($0.pointer) + ":" + Self.text(of: $0.tests) }
    json = Array("{\(texts.joined(separator: ","))}".utf8)
    guard json.count <= Self.byteLimit else {
      throw .init("a filter of \(json.count) bytes: \(Self.byteLimit) at most")
    }
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
  public static func == (one: EventFilter, other: EventFilter) -> Bool { one.json == other.json }
  /// Hashes the conditions.
  public func hash(into hasher: inout Hasher) { hasher.combine(json) }
}

extension EventFilter.Scalar {
  fileprivate var json: String {
    switch self {
    case .string(let text): SubscribeOptions.quoted(text)
    case .number(let number): number.description
    case .boolean(let flag): flag ? "true" : "false"
    case .null: "null"
    }
  }

  fileprivate init?(_ value: SubscribeOptions.Value) {
    switch value {
    case .string(let text): self = .string(text)
    case .number(let number): self = .number(number)
    case .bool(let flag): self = .boolean(flag)
    case .null: self = .null
    case .array, .object, .other: return nil
    }
  }
}

extension EventFilter.Test {
  /// On the wire; a single `equals` has none.
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
    case .hasPrefix(let text): SubscribeOptions.quoted(text)
    case .greaterThan(let number), .atLeast(let number), .lessThan(let number), .atMost(let number):
      number.description
    case .exists(let flag): flag ? "true" : "false"
    }
  }

  fileprivate var hasNaN: Bool {
    switch self {
    case .equals(.number(let number)), .greaterThan(let number), .atLeast(let number), .lessThan(let number),
      .atMost(let number):
      number.isNaN
    case .oneOf(let scalars): scalars.contains { if case .number(let number) = $0 { number.isNaN } else { false } }
    case .equals, .hasPrefix, .exists: false
    }
  }

  fileprivate init?(_ name: String, _ operand: SubscribeOptions.Value) {
    switch (name, operand) {
    case ("in", .array(let values)):
      let scalars = values.compactMap { EventFilter.Scalar($0) }
      guard scalars.count == values.count else { return nil }
      self = .oneOf(scalars)
    case ("prefix", .string(let text)): self = .hasPrefix(text)
    case ("gt", .number(let number)): self = .greaterThan(number)
    case ("ge", .number(let number)): self = .atLeast(number)
    case ("lt", .number(let number)): self = .lessThan(number)
    case ("le", .number(let number)): self = .atMost(number)
    case ("exists", .bool(let flag)): self = .exists(flag)
    case _: return nil
    }
  }
}

extension EventFilter {
  /// - Parameter json: a filter as in the option `where`.
  package init(json: [UInt8]) throws(SubscribeOptions.Malformed) {
    guard json.count <= Self.byteLimit else {
      throw .init("option \"where\" has \(json.count) bytes: \(Self.byteLimit) at most")
    }
    guard let value = try? JSONDecoder().decode(SubscribeOptions.Value.self, from: Data(json)) else {
      throw .init("option \"where\" must be a JSON object of conditions")
    }
    try self.init(value)
  }

  /// - Parameter value: of the option `where`.
  init(_ value: SubscribeOptions.Value) throws(SubscribeOptions.Malformed) {
    guard case .object(let members) = value else {
      throw .init("option \"where\" must be an object of JSON pointers and conditions")
    }
    var conditions: [Condition] = []
    for (pointer, value) in members.sorted(by: { $0.key < $1.key }) {
      if let scalar = Scalar(value) {
        conditions.append(Condition(pointer, .equals(scalar)))
        continue
      }
      guard case .object(let tests) = value, !tests.isEmpty else {
        throw Self.noCondition(pointer)
      }
      for (name, operand) in tests {
        guard let test = Test(name, operand) else { throw Self.noCondition(pointer) }
        conditions.append(Condition(pointer, test))
      }
    }
    do {
      try self.init(conditions)
    } catch {
      throw .init("option \"where\": \(error.sentence)")
    }
  }

  private static func noCondition(_ pointer: String) -> SubscribeOptions.Malformed {
    .init(
      "option \"where\": the condition for \(SubscribeOptions.quoted(pointer)) must be a string, a number, true, false, "
        + "null, or an object of \"in\" (a list of these), \"prefix\" (a string), \"gt\", \"ge\", \"lt\", \"le\" (a number) and "
        + "\"exists\" (true or false)")
  }
}
