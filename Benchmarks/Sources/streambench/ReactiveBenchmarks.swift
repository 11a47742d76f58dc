import Dispatch
import Glibc
import Reactive

/// One row of the library's figures, beside those of OpenCombine on another machine: both are relative to their floor,
/// one direct call of a stored closure.
private struct LibraryRow: Sendable {
  /// Nanoseconds per value. Source: the measurement of OpenCombine, whose floor was 13.
  static let floorOfOpenCombine = 13.0
  let name: String
  let openCombine: Double
  /// The factor by which it should be faster; `nil` where another thread is involved.
  let goal: Double?
  /// Runs this many steps; returns the nanoseconds per delivery.
  let measure: @Sendable (_ steps: Int) -> Double
}

/// Measures nanoseconds per value of the library's operators, with Swift's checks and across a module boundary, as in a
/// user's program.
func measureReactive(_ options: Options) {
  Report.heading("Reactive, ns per delivery", goal: "3 times OpenCombine's figure by the floor, 4 for sharing")
  // Once, and first: freed memory would be reused.
  Report.line("memory per sink", Figures([bytesPerSink()]), "bytes", ["goal: 200"])
  let steps = 20_000
  /// The minimum of many short slices, which excludes the time of other processes.
  func figures(_ measure: (Int) -> Double) -> Figures {
    Figures((0..<options.runs).map { _ in (0..<20).map { _ in measure(steps) }.min() ?? 0 })
  }
  let floor = figures(callClosure)
  Report.line("a stored closure", floor, "ns")
  for row in libraryRows {
    let result = figures(row.measure)
    let ours = result.median / floor.median
    let theirs = row.openCombine / LibraryRow.floorOfOpenCombine
    var ratios = [Report.times(result.median, floor.median, "floor"), Report.times(theirs, ours, "as fast")]
    if let goal = row.goal { ratios.append(theirs / ours >= goal ? "reached" : "missed") }
    Report.line(row.name, result, "ns", ratios)
  }
}

private let libraryRows: [LibraryRow] = [
  LibraryRow(name: "passthrough, 1 sink", openCombine: 129, goal: 3) { steps in
    let subject = PassthroughSubject<Int, Never>()
    return sinking(1, subject) { time(steps, subject.send) }
  },
  LibraryRow(name: "passthrough, 100 sinks", openCombine: 122, goal: 3) { steps in
    let subject = PassthroughSubject<Int, Never>()
    return sinking(100, subject) { time(steps / 100, subject.send) } / 100
  },
  LibraryRow(name: "current value, 1 sink", openCombine: 144, goal: 3) { steps in
    let subject = CurrentValueSubject<Int, Never>(0)
    return sinking(1, subject) { time(steps, subject.send) }
  },
  LibraryRow(name: "sequence, 3 operators", openCombine: 187, goal: 3) { steps in
    timeWhole(steps) { sinking(1, threeOperators(behind: (0..<steps).publisher)) {} }
  },
  LibraryRow(name: "subject, 3 operators", openCombine: 162, goal: 3) { steps in
    let subject = PassthroughSubject<Int, Never>()
    return sinking(1, threeOperators(behind: subject)) { time(steps, subject.send) }
  },
  LibraryRow(name: "flatMap(max 1) { Just }", openCombine: 924, goal: 3) { steps in
    timeWhole(steps) { sinking(1, (0..<steps).publisher.flatMap(maxPublishers: .max(1)) { Just($0) }) {} }
  },
  LibraryRow(name: "share, 100 sinks", openCombine: 245, goal: 4) { steps in
    let subject = PassthroughSubject<Int, Never>()
    return sinking(100, subject.share()) { time(steps / 100, subject.send) } / 100
  },
  LibraryRow(name: "shareReplay(16), 100 sinks", openCombine: 276, goal: 4) { steps in
    let subject = PassthroughSubject<Int, Never>()
    return sinking(100, subject.shareReplay(16)) { time(steps / 100, subject.send) } / 100
  },
  LibraryRow(name: "receive(on: queue)", openCombine: 750, goal: nil) { steps in
    let subject = PassthroughSubject<Int, Never>()
    let queue = DispatchQueue(label: "streambench")
    let done = DispatchSemaphore(value: 0)
    let sink = subject.receive(on: queue).sink { if $0 == steps - 1 { done.signal() } }
    defer { sink.cancel() }
    let start = nanoseconds(CLOCK_MONOTONIC)
    for value in 0..<steps { subject.send(value) }
    done.wait()
    return Double(nanoseconds(CLOCK_MONOTONIC) - start) / Double(steps)
  },
  LibraryRow(name: "subscribe", openCombine: 1190, goal: 3) { _ in
    let subject = PassthroughSubject<Int, Never>()
    var sinks: [AnyCancellable] = []
    sinks.reserveCapacity(1000)
    return time(1000) { _ in sinks.append(subject.sink { _ in }) }
  },
  LibraryRow(name: "cancel", openCombine: 1060, goal: 3) { _ in
    let subject = PassthroughSubject<Int, Never>()
    let sinks = (0..<1000).map { _ in subject.sink { _ in } }
    return time(1000) { sinks[$0].cancel() }
  },
]

private func threeOperators<P: Publisher<Int, Never>>(behind publisher: P) -> some Publisher<Int, Never> {
  publisher.map { $0 &+ 1 }.filter { $0 != 7 }.map { $0 &* 3 }
}

/// The floor. The closure adds up values, as the sinks do.
private func callClosure(_ steps: Int) -> Double {
  var sum = 0
  let holder = ClosureHolder { sum &+= $0 }
  defer { keep(sum) }
  return time(steps, holder.send)
}

private final class ClosureHolder {
  private var closure: (Int) -> Void
  init(_ closure: @escaping (Int) -> Void) { self.closure = closure }
  @inline(never) func send(_ value: Int) { closure(value) }
}

/// Runs `body` while `count` sinks are attached.
private func sinking<P: Publisher<Int, Never>, R>(_ count: Int, _ publisher: P, _ body: () -> R) -> R {
  nonisolated(unsafe) var sum = 0
  let sinks = (0..<count).map { _ in publisher.sink { unsafe sum &+= $0 } }
  defer { keep(unsafe sum &+ sinks.count) }
  return body()
}

/// A result that the compiler cannot discard.
@inline(never) private func keep(_ value: Int) { withExtendedLifetime(value) {} }

@inline(__always)
private func time(_ steps: Int, _ step: (Int) -> Void) -> Double {
  timeWhole(steps) { for value in 0..<steps { step(value) } }
}

private func timeWhole(_ steps: Int, _ body: () -> Void) -> Double {
  let start = nanoseconds(CLOCK_THREAD_CPUTIME_ID)
  body()
  return Double(nanoseconds(CLOCK_THREAD_CPUTIME_ID) - start) / Double(steps)
}

private func nanoseconds(_ clock: clockid_t) -> Int {
  var time = timespec()
  unsafe clock_gettime(clock, &time)
  return time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// The memory of a sink on a subject: subscription, sink, cancellable, and the entry in the subject.
private func bytesPerSink() -> Double {
  let count = 200_000
  var sinks: [AnyCancellable] = []
  sinks.reserveCapacity(count)
  let subject = PassthroughSubject<Int, Never>()
  let before = residentBytes()
  for _ in 0..<count { sinks.append(subject.sink { _ in }) }
  let after = residentBytes()
  return withExtendedLifetime(sinks) { Double(after - before) / Double(count) - Double(MemoryLayout<Int>.size) }
}

private func residentBytes() -> Int {
  guard let file = unsafe fopen("/proc/self/statm", "r") else { return 0 }
  defer { unsafe fclose(file) }
  var line = [CChar](repeating: 0, count: 256)
  guard unsafe fgets(&line, CInt(line.count), file) != nil else { return 0 }
  let text = String(decoding: line.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
  return text.split(separator: " ").dropFirst().first.flatMap { Int($0) }.map { $0 * sysconf(CInt(_SC_PAGESIZE)) } ?? 0
}
