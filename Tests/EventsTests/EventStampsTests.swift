import Events
import Testing

@Suite struct EventStampsTests {
  private let events: [[UInt8]] = [[1], [], [2, 3, 4], [5, 6], []]

  /// Ids from 100 on, times from 10 on.
  private func batch(_ position: [UInt8]? = [7]) throws -> EventBatch {
    var batch = EventBatch(events)
    batch.checkpoint = Checkpoint([1])
    #expect(batch.setStamps(try #require(EventStamps(firstID: 100, times: [10, 11, 12, 13, 14], position: position))))
    return batch
  }

  private func ids(_ batch: EventBatch) -> [UInt64]? { batch.stamps.map { batch.indices.map($0.id) } }
  private func times(_ batch: EventBatch) -> [UInt64]? { batch.stamps.map { batch.indices.map($0.time) } }

  @Test func aBatchHasAnIdAndATimeForEachEvent() throws {
    let batch = try batch()
    #expect(Array(batch) == events && batch.checkpoint == Checkpoint([1]) && batch.stamps?.position == [7])
    #expect(ids(batch) == [100, 101, 102, 103, 104] && times(batch) == [10, 11, 12, 13, 14])
    #expect(EventBatch(events).stamps == nil)
    var same = EventBatch(events)
    #expect(same.setStamps(try #require(EventStamps(firstID: 7, time: 9))))
    #expect(ids(same) == [7, 8, 9, 10, 11] && times(same) == [9, 9, 9, 9, 9] && same.stamps?.position == nil)
  }

  @Test func stampsThatDoNotFitAreRefused() throws {
    var batch = EventBatch(events)
    for count in [0, 1, 4, 6] {
      #expect(!batch.setStamps(try #require(EventStamps(firstID: 1, times: [UInt64](repeating: 3, count: count)))))
    }
    for id in [.max, .max - 4] as [UInt64] {
      #expect(!batch.setStamps(try #require(EventStamps(firstID: id, time: 1))))
    }
    #expect(batch == EventBatch(events))
    #expect(batch.setStamps(try #require(EventStamps(firstID: .max - 5, time: .max))))
    #expect(ids(batch)?.last == UInt64.max - 1)
    #expect(EventStamps(firstID: 1, time: 1, position: []) == nil)
    #expect(EventStamps(firstID: 1, time: 1, position: [UInt8](repeating: 1, count: 105)) == nil)
    #expect(EventStamps(firstID: 1, times: [], position: [UInt8](repeating: 1, count: 104)) != nil)
  }

  @Test func equalTimesAreEqualHoweverTheyAreGiven() throws {
    var (one, all, other) = (EventBatch(events), EventBatch(events), EventBatch(events))
    #expect(one.setStamps(try #require(EventStamps(firstID: 1, time: 5))))
    #expect(all.setStamps(try #require(EventStamps(firstID: 1, times: [5, 5, 5, 5, 5]))))
    #expect(other.setStamps(try #require(EventStamps(firstID: 2, time: 5))))
    #expect(one == all && one != other && one != EventBatch(events))
    var position = one
    #expect(position.setStamps(try #require(EventStamps(firstID: 1, time: 5, position: [1]))) && position != one)
  }

  @Test(arguments: 0...5, 0...5) func aPartHasTheStampsOfItsEvents(_ low: Int, _ high: Int) throws {
    guard low <= high else { return }
    let batch = try batch()
    let part = EventBatch(batch[low..<high])
    guard low < high || high == 5 else { return #expect(part == EventBatch()) }
    #expect(Array(part) == Array(events[low..<high]) && part.stamps?.firstID == 100 + UInt64(low))
    #expect(times(part) == (low..<high).map { 10 + UInt64($0) })
    #expect(part.stamps?.position == (high == 5 ? [7] : nil) && part.checkpoint == (high == 5 ? Checkpoint([1]) : nil))
  }

  @Test func eventsAreRemovedAtBothEnds() throws {
    var batch = try batch()
    batch.removeFirst()
    #expect(ids(batch) == [101, 102, 103, 104] && times(batch) == [11, 12, 13, 14] && batch.stamps?.position == [7])
    batch.removeLast(2)
    #expect(ids(batch) == [101, 102] && Array(batch) == [[], [2, 3, 4]])
    #expect(batch.stamps?.position == nil && batch.checkpoint == nil)
    batch.removeAll(keepingCapacity: true)
    #expect(batch == EventBatch())
    batch.append([1])
    #expect(batch == EventBatch([[1]]))
  }

  @Test func aBatchIsAppendedToOneThatItContinues() throws {
    let batch = try batch()
    for middle in 0...5 {
      let (head, tail) = (EventBatch(batch[..<middle]), EventBatch(batch[middle...]))
      #expect(tail.continues(head) && head + tail == batch)
    }
    var next = EventBatch([[9]])
    #expect(next.setStamps(try #require(EventStamps(firstID: 105, time: 10))))
    #expect(next.continues(batch) && !batch.continues(next) && !EventBatch(events).continues(batch))
    #expect(!next.continues(EventBatch(events)) && next.continues(EventBatch()))
    let both = batch + next
    #expect(ids(both)?.last == 105 && times(both)?.last == 10 && both.stamps?.position == [7])
    #expect(both.checkpoint == Checkpoint([1]))
    var empty = EventBatch()
    #expect(empty.setStamps(try #require(EventStamps(firstID: 105, time: 0, position: [8]))))
    #expect((batch + empty).stamps?.position == [8] && Array(batch + empty) == events)
  }

  @Test func filterKeepsTheStampsOfAllEvents() throws {
    let batch = try batch()
    #expect(batch.filter { _ in true } == batch)
  }

  @Test func anIdThatWouldChangeEndsTheProgram() async {
    await #expect(processExitsWith: .failure) {
      var batch: EventBatch = [[1], [2]]
      guard let stamps = EventStamps(firstID: 1, time: 1), batch.setStamps(stamps) else { return }
      batch.append([3])
    }
    await #expect(processExitsWith: .failure) {
      var batch: EventBatch = [[1], [2]]
      guard let stamps = EventStamps(firstID: 1, time: 1), batch.setStamps(stamps) else { return }
      _ = batch.filter { $0 == [2] }
    }
    await #expect(processExitsWith: .failure) {
      var batch: EventBatch = [[1], [2]]
      guard let stamps = EventStamps(firstID: 1, time: 1), batch.setStamps(stamps) else { return }
      _ = batch + batch
    }
    await #expect(processExitsWith: .failure) {
      var batch: EventBatch = [[1], [2], [3]]
      guard let stamps = EventStamps(firstID: 1, time: 1), batch.setStamps(stamps) else { return }
      batch.remove(at: 1)
    }
    await #expect(processExitsWith: .failure) {
      var batch: EventBatch = [[1], [2]]
      guard let stamps = EventStamps(firstID: 1, time: 1), batch.setStamps(stamps) else { return }
      batch.replaceSubrange(1..<2, with: [[3]])
    }
    await #expect(processExitsWith: .failure) {
      var batch: EventBatch = [[1]]
      var other: EventBatch = [[2]]
      guard let stamps = EventStamps(firstID: 1, time: 1), other.setStamps(stamps) else { return }
      batch += other
    }
  }
}
