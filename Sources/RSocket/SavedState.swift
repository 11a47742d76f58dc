/// State on its way from one process to the next: numbers big endian, bytes and texts behind their count (u32).
package struct StateWriter: Sendable {
  /// What was written so far.
  package private(set) var bytes: [UInt8] = []

  package init() {}

  package mutating func write(_ number: some FixedWidthInteger) { bytes.append(bigEndian: number) }
  package mutating func write(_ flag: Bool) { bytes.append(flag ? 1 : 0) }

  package mutating func write(_ some: some Collection<UInt8>) {
    write(UInt32(some.count))
    bytes.append(contentsOf: some)
  }

  package mutating func write(_ text: String) { write(text.utf8) }
}

/// Reads what a `StateWriter` wrote, in the same order.
package struct StateReader: Sendable {
  /// The bytes end too early, or say something that cannot be.
  package struct Broken: Error, Equatable {
    package init() {}
  }

  private var rest: ArraySlice<UInt8>

  package init(_ bytes: [UInt8]) { rest = bytes[...] }

  package var isAtEnd: Bool { rest.isEmpty }

  package mutating func number<Number: FixedWidthInteger>(_: Number.Type = Number.self) throws(Broken) -> Number {
    try take(Number.bitWidth / 8).reduce(0) { $0 << 8 | Number(truncatingIfNeeded: $1) }
  }

  package mutating func flag() throws(Broken) -> Bool { try number(UInt8.self) != 0 }

  package mutating func data() throws(Broken) -> [UInt8] {
    let count = try number(UInt32.self)
    return Array(try take(Int(count)))
  }

  package mutating func text() throws(Broken) -> String { String(decoding: try data(), as: UTF8.self) }

  /// - Parameter make: nil for a value that has no meaning.
  package mutating func choice<Choice>(_ make: (UInt8) -> Choice?) throws(Broken) -> Choice {
    guard let choice = make(try number()) else { throw Broken() }
    return choice
  }

  private mutating func take(_ count: Int) throws(Broken) -> ArraySlice<UInt8> {
    guard count <= rest.count else { throw Broken() }
    defer { rest = rest.dropFirst(count) }
    return rest.prefix(count)
  }
}
