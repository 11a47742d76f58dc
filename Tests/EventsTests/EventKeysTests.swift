import Events
import Testing

@Suite struct EventKeysTests {
  private let events: [[UInt8]] = [[1], [], [2, 3], [4]]
  private let all = [EventKey([1]), nil, EventKey([2, 2], isTombstone: true), EventKey([3, 3, 3])]

  private func keyed(_ events: [[UInt8]], _ all: [EventKey?]) -> EventBatch {
    var batch = EventBatch(events)
    var keys = EventKeys()
    for key in all { keys.append(key) }
    batch.setKeys(keys)
    return batch
  }

  private var batch: EventBatch { keyed(events, all) }

  private func keys(_ batch: EventBatch) -> [EventKey?]? {
    batch.keys.map { keys in (0..<keys.count).map { keys[$0] } }
  }

  @Test func aKeyHas1To1025Bytes() {
    #expect(EventKey([]) == nil && EventKey([UInt8](repeating: 1, count: 1026)) == nil)
    #expect(EventKey([UInt8](repeating: 1, count: 1025)) != nil)
    var keys = EventKeys()
    for count in [0, 1026] { [UInt8](repeating: 1, count: count).withUnsafeBytes { keys.append($0) } }
    #expect(keys.count == 2 && keys[0] == nil && keys[1] == nil)
  }

  @Test func eachPartHasTheKeysOfItsEvents() {
    #expect(keys(batch) == all)
    for low in 0...4 {
      for high in low...4 {
        let part = EventBatch(batch[low..<high])
        #expect(keys(part) ?? [] == Array(all[low..<high]))
      }
    }
    for (index, key) in all.enumerated() {
      let bytes = batch.keys?.withKey(of: index) { bytes, _ in Array(bytes) }
      #expect(bytes == key?.bytes ?? [])
    }
  }

  @Test func encodedKeysReadAsTheyWereAndAnythingElseIsRefused() throws {
    let keys = try #require(batch.keys)
    let encoded = keys.encoded
    #expect(EventKeys(encoded: encoded, count: 4, definition: 0) == keys)
    #expect(encoded.count == keys.encodedByteCount(0..<4) && keys.encodedByteCount(1..<3) == 6)
    #expect(EventKeys(encoded: encoded, count: 4, definition: 1) != keys)
    for count in 0..<encoded.count {
      #expect(EventKeys(encoded: Array(encoded[..<count]), count: 4, definition: 0) == nil)
    }
    for count in [0, 1, 3, 5, 1 << 40] { #expect(EventKeys(encoded: encoded, count: count, definition: 0) == nil) }
    #expect(EventKeys(encoded: encoded + [0], count: 4, definition: 0) == nil)
    #expect(EventKeys(encoded: [0, 1], count: 1, definition: 0) == nil, "a tombstone without a key")
    let large = [UInt8](repeating: 1, count: 1026)
    #expect(EventKeys(encoded: [8, 4] + large, count: 1, definition: 0) == nil)
    #expect(EventKeys(encoded: [8, 2] + large.dropLast(), count: 1, definition: 0)?[0]?.bytes.count == 1025)
  }

  @Test func keysByAnotherDefinitionAreNotJoined() throws {
    var other = EventKeys(definition: 9)
    for key in all { other.append(key) }
    var joined = batch
    var added = EventBatch(events)
    added.setKeys(other)
    joined += added
    #expect(keys(joined) == all + [nil, nil, nil, nil] && joined.keys?.definition == 0)
    var late = EventBatch([[7]])
    late += added
    #expect(keys(late) == [nil] + all && late.keys?.definition == 9)
    #expect(late.filter { _ in true }.keys?.definition == 9)
  }

  @Test func joinedAndAppendedEventsHaveTheirOwnKeys() {
    var joined = batch
    joined += batch
    #expect(keys(joined) == all + all)
    joined.append([9])
    joined += EventBatch([[8]])
    #expect(keys(joined) == all + all + [nil, nil])
    var late = EventBatch([[7]])
    late += batch
    #expect(keys(late) == [nil] + all)
    #expect(EventBatch(events).keys == nil)
  }

  @Test func onlyTheKeysOfAppendedEventsAreReadLater() throws {
    var batch = keyed([[1], [2]], [EventKey([1]), nil])
    batch.append(Array("{\"k\":3}".utf8))
    let unread = try #require(batch.keys)
    #expect((0..<3).map { unread.isUnread($0) } == [false, false, true] && unread[2] == nil)
    #expect(EventKeys(encoded: unread.encoded, count: 3, definition: 0).map { !$0.isUnread(2) && $0[2] == nil } == true)
    var reader = try #require(EventKeyReader(KeyDefinition(key: ".k")))
    let read = reader.keys(of: batch)
    #expect(read[0] == EventKey([1]) && read[1] == nil && read[2]?.isTombstone == false && !read.isUnread(2))
    #expect(reader.malformedCount == 0 && reader.keys(of: batch, definition: 1)[0] == nil)
  }

  @Test func keysStayWithTheEventsThatAreKept() {
    #expect(keys(batch.filter { !$0.isEmpty }) == [all[0], all[2], all[3]])
    #expect(batch.filter { _ in false }.keys == nil)
    var replaced = batch
    replaced.replaceSubrange(1..<3, with: [[5], [6], [7]])
    #expect(keys(replaced) == [all[0], nil, nil, nil, all[3]])
    replaced.removeFirst()
    replaced.checkpoint = Checkpoint([1])
    #expect(keys(replaced) == [nil, nil, nil, all[3]] && replaced.checkpoint == Checkpoint([1]))
  }

  @Test func keysAndStampsBelongTogether() throws {
    var batch = batch
    let isSet = batch.setStamps(try #require(EventStamps(firstID: 7, time: 1)))
    #expect(isSet && keys(batch) == all && batch.stamps?.firstID == 7)
    let part = EventBatch(batch[2...])
    #expect(keys(part) == Array(all[2...]) && part.stamps?.firstID == 9)
    batch.removeFirst(2)
    #expect(batch == part)
  }
}
