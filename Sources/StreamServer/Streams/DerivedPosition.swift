import Events

/// The position of the next event in each base of a derived stream, by the base's name.
///
/// Encoding: u8 0xDE, then for each base, in the order of the names: u16 byte count of the name, the name, u64 position; all
/// numbers big endian. Checkpoints of other sources begin with another byte.
struct DerivedPosition: Equatable {
  var positions: [String: UInt64]

  private static let head: UInt8 = 0xDE

  init(_ positions: [String: UInt64]) { self.positions = positions }

  /// - Parameter checkpoint: an untrusted checkpoint.
  /// - Returns: nil if the checkpoint is not one of a derived stream.
  init?(_ checkpoint: Checkpoint?) {
    guard let bytes = checkpoint?.bytes, bytes.first == Self.head else { return nil }
    var rest = bytes.dropFirst()
    func number(_ count: Int) -> UInt64? {
      guard rest.count >= count else { return nil }
      defer { rest = rest.dropFirst(count) }
      return rest.prefix(count).reduce(0) { $0 << 8 | UInt64($1) }
    }
    positions = [:]
    while !rest.isEmpty {
      guard let count = number(2).map({ Int($0) }), rest.count >= count else { return nil }
      let name = String(decoding: rest.prefix(count), as: UTF8.self)
      rest = rest.dropFirst(count)
      guard let position = number(8) else { return nil }
      positions[name] = position
    }
  }

  /// The checkpoint with these positions; nil: the names are too long for one.
  var checkpoint: Checkpoint? {
    var bytes = [Self.head]
    func append(_ number: UInt64, _ count: Int) {
      for index in (0..<count).reversed() { bytes.append(UInt8(truncatingIfNeeded: number >> (8 * index))) }
    }
    for (name, position) in positions.sorted(by: { $0.key < $1.key }) {
      let text = name.utf8.prefix(Int(UInt16.max))
      append(UInt64(text.count), 2)
      bytes += text
      append(position, 8)
    }
    return Checkpoint(bytes)
  }
}
