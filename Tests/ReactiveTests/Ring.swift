@testable import Reactive

/// A reader that ignores notifications.
final class SilentReader: LogReader {
  func logDidChange() {}
}

/// A ring of `capacity` values that drops no value which a reader holds.
struct Ring: ReplayStorage {
  var capacity: Int
  private var held = UInt64.max
  private(set) var values: [Int] = []
  private(set) var firstPosition: UInt64 = 0
  var endPosition: UInt64 { firstPosition + UInt64(values.count) }
  var isFull: Bool { values.count == capacity && firstPosition >= held }

  init(_ capacity: Int) { self.capacity = capacity }

  /// Creates a ring with the newest values of another one, as many as fit.
  init(_ capacity: Int, takingOver other: Ring) {
    self.capacity = capacity
    values = other.values.suffix(capacity)
    firstPosition = other.endPosition - UInt64(values.count)
  }

  func element(at position: UInt64) -> Int { values[Int(position - firstPosition)] }
  mutating func hold(from position: UInt64) { held = position }
  mutating func append(_ batch: [Int]) { _ = appendWhatFits(batch) }
  mutating func appendWhatFits(_ batch: [Int]) -> [Int]? {
    for (index, value) in batch.enumerated() {
      if isFull { return Array(batch[index...]) }
      if values.count == capacity {
        values.removeFirst()
        firstPosition += 1
      }
      values.append(value)
    }
    return nil
  }
}

extension SharedLog where Storage == Ring {
  /// Returns a connected log for four values and its only reader, which has read nothing and has unlimited demand.
  static func connected(
    to probe: Probe<[Int], Failure>, _ overflow: LogOverflow, _ start: ShareStart = .always
  ) -> (log: SharedLog, reader: SilentReader) {
    let log = SharedLog(storage: Ring(4), start: start, demand: .oneAtATime, overflow: overflow)
    log.setUpstream(probe.eraseToAnyPublisher())
    let reader = SilentReader()
    log.attach(reader)
    log.reader(reader, oldestUnread: 0)
    log.reader(reader, requestedThrough: .max)
    log.start()
    log.subscriberJoined()
    return (log, reader)
  }

  /// The values in the log.
  var values: [Int] { read { storage, _ in storage.values } }
}
