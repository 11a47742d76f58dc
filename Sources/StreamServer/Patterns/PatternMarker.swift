import ReplayLog
import StreamProtocol
import StreamRuntime

/// When the markers of a pattern are due: once all members are current for the first time, and whenever nothing was sent for
/// `markerInterval`. All members have one marker.
struct PatternMarker {
  fileprivate var timer: TimerID?
  /// On the loop's clock; nil: none was sent.
  fileprivate(set) var sentAt: UInt64?

  mutating func stop(on loop: EventLoop) {
    if let timer { loop.cancel(timer) }
    timer = nil
  }

  /// It continues one of another process.
  mutating func resume(at now: UInt64) { sentAt = now }
}

extension PatternReader {
  /// Sends a marker if it is due, and looks again later if it will be.
  func checkMarker() {
    let worker = connection.worker
    guard options.marker, marker.timer == nil, demand > .none, !hasEnded, !worker.isPaused else { return }
    let (now, interval) = (worker.loop.now, UInt64(max(0, worker.limits.markerInterval.wholeNanoseconds)))
    var due = marker.sentAt.map { $0 + interval } ?? max(now, clock.nextMeasure)
    if due <= now {
      clock.measure(self)
      if clock.isCurrent {
        sendMarker()
      } else if marker.sentAt == nil {
        return  // the member that is behind looks again when it is current
      }
      due = now + (clock.isCurrent ? interval : interval / 10)
    }
    marker.timer = worker.loop.schedule(after: .nanoseconds(Int64(due - min(due, now)))) { [weak self] in
      self?.marker.timer = nil
      self?.checkMarker()
    }
  }

  func sendMarker() {
    let format = EventFormat(
      isBody ? encoding : .rsocket, ids: true, completes: false, counts: options.filter != nil, hasKind: true,
      hasName: options.names)
    let stamp = [0 as UInt64, EventLoop.wallClock().bigEndian]
    var bytes = [UInt8](repeating: 0, count: 512)
    let count = unsafe bytes.withUnsafeMutableBytes { bytes in
      unsafe stamp.withUnsafeBytes {
        unsafe EventWriter(format).writeMarker(
          $0, .init(position: clock.position), upTo: clock.position, for: request, at: bytes.baseAddress!)
      }
    }.byteCount
    connection.speaker?.append(answer: Array(bytes[..<count]))
    marker.sentAt = connection.worker.loop.now
    takeCredit()
    _ = connection.flush()
  }

  private var isBody: Bool { if case .body = encoding { true } else { false } }
}
