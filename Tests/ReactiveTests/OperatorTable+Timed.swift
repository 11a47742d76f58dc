import Reactive

extension OperatorCase {
  /// Operators that observe signals.
  static let observing: [Self] = [
    Self("handleEvents") { $0.handleEvents(receiveOutput: { _ in }, receiveRequest: { _ in }) },
    Self("print") { $0.print(to: NoText()) },
    Self("breakpoint") { $0.breakpoint(receiveOutput: { $0 < 0 }) },
    Self("breakpointOnError") { $0.replaceError(with: 7).breakpointOnError() },
  ]

  private struct NoText: TextOutputStream {
    mutating func write(_ string: String) {}
  }

  /// Operators that deliver at another time or on another thread.
  static let timed: [Self] = [
    timed("receive on") { $0.receive(on: $1) },
    timed("receive on, immediately") { source, _ in source.receive(on: ImmediateScheduler.shared) },
    Self("subscribe on") { $0.subscribe(on: ImmediateScheduler.shared) },
    timed("delay") { $0.delay(for: .milliseconds(5), scheduler: $1) },
    timed("debounce") { $0.debounce(for: .milliseconds(5), scheduler: $1) },
    timed("throttle") { $0.throttle(for: .milliseconds(5), scheduler: $1, latest: true) },
    timed("timeout") { $0.timeout(.milliseconds(5), scheduler: $1) { TestError() } },
    timed("measureInterval") { $0.measureInterval(using: $1) },
    timed("collect by time") { $0.collect(.byTime($1, .milliseconds(5))) },
    timed("collect by time or count") { $0.collect(.byTimeOrCount($1, .milliseconds(5), 3)) },
    Self("buffer that keeps full") { $0.buffer(size: 3, prefetch: .keepFull, whenFull: .dropOldest) },
    Self("buffer by request") { $0.buffer(size: .max, prefetch: .byRequest, whenFull: .dropNewest) },
  ]

  private static func timed<P: Publisher>(
    _ name: String, _ make: @escaping (CountingSource, VirtualTimeScheduler) -> P
  ) -> Self {
    Self(
      name,
      settling: { source in
        let time = VirtualTimeScheduler()
        return (make(source, time), { time.run() })
      })
  }
}
