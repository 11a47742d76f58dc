import Dispatch
import Glibc
import Reactive

#if ASYNC_ALGORITHMS
  import AsyncAlgorithms
#endif

/// Measures nanoseconds of processor time, of all threads, per element and consumer of asynchronous sequences, beside
/// swift-async-algorithms where it is built: see `deploy/bench --help`.
func measureAsync(_ options: Options) {
  Report.heading(
    "async sequences, ns of processor time per delivery", goal: "values 1,000 and 100; shareReplay 2,700 and 520")
  let count = options.isQuick ? 20_000 : 200_000
  for row in asyncRows {
    func figures(_ measure: @escaping AsyncRow.Measure) -> Figures {
      Figures((0..<options.runs).map { _ in processorTime(of: row.consumers, count / row.consumers, measure) })
    }
    let ours = figures(row.ours)
    var ratios: [String] = row.goal.map { ["goal: \(Int($0))", ours.median <= $0 ? "reached" : "missed"] } ?? []
    if let peer = row.peer {
      let theirs = figures(peer)
      ratios.append(Report.times(theirs.median, ours.median, "as fast as its peer"))
      Report.line(row.name, ours, "ns", ratios)
      Report.line("  swift-async-algorithms", theirs, "ns")
    } else {
      Report.line(row.name, ours, "ns", ratios)
    }
  }
}

private struct AsyncRow: Sendable {
  /// Delivers so many elements to each of so many consumers. Returns the number of all deliveries.
  typealias Measure = @Sendable (_ consumers: Int, _ count: Int) async -> Int
  let name: String
  var consumers = 1
  var goal: Double?
  let ours: Measure
  var peer: Measure?
}

private let asyncRows: [AsyncRow] = [
  AsyncRow(name: "AsyncStream, awaited") { _, count in
    let (stream, continuation) = AsyncStream<Int>.makeStream()
    let consumer = Task { await total(stream) }
    for number in 0..<count {
      continuation.yield(number)
      await Task.yield()
    }
    continuation.finish()
    return await consumer.value
  },
  AsyncRow(name: "values, there already", goal: 100) { _, count in await total((0..<count).publisher.values) },
  AsyncRow(name: "values, awaited", goal: 1000) { _, count in
    let subject = CurrentValueSubject<Int, Never>(0)
    let consumer = Task { await total(subject.values) }
    for number in 1..<count {
      subject.send(number)
      await Task.yield()
    }
    subject.send(completion: .finished)
    _ = await consumer.value  // it misses what is sent while it is busy
    return count
  },
  AsyncRow(name: "publisher, to a sink") { _, count in
    await withCheckedContinuation { continuation in
      let delivered = Numbers(count: count).publisher.count()
      delivered.subscribe(
        Subscribers.Sink(receiveCompletion: { _ in }, receiveValue: { continuation.resume(returning: $0) }))
    }
  },
  shared(1, .bounded(16), goal: 2700), shared(100, .bounded(16), goal: 520),
  shared(1, .bounded(1)), shared(100, .bounded(1)),
]

private func shared(_ consumers: Int, _ buffering: SharedBuffering, goal: Double? = nil) -> AsyncRow {
  var row = AsyncRow(name: "shareReplay \(buffering), \(consumers)", consumers: consumers, goal: goal) {
    consumers, count in
    await deliver(Numbers(count: count).shareReplay(buffering: buffering), to: consumers)
  }
  #if ASYNC_ALGORITHMS
    if case .bounded(let limit) = buffering {
      row.peer = { consumers, count in
        await deliver(Numbers(count: count).share(bufferingPolicy: .bounded(limit)), to: consumers)
      }
    }
  #endif
  return row
}

/// The numbers below `count`, without a suspension.
private struct Numbers: AsyncSequence, Sendable {
  let count: Int

  struct AsyncIterator: AsyncIteratorProtocol {
    let count: Int
    var number = 0

    mutating func next() async -> Int? { await next(isolation: nil) }
    mutating func next(isolation actor: isolated (any Actor)?) async -> Int? {
      guard number < count else { return nil }
      defer { number += 1 }
      return number
    }
  }

  func makeAsyncIterator() -> AsyncIterator { AsyncIterator(count: count) }
}

private func total<S: AsyncSequence<Int, Never>>(_ sequence: S) async -> Int {
  var count = 0
  for await _ in sequence { count += 1 }
  return count
}

/// Hands an iterator over to the one task that uses it.
private struct Consumer<Iterator>: @unchecked Sendable {
  let iterator: Iterator
}

/// All consumers begin with the first element.
private func deliver<S: AsyncSequence<Int, Never> & Sendable>(_ sequence: S, to consumers: Int) async -> Int {
  let iterators = (0..<consumers).map { _ in sequence.makeAsyncIterator() }
  return await withTaskGroup(of: Int.self) { group in
    for iterator in iterators {
      let consumer = Consumer(iterator: iterator)
      group.addTask {
        var (iterator, count) = (consumer.iterator, 0)
        while await iterator.next(isolation: nil) != nil { count += 1 }
        return count
      }
    }
    return await group.reduce(0, +)
  }
}

/// Nanoseconds per delivery; infinite if one is missing.
private func processorTime(of consumers: Int, _ count: Int, _ measure: @escaping AsyncRow.Measure) -> Double {
  let done = DispatchSemaphore(value: 0)
  nonisolated(unsafe) var result = 0.0
  Task.detached {
    let start = processorNanoseconds()
    let delivered = await measure(consumers, count)
    let time = Double(processorNanoseconds() - start) / Double(max(1, delivered))
    unsafe result = delivered == consumers * count ? time : .infinity
    done.signal()
  }
  done.wait()
  return unsafe result
}

private func processorNanoseconds() -> Int {
  var time = timespec()
  unsafe clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time)
  return time.tv_sec * 1_000_000_000 + time.tv_nsec
}
