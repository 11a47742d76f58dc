import Events
import Testing

@Suite struct EventBatchTests {
  private let events: [[UInt8]] = [[1], [], [2, 3, 4], [5, 6], []]

  @Test func aBatchIsACollectionOfEvents() {
    let batch = EventBatch(events)
    #expect(Array(batch) == events)
    #expect(batch.count == 5 && batch.byteCount == 6 && batch.largestByteCount == 3)
    #expect(EventBatch().isEmpty && EventBatch().largestByteCount == 0)
  }

  @Test func appendingABatchEqualsAppendingItsEvents() {
    var whole = EventBatch(events)
    whole += EventBatch(events)
    var single = EventBatch()
    for event in events + events { event.withUnsafeBytes { single.append($0) } }
    #expect(whole == single)
    #expect(whole == EventBatch(events + events))
  }

  @Test(arguments: 0...5, 0...5) func replacingWorksAsInAnArray(_ low: Int, _ high: Int) {
    guard low <= high else { return }
    for new in [[], [[7]], [[], [8, 9], [10]]] as [[[UInt8]]] {
      var (batch, array) = (EventBatch(events), events)
      batch.replaceSubrange(low..<high, with: new)
      array.replaceSubrange(low..<high, with: new)
      #expect(Array(batch) == array)
      #expect(batch == EventBatch(array))
    }
  }

  @Test func aLossStaysBeforeTheFirstEvent() {
    var batch = EventBatch(events)
    batch.loss = .known(3)
    batch.checkpoint = Checkpoint([1])
    #expect(batch != EventBatch(events) && batch.loss == .known(3) && !batch.isBlank)
    #expect(EventBatch(batch[0..<2]).loss == .known(3) && EventBatch(batch[1...]).loss == nil)
    #expect(batch.filter { _ in false }.loss == .known(3))
    batch.append([9])
    #expect(batch.loss == .known(3))
    var next = EventBatch()
    next.loss = .known(4)
    batch += next
    #expect(batch.loss == .known(7))
    next.loss = .possible
    batch += next
    #expect(batch.loss == .known(7))
    next.loss = .unknown
    batch += next
    #expect(batch.loss == .unknown)
    batch.loss = nil
    batch.checkpoint = nil
    #expect(batch == EventBatch(events + [[9]]) && EventBatch().isBlank)
  }

  @Test func withUnsafeBytesStopsWhenTheBodyReturnsFalse() {
    var seen: [[UInt8]] = []
    EventBatch(events).withUnsafeBytes(of: 1..<5) { event in
      seen.append([UInt8](event))
      return seen.count < 3
    }
    #expect(seen == [[], [2, 3, 4], [5, 6]])
  }

  // MARK: Checkpoints

  private let one = Checkpoint([1])
  private let two = Checkpoint([2])

  /// All events, and the first checkpoint.
  private var batch: EventBatch {
    var batch = EventBatch(events)
    batch.checkpoint = one
    return batch
  }

  @Test func aCheckpointHasALimit() {
    #expect(Checkpoint([UInt8](repeating: 1, count: 9216))?.bytes.count == 9216)
    #expect(Checkpoint([UInt8](repeating: 1, count: 9217)) == nil)
  }

  @Test func onlyASliceWithTheLastEventHasTheCheckpoint() {
    #expect(EventBatch(batch[2...]).checkpoint == one && EventBatch(batch[2...]) == EventBatch(batch.suffix(3)))
    #expect(EventBatch(batch[..<4]).checkpoint == nil && EventBatch(batch.prefix(5)) == batch)
    #expect(EventBatch(batch[1..<3]) == EventBatch(events[1..<3]))
    #expect(EventBatch(batch.dropFirst()).checkpoint == one && EventBatch(batch.dropLast()).checkpoint == nil)
    var shorter = batch
    shorter.removeLast()
    #expect(shorter.checkpoint == nil)
    shorter = batch
    shorter.removeFirst()
    #expect(shorter.checkpoint == one)
  }

  @Test func aBatchKeepsItsCheckpointWhenEventsAreRemoved() {
    #expect(batch.filter { $0.isEmpty }.checkpoint == one)
    #expect(batch.filter { _ in false }.checkpoint == one && batch.filter { _ in false }.isEmpty)
  }

  @Test func appendingABatchTakesItsCheckpoint() {
    var newer = EventBatch(events)
    newer.checkpoint = two
    #expect((batch + newer).checkpoint == two)
    #expect((batch + EventBatch(events)).checkpoint == one)
    #expect((batch + newer.dropLast()).checkpoint == one)
    var empty = EventBatch()
    empty.checkpoint = two
    #expect((batch + empty).checkpoint == two && (batch + empty) != batch)
    var more = batch
    more.append([9])
    #expect(more.checkpoint == one)
  }
}
