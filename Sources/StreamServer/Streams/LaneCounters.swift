import Synchronization

/// The counters of one stream on one loop, which is the only writer.
final class LaneCounters: Sendable {
  let eventsOut = Atomic<UInt64>(0)
  let bytesOut = Atomic<UInt64>(0)
  /// The lag at the last measurement.
  let lag = Atomic<UInt64>(0)

  /// There is one writer, so no atomic addition is needed.
  func count(events: Int, bytes: Int) {
    eventsOut.store(eventsOut.load(ordering: .relaxed) &+ UInt64(events), ordering: .relaxed)
    bytesOut.store(bytesOut.load(ordering: .relaxed) &+ UInt64(bytes), ordering: .relaxed)
  }
}
