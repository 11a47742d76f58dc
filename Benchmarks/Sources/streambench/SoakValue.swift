import RSocket

/// A published value of a soak: a number that determines the rest of the value.
///
/// The number contains the publication, and the value's index in it.
struct SoakValue: Equatable {
  static let feeder: UInt64 = 0
  /// The publication that fills the streams before any client connects.
  static let filling: UInt64 = 1

  let number: UInt64

  init(number: UInt64) { self.number = number }
  init(publication: UInt64, index: Int) { number = publication << 24 | UInt64(index) }

  var publication: UInt64 { number >> 24 }
  var index: Int { Int(number & 0xff_ffff) }

  /// The number, followed by the feeder's time.
  private var headByteCount: Int { publication == Self.feeder ? 16 : 8 }
  private var byteCount: Int {
    publication == Self.feeder ? EventShape.dataByteCount : headByteCount + Int(number &* 31 % 600)
  }
  private var filler: UInt8 { publication == Self.feeder ? 0 : UInt8(truncatingIfNeeded: number &* 131 >> 5) }

  var bytes: [UInt8] {
    var bytes = [UInt8](repeating: filler, count: byteCount)
    unsafe bytes.withUnsafeMutableBytes { unsafe $0.storeBytes(of: number, as: UInt64.self) }
    return bytes
  }

  /// - Returns: nil for data that is not a complete value.
  init?(_ data: UnsafeRawBufferPointer) {
    guard data.count >= MemoryLayout<UInt64>.size else { return nil }
    number = unsafe data.loadUnaligned(as: UInt64.self)
    let filler = filler
    guard data.count == byteCount, unsafe data[headByteCount...].allSatisfy({ $0 == filler }) else { return nil }
  }
}

/// The known events of one stream, from all its subscribers: an id has the same value for each of them.
final class SoakLedger {
  let stream: String
  /// How far back subscribers resume by id.
  let depth: Int
  /// Whether its buffer is so small that a slow subscriber loses events.
  let drops: Bool
  let replay: UInt64 = 16
  private var values: [UInt64: SoakValue] = [:]
  private(set) var newest: UInt64 = 0
  /// Publications, and how many values of each the daemon has confirmed.
  private var confirmed: [UInt64: Int] = [:]

  init(_ stream: String, depth: Int, drops: Bool) {
    self.stream = stream
    self.depth = depth
    self.drops = drops
  }

  /// - Returns: the error, if there is one.
  func enter(_ id: UInt64, _ data: UnsafeRawBufferPointer) -> String? {
    guard let value = unsafe SoakValue(data) else { return "\(data.count) bytes of data that were not published" }
    newest = max(newest, id)
    if let known = values[id] {
      return known == value ? nil : "value \(value.number), which was \(known.number) for another client"
    }
    values[id] = value
    return nil
  }

  func confirm(_ publication: UInt64, count: Int) { confirmed[publication] = count }

  /// Checks the order of each publisher's values, and that all confirmed values exist.
  /// - Parameter wasSeenWhole: whether a subscriber received every event.
  func close(wasSeenWhole: Bool) throws {
    var counts: [UInt64: Int] = [:]
    for id in values.keys.sorted() {
      guard let value = values[id] else { continue }
      let wasBegun = value.publication <= SoakValue.filling  // before any client subscribed
      let expected = counts[value.publication] ?? (wasBegun ? value.index : 0)
      guard wasSeenWhole ? value.index == expected : value.index >= expected else {
        throw BenchError(
          "\(stream), event \(id): value \(value.index) of publication \(value.publication), not \(expected)")
      }
      counts[value.publication] = value.index + 1
    }
    guard wasSeenWhole else { return }
    for (publication, count) in confirmed where counts[publication] != count {
      throw BenchError(
        "\(stream): \(count) values of publication \(publication) confirmed, \(counts[publication] ?? 0) received")
    }
  }
}
