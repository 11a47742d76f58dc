import Dispatch
import Glibc
import StreamRuntime
import Synchronization
import TestSupport
import Testing

@testable import MappedLog

/// Readers in other threads, each with its own mapping, beside a writer.
@Suite(.timeLimit(.minutes(20))) struct ConcurrentReaderTests {
  /// The events that a run publishes.
  private static let eventCount: UInt64 = 100_000

  /// Runs bodies on threads of their own.
  private func onThreads(_ bodies: [@Sendable () -> Void]) async {
    await withTaskGroup(of: Void.self) { group in
      for (index, body) in bodies.enumerated() {
        group.addTask {
          await withCheckedContinuation { continuation in
            DispatchQueue(label: "thread \(index)").async {
              body()
              continuation.resume()
            }
          }
        }
      }
    }
  }

  /// No event is torn, none is repeated, and every one is read or counted as missed.
  @Test(arguments: [(16, 4096), (4096, 1 << 20)]) func noReadIsTorn(events: Int, bytes: Int) async throws {
    let region = try makeRegion(events: events, bytes: bytes)
    let read = Atomic<UInt64>(0)
    let readers = (0..<2).map { _ in
      { @Sendable in
        let reader = MapReader(region, from: 100)
        var next = UInt64(100)
        while true {
          switch reader.next() {
          case .event(let event):
            #expect(event.id == next && event.time == event.id * 10)
            if event.data != Records.data(event.id, count: Int(event.id % 90)) { Issue.record("torn: \(event)") }
            next += 1
            read.add(1, ordering: .relaxed)
          case .gap(let count): next += count
          case .nothing(.live): sched_yield()
          case .nothing:
            #expect(next == 100 + Self.eventCount)
            return
          case .damage(let fault):
            _ = Issue.record("damage: \(fault)")
            return
          }
        }
      }
    }
    await onThreads(
      readers + [
        {
          while region.end < 100 + Self.eventCount {
            let count = min(1 + region.end % 7, 100 + Self.eventCount - region.end)
            Records.publish((0..<count).map { Int((region.end + $0) % 90) }, to: region)
          }
          region.end(as: .ended)
        }
      ])
    #expect(read.load(ordering: .relaxed) > 0)
  }

  /// A reader that waits is woken for each event, with a waiting page and without.
  @Test(arguments: [true, false]) func noWakeUpIsLost(hasPage: Bool) async throws {
    let region = try makeRegion(events: 16, bytes: 4096)
    let page = try WaitingPage(name: "test")
    let count = UInt64(2_000)
    let readPosition = Atomic<UInt64>(100)
    await onThreads([
      {
        let reader = MapReader(region, from: 100)
        let word = hasPage ? WaitingWord(page.descriptor) : nil
        while true {
          switch reader.next() {
          case .event: readPosition.store(reader.position, ordering: .releasing)
          case .nothing(.live):
            let start = EventLoop.monotonicNow()
            // Longer than any event is late: a reader that is not woken sleeps until then.
            _ = reader.wait(noting: word, milliseconds: 60_000)
            guard EventLoop.monotonicNow() - start < 55_000_000_000 else {
              _ = Issue.record("a wake-up was lost")
              return
            }
          case .nothing: return
          case let other:
            _ = Issue.record("\(other)")
            return
          }
        }
      },
      {
        var random = SeededGenerator(1)
        for position in 100..<100 + count {
          // The reader has just read, is about to wait, or waits.
          while readPosition.load(ordering: .acquiring) < position { sched_yield() }
          for _ in 0..<Int.random(in: 0...200, using: &random) { _ = readPosition.load(ordering: .relaxed) }
          if position % 64 == 0 { usleep(200) }
          Records.publish([8], to: region)
          region.wake(hasPage ? [page] : [], wakesAlways: !hasPage)
        }
        region.end(as: .replaced)
        region.wake(hasPage ? [page] : [], wakesAlways: !hasPage)
      },
    ])
    #expect(readPosition.load(ordering: .relaxed) == 100 + count)
  }
}
