/// The name and first number of a publisher, so that none of its values is published twice. An entry of the composite
/// metadata beside the route; responders other than streamd ignore it. Source: WIRE.md, "Named publishers".
public struct PublisherEntry: Equatable, Sendable {
  /// The MIME type of the entry.
  public static let mimeType = "message/x.streamd.publisher.v0"
  /// The maximum number of bytes of a name.
  public static let maximumNameBytes = 48

  /// The name: 1 to ``maximumNameBytes`` bytes of any value.
  public let name: [UInt8]
  /// The number of the first value that the publisher still has, from 1 to ``numberLimit``.
  public let firstNumber: UInt64

  /// - Throws: ``RoutingError`` for a name or a number out of bounds.
  public init(name: [UInt8], firstNumber: UInt64) throws(RoutingError) {
    guard (1...Self.maximumNameBytes).contains(name.count) else {
      throw RoutingError("a publisher's name has 1 to \(Self.maximumNameBytes) bytes, not \(name.count)")
    }
    guard (1...Self.numberLimit).contains(firstNumber) else {
      throw RoutingError("the number of a publisher's next value is 1 to \(Self.numberLimit), not \(firstNumber)")
    }
    self.name = name
    self.firstNumber = firstNumber
  }

  /// Values have lower numbers, so that adding to a number does not overflow. A publisher that has reached it can still
  /// ask what is confirmed.
  public static let numberLimit: UInt64 = 1 << 62

  /// Decodes the content of an entry: number, big endian, and name.
  init(_ content: ArraySlice<UInt8>) throws(RoutingError) {
    guard content.count > 8 else { throw RoutingError("the publisher's entry has \(content.count) bytes, too few") }
    let number = content.prefix(8).reduce(0) { $0 << 8 | UInt64($1) }
    try self.init(name: Array(content.dropFirst(8)), firstNumber: number)
  }

  /// The entry with its MIME type and length.
  var compositeEntry: [UInt8] {
    var entry = [UInt8(Self.mimeType.utf8.count - 1)] + Array(Self.mimeType.utf8)
    entry += [0, 0, UInt8(8 + name.count)]
    entry.append(bigEndian: firstNumber)
    return entry + name
  }
}
