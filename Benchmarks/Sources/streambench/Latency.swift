import Glibc
import StreamRuntime

/// The times of events from the publisher's `send` to the subscriber's `recv`, in milliseconds.
struct Latencies {
  private var tenthsOfMicroseconds: [UInt32] = []

  mutating func add(_ nanoseconds: UInt64) {
    tenthsOfMicroseconds.append(UInt32(clamping: nanoseconds / 100))
  }

  /// The longest.
  var greatest: Double { Double(tenthsOfMicroseconds.max() ?? 0) / 1e4 }

  /// - Returns: the median and the 99th percentile.
  /// - Throws: without any event.
  func percentiles() throws -> (p50: Double, p99: Double) {
    let sorted = tenthsOfMicroseconds.sorted()
    guard !sorted.isEmpty else { throw BenchError("no event arrived") }
    func at(_ share: Double) -> Double { Double(sorted[Int(Double(sorted.count - 1) * share)]) / 1e4 }
    return (at(0.5), at(0.99))
  }
}

/// A thread that publishes at a steady pace, independent of the subscribers.
@safe final class Pacer {
  private struct Work {
    let feeder: Feeder
    let count: Int
    let interval: UInt64
    var failure: (any Error)?

    mutating func run() {
      var due = monotonicNanoseconds()
      do {
        for _ in 0..<count {
          due += interval
          var time = timespec(tv_sec: Int(due / 1_000_000_000), tv_nsec: Int(due % 1_000_000_000))
          unsafe clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, nil)
          try feeder.hear()
          try feeder.feed(upTo: feeder.sent + 1)
        }
      } catch {
        failure = error
      }
    }
  }

  private let work: UnsafeMutablePointer<Work>
  private var thread = pthread_t()

  /// - Parameter feeder: used only by the thread until `join`.
  init(_ feeder: Feeder, count: Int, perSecond rate: Int) throws {
    unsafe work = .allocate(capacity: 1)
    unsafe work.initialize(to: Work(feeder: feeder, count: count, interval: UInt64(1_000_000_000 / rate)))
    let result = unsafe pthread_create(
      &thread, nil,
      { argument in
        unsafe argument?.assumingMemoryBound(to: Work.self).pointee.run()
        return nil
      }, unsafe work)
    guard result == 0 else { throw SystemError("pthread_create", code: result) }
  }

  func join() throws {
    pthread_join(thread, nil)
    let failure = unsafe work.pointee.failure
    unsafe work.deinitialize(count: 1)
    unsafe work.deallocate()
    if let failure { throw failure }
  }
}

extension Contender {
  /// The latencies of events that are published one by one, at a steady rate.
  func latencies(over seconds: Double, perSecond rate: Int) throws -> Latencies {
    guard let feeder else { preconditionFailure("\(name) has no publisher") }
    var latencies = Latencies()
    let start = monotonicNanoseconds() + UInt64(seconds / 4 * 1e9)
    let shape = pool.shape
    unsafe pool.onTimes = { bytes, stride, now in
      var offset = 0
      while offset < bytes.count {
        let sent = shape.decoded(unsafe bytes.loadUnaligned(fromByteOffset: offset, as: UInt64.self))
        let age = (now &- sent) & shape.numberBits
        if now >= start, age <= now - start { latencies.add(age) }
        offset += stride
      }
    }
    let pacer = try Pacer(feeder, count: Int(seconds * 1.25 * Double(rate)), perSecond: rate)
    let end = monotonicSeconds() + seconds * 1.25
    while monotonicSeconds() < end { try pool.read(timeout: 10) }
    try pacer.join()
    try drain()
    unsafe pool.onTimes = nil
    return latencies
  }
}

func measureLatency(_ options: Options) throws {
  for subscribers in [1, 100, 1000] {
    Report.heading(
      "latency in ms, 1,000 events/s, \(counted(subscribers, "subscriber"))", goal: "no worse than the best peer")
    let contenders = try brokers(options).map { try Contender($0, subscribers: subscribers, verifies: true) }
    report(try compareLatencies(contenders, options), of: contenders.map(\.name), comparedWith: "the best peer's")
  }
}

/// - Parameters:
///   - figures: those of streamd, then of its peers.
///   - best: what the lowest of the peers' figures is called.
func report(_ figures: [(p50: Figures, p99: Figures)], of names: [String], comparedWith best: String) {
  for (percentile, choose) in [("p50", \(p50: Figures, p99: Figures).p50), ("p99", \.p99)] {
    let least = figures.dropFirst().map { $0[keyPath: choose].median }.min()
    for (index, name) in names.enumerated() {
      let figure = figures[index][keyPath: choose]
      let ratios = index == 0 ? least.map { [Report.times(figure.median, $0, best)] } ?? [] : []
      Report.line("\(name) \(percentile)", figure, "ms", ratios)
    }
  }
}

/// Alternates between the contenders, so that a slow moment of the machine affects all of them.
func compareLatencies(
  _ contenders: [Contender], _ options: Options, perSecond rate: Int = 1000
) throws -> [(p50: Figures, p99: Figures)] {
  var values = [[(p50: Double, p99: Double)]](repeating: [], count: contenders.count)
  for _ in 0..<options.runs {
    for (index, contender) in contenders.enumerated() {
      values[index].append(try contender.latencies(over: options.seconds, perSecond: rate).percentiles())
    }
  }
  return values.map { runs in (Figures(runs.map(\.p50)), Figures(runs.map(\.p99))) }
}

func measureNeighbours(_ options: Options) throws {
  Report.heading("latency in ms of one client with credit, 1,000 events/s", goal: "p99 within 10 % of alone")
  let alone = try Contender(StreamdBroker(options.program), subscribers: 1, verifies: true)
  let broker = try StreamdBroker(options.program)
  // The idle subscribers take one event and then have no credit; the stalled ones have unlimited credit and never read.
  let idle = try (0..<10_000).map { _ in try broker.subscribe(credit: 1, options: #"{"from":"new"}"#) }
  let stuck = try (0..<100).map { _ in try broker.subscribe() }
  defer { (idle + stuck).forEach { close($0) } }
  let crowded = try Contender(broker, subscribers: 1, verifies: true)
  // Until the sockets of the stalled subscribers are full.
  try crowded.run(for: 1)
  try crowded.drain()
  let figures = try compareLatencies([alone, crowded], options)
  Report.line("alone p50", figures[0].p50, "ms")
  Report.line("alone p99", figures[0].p99, "ms")
  Report.line("beside 10,100 p50", figures[1].p50, "ms")
  Report.line(
    "beside 10,100 p99", figures[1].p99, "ms",
    [Report.percent(figures[1].p99.median, of: figures[0].p99.median, "alone")])
}
