import Events
import Reactive
import StreamRuntime
import TestSupport
import Testing

@testable import StreamSources

@Suite(.timeLimit(.minutes(10))) struct ValueUnionTests {
  private let reports = Shared<[SourceReport]>([])
  private let unrouted = Shared(0)

  private func union(on thread: SourceThread) -> ValueUnion {
    var context = SourceContext(on: thread) { _ in }
    context.unrouted = { [unrouted] count in unrouted.withLock { $0 += count } }
    return ValueUnion(in: context)
  }

  private func source(_ value: String, of union: ValueUnion, on thread: SourceThread) -> Source<UnionValue> {
    UnionValue(value, of: union).source(
      on: thread, report: { [reports] report in reports.withLock { $0.append(report) } })
  }

  /// Routes the texts, each with its key, in one turn.
  private func pass(_ parts: [(String, String)], to union: ValueUnion, on thread: SourceThread) async {
    await withCheckedContinuation { continuation in
      thread.loop.execute {
        for (text, key) in parts {
          let bytes = Array(text.utf8)
          union.route(bytes.span, key.isEmpty ? nil : Array(key.utf8))
        }
        union.deliver()
        continuation.resume()
      }
    }
  }

  @Test func partsGoToTheStreamsOfTheirValuesAndTheOthersAreCounted() async throws {
    try await withSourceThread { thread in
      let union = union(on: thread)
      let (one, other) = (Taker(.unlimited), Taker(.unlimited))
      source("A", of: union, on: thread).subscribe(one)
      source("7", of: union, on: thread).subscribe(other)
      await pass([("1", "sA"), ("2", "sB"), ("3", "s7"), ("4", "n7e1"), ("5", ""), ("6", "sA")], to: union, on: thread)
      #expect(await one.next(1) == ["1|6"])
      #expect(await other.next(1) == ["3|4"] || unrouted.withLock { $0 } > 0)
      #expect(unrouted.withLock { $0 } == 2)
      one.cancel()
      other.cancel()
      await pass([("1", "sA")], to: union, on: thread)
      #expect(unrouted.withLock { $0 } == 3)
    }
  }

  @Test func aStreamWithoutDemandKeepsTheNewestPartsAndTellsTheLoss() async throws {
    try await withSourceThread { thread in
      let union = union(on: thread)
      let losses = Shared<[EventLoss?]>([])
      let (slow, fast) = (Taker(.max(1)), Taker(.unlimited))
      let noted = source("A", of: union, on: thread).handleEvents(receiveOutput: { batch in
        losses.withLock { $0.append(batch.loss) }
      })
      noted.subscribe(slow)
      source("B", of: union, on: thread).subscribe(fast)
      await pass([("first", "sA")], to: union, on: thread)
      #expect(await slow.next(1) == ["first"])
      for number in 0..<2000 { await pass([("\(number)", "sA"), ("b", "sB")], to: union, on: thread) }
      #expect(fast.count == 2000 && slow.count == 1)
      slow.request(.max(1))
      #expect(await slow.next(1) == [(976..<2000).map(String.init).joined(separator: "|")])
      #expect(losses.withLock { $0 } == [nil, .known(976)])
      #expect(reports.withLock { $0.contains { if case .missed(.known(976), _) = $0 { true } else { false } } })
      // One event is kept however large it is.
      let large = String(repeating: "x", count: 300_000)
      await pass([("a", "sA"), (large, "sA")], to: union, on: thread)
      slow.request(.max(1))
      #expect(await slow.next(1) == [large])
      slow.cancel()
      fast.cancel()
    }
  }
}
