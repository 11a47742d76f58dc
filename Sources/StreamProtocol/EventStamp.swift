/// The metadata of an event. Source: WIRE.md, "Content of a payload".
package struct EventStamp: Equatable, Sendable {
  /// The kind of a payload.
  package enum Kind: UInt8, Sendable {
    case event
    /// The subscription has been sent all events up to the id; the payload has no data.
    case marker
  }

  /// The size of id and time.
  package static let byteCount = 16
  /// The size of the count of missed events, which only the first event after a gap has, and of events left out.
  package static let gapByteCount = 8
  /// The count if it is unknown.
  package static let unknownCount = UInt64.max

  package let id: UInt64
  /// Microseconds since the Unix epoch.
  package let time: UInt64
  /// Missing events directly before this one; 0: none.
  package let missedCount: UInt64
  /// Events that the filter has left out since the previous payload.
  package let leftOutCount: UInt64
  package let kind: Kind

  /// - Parameters:
  ///   - isFiltered: the subscription has a filter.
  ///   - hasKind: it has markers.
  /// - Returns: nil for metadata of another length, which is not streamd's.
  package init?(_ metadata: [UInt8], isFiltered: Bool = false, hasKind: Bool = false) {
    var rest = metadata[...]
    var kind = Kind.event
    if hasKind {
      guard let last = rest.popLast(), let known = Kind(rawValue: last) else { return nil }
      kind = known
    }
    let numbers = rest.count / 8
    guard rest.count % 8 == 0, numbers == (isFiltered ? 3 : 2) || numbers == (isFiltered ? 4 : 3),
      let id = UInt64(bigEndian: metadata, at: 0), let time = UInt64(bigEndian: metadata, at: 8)
    else { return nil }
    let hasGap = numbers == (isFiltered ? 4 : 3)
    (self.id, self.time, self.kind) = (id, time, kind)
    leftOutCount = isFiltered ? UInt64(bigEndian: metadata, at: 16) ?? 0 : 0
    missedCount = hasGap ? UInt64(bigEndian: metadata, at: rest.count - 8) ?? 0 : 0
  }
}

/// A confirmation to a named publisher. Source: WIRE.md, "Named publishers".
package struct PublishConfirmation: Equatable, Sendable {
  /// All values up to this number are in the stream.
  package let confirmed: UInt64
  /// The number of the publisher's next value; only in the first confirmation of a request.
  package let next: UInt64?

  package init(confirmed: UInt64, next: UInt64? = nil) { (self.confirmed, self.next) = (confirmed, next) }

  /// - Returns: nil for data of another length.
  package init?(_ data: [UInt8]) {
    guard let confirmed = UInt64(bigEndian: data, at: 0), data.count == 8 || data.count == 16 else { return nil }
    self.init(confirmed: confirmed, next: UInt64(bigEndian: data, at: 8))
  }

  package var bytes: [UInt8] {
    [confirmed, next].compactMap(\.self).flatMap { number in
      (0..<8).map { UInt8(truncatingIfNeeded: number >> (56 - 8 * $0)) }
    }
  }
}

extension UInt64 {
  /// - Returns: nil with fewer than 8 bytes.
  fileprivate init?(bigEndian bytes: [UInt8], at offset: Int) {
    guard bytes.count >= offset + 8 else { return nil }
    self = bytes[offset..<offset + 8].reduce(0) { $0 << 8 | UInt64($1) }
  }
}
