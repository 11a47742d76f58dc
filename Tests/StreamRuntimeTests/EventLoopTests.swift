import CLinux
import Glibc
import Synchronization
import Testing

@testable import StreamRuntime

/// A loop that runs on its own thread during `body`.
func withRunningLoop<R>(_ body: (EventLoop) async throws -> R) async throws -> R {
  let loop = try EventLoop(name: "test")
  try loop.start()
  defer { loop.stop() }
  return try await body(loop)
}

extension EventLoop {
  /// The result of `body`, which runs on the loop.
  func perform<R: Sendable>(_ body: @escaping @Sendable () -> R) async -> R {
    await withCheckedContinuation { continuation in
      execute { continuation.resume(returning: body()) }
    }
  }
}

/// Counts from many threads.
final class Counter: Sendable {
  private let count = Atomic(0)
  var value: Int { count.load(ordering: .relaxed) }
  func increment() { count.add(1, ordering: .relaxed) }
}

/// Reports each readiness of a descriptor after reading it empty.
final class ReadingHandler: EventLoop.Handler {
  let descriptor: CInt
  let onBytes: ([UInt8]) -> Void
  init(_ descriptor: CInt, onBytes: @escaping ([UInt8]) -> Void) {
    self.descriptor = descriptor
    self.onBytes = onBytes
  }
  func descriptorIsReady(_ readiness: EventLoop.Readiness) {
    var buffer = [UInt8](repeating: 0, count: 64)
    let count = read(descriptor, &buffer, 64)
    onBytes(Array(buffer.prefix(max(0, count))))
  }
}

@Suite struct EventLoopTests {
  @Test func workPostedBeforeTheStopRunsAndLaterWorkIsDropped() throws {
    let loop = try EventLoop(name: "test")
    let done = Counter()
    loop.execute { done.increment() }
    loop.stop()
    loop.run()
    #expect(done.value == 1)
    weak var posted: Counter?
    do {
      let new = Counter()
      posted = new
      loop.execute { new.increment() }
    }
    #expect(posted == nil)
  }

  @Test func timersAreReleasedWithTheLoop() throws {
    weak var held: EventLoop?
    do {
      let loop = try EventLoop(name: "test")
      held = loop
      _ = loop.schedule(after: .seconds(60)) { withExtendedLifetime(loop) {} }
      loop.stop()
      loop.run()
    }
    #expect(held == nil)
  }

  @Test func busyTimeExcludesWaiting() async throws {
    try await withRunningLoop { loop in
      let (start, before) = await loop.perform { (EventLoop.monotonicNow(), loop.busyNanoseconds) }
      await withCheckedContinuation { continuation in
        loop.execute { _ = loop.schedule(after: .milliseconds(20)) { continuation.resume() } }
      }
      let (end, waited) = await loop.perform { (EventLoop.monotonicNow(), loop.busyNanoseconds) }
      #expect(end - start >= 20_000_000 && waited - before < end - start)
      let worked = await loop.perform {
        let start = EventLoop.monotonicNow()
        while EventLoop.monotonicNow() < start + 5_000_000 {}
        return EventLoop.monotonicNow() - start
      }
      let after = await loop.perform { loop.busyNanoseconds }
      #expect(after - waited >= worked)
    }
  }

  @Test func workFromOneThreadRunsInOrderOnTheLoop() async throws {
    try await withRunningLoop { loop in
      let seen = Mutex<[Int]>([])
      for number in 0..<1000 {
        loop.execute { seen.withLock { $0.append(loop.isCurrent ? number : -1) } }
      }
      _ = await loop.perform { 0 }
      #expect(seen.withLock { $0 } == Array(0..<1000))
      #expect(!loop.isCurrent)
    }
  }

  /// Keeps the loop's thread busy until a slice of `part` pieces is used up.
  private static func spin(sliceOver part: UInt64) {
    let end = EventLoop.monotonicNow() + EventLoop.slice / part
    while EventLoop.monotonicNow() < end {}
  }

  @Test func aFloodOfPostedWorkRunsInSlicesBetweenOtherWork() throws {
    let loop = try EventLoop(name: "test")
    var ends: [CInt] = [0, 0]
    pipe2(&ends, O_CLOEXEC)
    defer { for end in ends { close(end) } }
    var log: [String] = []
    let handler = ReadingHandler(ends[0]) { _ in log.append("descriptor") }
    let registration = try loop.register(ends[0], for: .readable, handler: handler)
    defer { loop.unregister(registration) }
    let done = Mutex<[Int]>([])
    for number in 0..<20 {
      loop.execute {
        Self.spin(sliceOver: 4)
        done.withLock { $0.append(number) }
      }
    }
    _ = loop.schedule(after: .zero) { log.append("timer") }
    loop.endOfTurn = {
      log.append("end")
      return nil
    }
    loop.runOneTurn()
    let first = done.withLock { $0.count }
    #expect((1...4).contains(first))
    #expect(log == ["timer", "end"])
    write(ends[1], "x", 1)
    loop.runOneTurn()
    #expect(log == ["timer", "end", "descriptor", "end"])
    loop.execute { done.withLock { $0.append(20) } }
    for _ in 0..<20 { loop.runOneTurn() }
    #expect(done.withLock { $0 } == Array(0...20))
  }

  @Test func aFloodOfDueTimersIsSpreadOverTurns() throws {
    let loop = try EventLoop(name: "test")
    var fired: [Int] = []
    for number in 0..<20 {
      _ = loop.schedule(after: .zero) {
        Self.spin(sliceOver: 4)
        fired.append(number)
      }
    }
    loop.runOneTurn()
    #expect((1...4).contains(fired.count))
    for _ in 0..<20 { loop.runOneTurn() }
    #expect(fired == Array(0..<20))
  }

  @Test func descriptorsBeyondTheSliceComeFirstInTheNextTurn() throws {
    let loop = try EventLoop(name: "test")
    var pipes: [[CInt]] = []
    var told: [CInt] = []
    for _ in 0..<12 {
      var ends: [CInt] = [0, 0]
      pipe2(&ends, O_CLOEXEC)
      pipes.append(ends)
      let number = ends[0]
      let handler = ReadingHandler(number) { _ in
        Self.spin(sliceOver: 4)
        told.append(number)
      }
      _ = try loop.register(number, for: .readable, handler: handler)
    }
    defer { for end in pipes.joined() { close(end) } }
    for ends in pipes { write(ends[1], "x", 1) }
    loop.runOneTurn()
    #expect((1...4).contains(told.count))
    for ends in pipes.prefix(1) { write(ends[1], "y", 1) }  // one that was notified waits behind the others
    for _ in 0..<20 where told.count < 12 { loop.runOneTurn() }
    #expect(told.prefix(12).sorted() == pipes.map { $0[0] }.sorted())
    for _ in 0..<20 where told.count < 13 { loop.runOneTurn() }
    #expect(told.count == 13)
  }

  @Test func postedWorkDoesNotWaitForABatchOfDescriptors() throws {
    let loop = try EventLoop(name: "test")
    var pipes: [[CInt]] = []
    var told = 0
    let done = Mutex(false)
    for _ in 0..<12 {
      var ends: [CInt] = [0, 0]
      pipe2(&ends, O_CLOEXEC)
      pipes.append(ends)
      let handler = ReadingHandler(ends[0]) { _ in
        Self.spin(sliceOver: 2)
        told += 1
      }
      _ = try loop.register(ends[0], for: .readable, handler: handler)
    }
    defer { for end in pipes.joined() { close(end) } }
    for ends in pipes { write(ends[1], "x", 1) }
    loop.runOneTurn()
    #expect(told < 12)
    loop.execute { done.withLock { $0 = true } }
    loop.runOneTurn()
    #expect(told < 12)
    #expect(done.withLock { $0 })
  }

  @Test func workFromManyThreadsAllArrives() async throws {
    try await withRunningLoop { loop in
      let counter = Counter()
      await withTaskGroup(of: Void.self) { group in
        for _ in 0..<8 {
          group.addTask { for _ in 0..<5000 { loop.execute { counter.increment() } } }
        }
      }
      _ = await loop.perform { 0 }
      #expect(counter.value == 40_000)
    }
  }

  /// The thread may be interrupted between the calls, so that a later one with a shorter delay is due later.
  @Test(arguments: [true, false]) func timersRunInOrderAndNeverEarly(hasNanoseconds: Bool) async throws {
    try await withRunningLoop { loop in
      typealias Run = (dueFrom: UInt64, dueUntil: UInt64, at: UInt64)
      let runs: [Run] = await withCheckedContinuation { continuation in
        loop.execute {
          loop.hasNanoseconds = hasNanoseconds
          var runs: [Run] = []
          for delay in [30, 10, 20] as [UInt64] {
            let from = EventLoop.monotonicNow() + delay * 1_000_000
            var until = UInt64.max
            _ = loop.schedule(after: .milliseconds(delay)) {
              runs.append((from, until, EventLoop.monotonicNow()))
              if runs.count == 3 { continuation.resume(returning: runs) }
            }
            until = EventLoop.monotonicNow() + delay * 1_000_000
          }
        }
      }
      #expect(runs.allSatisfy { $0.at >= $0.dueFrom })
      #expect(zip(runs, runs.dropFirst()).allSatisfy { $0.dueFrom <= $1.dueUntil })
    }
  }

  @Test func readinessOfAnUnregisteredDescriptorIsDropped() async throws {
    // Both descriptors are ready in the same turn; the first one notified unregisters the other, and a third takes the
    // slot: the event that was fetched already must not reach it.
    try await withRunningLoop { loop in
      let told: [String] = await loop.perform {
        var told: [String] = []
        var pipes: [[CInt]] = []
        for _ in 0..<3 {
          var ends: [CInt] = [0, 0]
          pipe2(&ends, O_CLOEXEC)
          pipes.append(ends)
        }
        var registrations: [EventLoop.Registration] = []
        var handlers: [ReadingHandler] = []
        for index in 0..<2 {
          handlers.append(
            ReadingHandler(pipes[index][0]) { _ in
              told.append("one of two")
              loop.unregister(registrations[1 - index])
              let third = ReadingHandler(pipes[2][0]) { _ in told.append("third") }
              if let registration = try? loop.register(pipes[2][0], for: .readable, handler: third) {
                registrations.append(registration)
              }
            })
          if let registration = try? loop.register(pipes[index][0], for: .readable, handler: handlers[index]) {
            registrations.append(registration)
          }
          write(pipes[index][1], "x", 1)
        }
        // Still inside a turn: deliver both by running one more turn by hand.
        loop.runOneTurn()
        for registration in registrations { loop.unregister(registration) }
        for ends in pipes { ends.forEach { close($0) } }
        return told
      }
      #expect(told == ["one of two"])
    }
  }

  @Test func endOfTurnRunsLastAndCanRequestAnotherTurn() async throws {
    let loop = try EventLoop(name: "test")
    var turns = 0
    loop.endOfTurn = {
      turns += 1
      if turns == 3 { loop.stop() }
      return 0
    }
    loop.execute {}
    loop.run()
    #expect(turns == 3)
  }

  @Test func aDelayedTurnComesAtItsTime() throws {
    let loop = try EventLoop(name: "test")
    var times: [UInt64] = []
    loop.endOfTurn = {
      times.append(EventLoop.monotonicNow())
      if times.count == 3 { loop.stop() }
      return 3_000_000
    }
    loop.execute {}
    loop.run()
    #expect(zip(times, times.dropFirst()).allSatisfy { $1 - $0 >= 3_000_000 })
  }
}

@Suite struct OwnedDescriptorTests {
  @Test func aDescriptorIsClosedWithItsOwner() {
    var ends: [CInt] = [0, 0]
    #expect(socketpair(AF_UNIX, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0, &ends) == 0)
    do { _ = OwnedDescriptor(ends[1]) }
    var byte: UInt8 = 0
    #expect(read(ends[0], &byte, 1) == 0)  // the end, because the other end is closed; its number may be reused
    close(ends[0])
  }

  @Test func aReleasedDescriptorStaysOpen() {
    var ends: [CInt] = [0, 0]
    #expect(socketpair(AF_UNIX, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0, &ends) == 0)
    let kept = OwnedDescriptor(ends[1]).release()
    #expect(kept == ends[1])
    #expect(write(kept, "x", 1) == 1)
    ends.forEach { close($0) }
  }
}
