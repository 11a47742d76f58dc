import Events
import Testing

@Suite struct EventBatchTests {
  private let events: [[UInt8]] = [[1], [], [2, 3, 4], [5, 6], []]

  @Test func itIsACollectionOfItsEvents() {
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

  @Test func bytesAreShownInPlaceUntilThatIsEnough() {
    var seen: [[UInt8]] = []
    EventBatch(events).withUnsafeBytes(of: 1..<5) { event in
      seen.append([UInt8](event))
      return seen.count < 3
    }
    #expect(seen == [[], [2, 3, 4], [5, 6]])
  }
}
