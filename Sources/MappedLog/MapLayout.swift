/// The layout of a region, version 1, in host byte order. `Sources/libstreamd/streamd-map.h` defines it, the order in
/// which the writer stores, and the way in which readers read.
package enum MapLayout {
  package static let magic: UInt64 = 0x5041_4D44_4D52_5453  // "STRMDMAP" in a little endian dump
  package static let version: UInt32 = 1
  package static let headerBytes = 4096
  /// Bytes of a record before its data: u32 size, u32 0, u64 id, u64 time.
  package static let recordHeaderBytes = 24

  /// The offset of each field in the header.
  package enum Offset {
    package static let magic = 0
    package static let version = 8
    package static let headerBytes = 12
    package static let generation = 16
    package static let epoch = 24
    package static let regionBytes = 32
    package static let slots = 40
    package static let indexOffset = 48
    package static let ringOffset = 56
    package static let ringBytes = 64
    package static let first = 128
    package static let end = 192
    package static let wake = 256
    package static let state = 260
  }

  /// The offset of each field in a record.
  package enum RecordOffset {
    package static let size = 0
    static let reserved = 4
    package static let id = 8
    package static let time = 16
  }

  /// The bytes that a record takes in the ring.
  static func recordBytes(for dataBytes: Int) -> Int { (recordHeaderBytes + dataBytes + 7) & ~7 }

  /// A region's parts, for the limits of a log.
  struct Geometry: Equatable {
    /// A power of two.
    let slots: Int
    let ringBytes: Int

    init(events: Int, bytes: Int) {
      slots = events > 1 ? 1 << (Int.bitWidth - (events - 1).leadingZeroBitCount) : 1
      ringBytes = (bytes + 7) & ~7
    }

    var indexOffset: Int { headerBytes }
    var ringOffset: Int { (headerBytes + slots * 8 + 63) & ~63 }
    /// Whole pages of 64 KiB, which is the largest page size of the supported processors.
    var regionBytes: Int { (ringOffset + ringBytes + 0xFFFF) & ~0xFFFF }
  }
}

/// What readers may expect of a region.
package enum MapState: UInt32 {
  /// Events are appended to it.
  case live = 0
  /// Another region continues the stream.
  case replaced = 1
  /// The stream has ended.
  case ended = 2
}
