/// A position in a shard's log, with the checksum that shows whether a log still has the entry.
package struct ShardPosition: Equatable, Sendable {
  package var epoch: UInt64
  package var sequence: UInt64
  /// The checksum of the entry with that sequence number.
  package var checksum: UInt32
  package var term: UInt64
}

extension ShardPosition {
  /// The position in 33 bytes, as the stream's log stores it.
  package var bytes: [UInt8] {
    var bytes: [UInt8] = [1]
    for number in [epoch, sequence, UInt64(checksum), term] {
      for shift in stride(from: 56 as UInt64, through: 0, by: -8) {
        bytes.append(UInt8(truncatingIfNeeded: number >> shift))
      }
    }
    return bytes
  }

  /// - Returns: nil unless the bytes are such a position.
  package init?(_ bytes: [UInt8]) {
    guard bytes.count == 33, bytes[0] == 1 else { return nil }
    let numbers = (0..<4).map { index in
      bytes[1 + 8 * index..<9 + 8 * index].reduce(0 as UInt64) { $0 << 8 | UInt64($1) }
    }
    guard let checksum = UInt32(exactly: numbers[2]), numbers[0] < 1 << 62, numbers[1] < 1 << 62 else { return nil }
    self.init(epoch: numbers[0], sequence: numbers[1], checksum: checksum, term: numbers[3])
  }
}
