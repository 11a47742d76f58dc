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
  /// The size of the position and the length before a name.
  package static let namePrefixByteCount = 9
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
  /// With a pattern, the position to resume from; 0: there is none yet.
  package private(set) var position: UInt64 = 0
  /// With a pattern, the stream's name; empty in a marker.
  package private(set) var name: String?

  /// - Parameters:
  ///   - isFiltered: the subscription has a filter.
  ///   - hasKind: it has markers.
  ///   - hasName: it has names.
  /// - Returns: nil for metadata of another length, which is not streamd's.
  package init?(_ metadata: [UInt8], isFiltered: Bool = false, hasKind: Bool = false, hasName: Bool = false) {
    let stamp = unsafe metadata.withUnsafeBytes {
      unsafe hasName
        ? Self(named: $0, isFiltered: isFiltered, hasKind: hasKind)
        : Self($0, isFiltered: isFiltered, hasKind: hasKind)
    }
    guard let stamp else { return nil }
    self = stamp
  }

  /// The same of metadata in place, with a position and a name.
  package init?(named metadata: UnsafeRawBufferPointer, isFiltered: Bool, hasKind: Bool) {
    let count = Self.byteCount + (isFiltered ? 8 : 0) + Self.gapByteCount + (hasKind ? 1 : 0)
    guard metadata.count >= count + Self.namePrefixByteCount,
      Int(unsafe metadata[count + 8]) == metadata.count - count - Self.namePrefixByteCount,
      let stamp = unsafe Self(
        UnsafeRawBufferPointer(rebasing: metadata[..<count]), isFiltered: isFiltered, hasKind: hasKind)
    else { return nil }
    self = stamp
    position = unsafe UInt64(bigEndian: metadata.loadUnaligned(fromByteOffset: count, as: UInt64.self))
    name = unsafe String(decoding: metadata[(count + Self.namePrefixByteCount)...], as: UTF8.self)
  }

  /// The same of metadata in place, once for each event that a client receives.
  package init?(_ metadata: UnsafeRawBufferPointer, isFiltered: Bool = false, hasKind: Bool = false) {
    let byteCount = metadata.count - (hasKind ? 1 : 0)
    let fixedByteCount = isFiltered ? Self.byteCount + 8 : Self.byteCount
    let hasGap = byteCount == fixedByteCount + Self.gapByteCount
    guard hasGap || byteCount == fixedByteCount,
      let kind = unsafe hasKind ? Kind(rawValue: metadata[byteCount]) : .event
    else { return nil }
    func number(at offset: Int) -> UInt64 {
      unsafe UInt64(bigEndian: metadata.loadUnaligned(fromByteOffset: offset, as: UInt64.self))
    }
    (id, time, self.kind) = (number(at: 0), number(at: 8), kind)
    leftOutCount = isFiltered ? number(at: 16) : 0
    missedCount = hasGap ? number(at: fixedByteCount) : 0
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
