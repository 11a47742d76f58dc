import StreamRuntime
import Events
import Glibc
import RSocket
import Reactive
import Testing

@testable import ReplayLog
@testable import StreamServer

/// Publishers with names and numbered values: each value is stored once.
@Suite struct NamedPublishingTests {
  /// The confirmation that a named publisher received.
  private enum News: Equatable {
    case greeting(committed: UInt64, next: UInt64)
    case committed(UInt64)
    case granted(UInt32)
    case complete
    case error(ErrorCode, String)
  }

  private static let setup = Setup(metadataMIMEType: MetadataFormat.composite.mimeType)

  private func open(
    _ client: WireClient, _ stream: String = "s", as name: String = "p", from number: UInt64 = 1, id: UInt32 = 1,
    demand: UInt32 = Credit.unlimited
  ) throws {
    let entry = try PublisherEntry(name: Array(name.utf8), firstNumber: number)
    let payload = Payload(metadata: try MetadataFormat.composite.metadata(route: stream, publisher: entry), data: [])
    client.send(
      .request(StreamID(id), .channel, initialRequest: demand, payload, follows: false, isComplete: false))
  }

  private func news(_ client: WireClient, id: UInt32 = 1) throws -> News {
    func number(_ bytes: ArraySlice<UInt8>) -> UInt64 { bytes.reduce(0) { $0 << 8 | UInt64($1) } }
    switch try client.receive() {
    case .payload(StreamID(id), let payload, follows: false, isComplete: false, isNext: true)?:
      guard payload.data.count == 16 else { return .committed(number(payload.data[...])) }
      return .greeting(committed: number(payload.data[..<8]), next: number(payload.data[8...]))
    case .payload(StreamID(id), _, follows: false, isComplete: true, isNext: false)?: return .complete
    case .requestN(StreamID(id), let count)?: return .granted(count)
    case .error(StreamID(id), let code, let message)?: return .error(code, message)
    case let other:
      Issue.record("not for a named publisher: \(String(describing: other))")
      throw WireClient.Silence()
    }
  }

  /// Waits until everything up to a number is committed. Values of one write may be committed in several steps.
  private func committed(_ wanted: UInt64, _ client: WireClient, sourceLocation: SourceLocation = #_sourceLocation)
    throws
  {
    var last: UInt64 = 0
    while last < wanted {
      guard case .committed(let number) = try news(client), number > last else {
        Issue.record("not committed up to \(wanted), but \(last)", sourceLocation: sourceLocation)
        return
      }
      last = number
    }
    #expect(last == wanted, sourceLocation: sourceLocation)
  }

  private func events(_ harness: ServerHarness, _ count: Int, of stream: String = "s") throws -> [[UInt8]] {
    let reader = try WireClient.ready(harness.path)
    reader.subscribe(stream, credit: 1000, options: #"{"from":0}"#)
    let events = try reader.events(count)
    #expect(try reader.isSilent())
    return events
  }

  @Test func aReconnectedPublisherReceivesItsNextNumberAndRepeatsNothing() async throws {
    try await withServer { harness in
      try harness.addPublished("s")
      do {
        let first = try WireClient.ready(harness.path, Self.setup)
        try open(first)
        #expect(try news(first) == .greeting(committed: 0, next: 1))
        guard case .granted = try news(first) else { return #expect(Bool(false), "no credit") }
        first.value([1], [2], [3])
        try committed(3, first)
      }
      harness.eventually { harness.server.statistics.connections == 0 }
      let second = try WireClient.ready(harness.path, Self.setup)
      try open(second, from: 2)  // 2 and 3 were not confirmed to it
      #expect(try news(second) == .greeting(committed: 3, next: 4))
      guard case .granted = try news(second) else { return #expect(Bool(false), "no credit") }
      second.value([4], isComplete: true)
      try committed(4, second)
      #expect(try news(second) == .complete)
      #expect(try events(harness, 4) == [[1], [2], [3], [4]])
    }
  }

  @Test func namesAreIndependentOfEachOtherAndOfOtherStreams() async throws {
    try await withServer { harness in
      try harness.addPublished("s")
      try harness.addPublished("t")
      let client = try WireClient.ready(harness.path, Self.setup)
      for (index, (stream, name)) in [("s", "p"), ("s", "q"), ("t", "p")].enumerated() {
        let id = UInt32(index * 2 + 1)
        try open(client, stream, as: name, id: id)
        #expect(try news(client, id: id) == .greeting(committed: 0, next: 1))
        guard case .granted = try news(client, id: id) else { return #expect(Bool(false), "no credit") }
        client.value([UInt8(index)], id: id)
        #expect(try news(client, id: id) == .committed(1))
      }
      #expect(try events(harness, 2) == [[0], [1]])
    }
  }

  @Test func aSecondPublisherOfTheSameNameIsCanceled() async throws {
    try await withServer { harness in
      try harness.addPublished("s")
      let client = try WireClient.ready(harness.path, Self.setup)
      try open(client)
      #expect(try news(client) == .greeting(committed: 0, next: 1))
      guard case .granted = try news(client) else { return #expect(Bool(false), "no credit") }
      try open(client, id: 3)
      guard case .error(.canceled, _) = try news(client, id: 3) else { return #expect(Bool(false), "no error") }
      client.send(.cancel(StreamID(1)))
      try open(client, id: 5)
      #expect(try news(client, id: 5) == .greeting(committed: 0, next: 1))
    }
  }

  @Test func confirmationsStayWithinTheirCredit() async throws {
    try await withServer { harness in
      try harness.addPublished("s")
      let client = try WireClient.ready(harness.path, Self.setup)
      try open(client, demand: 1)
      #expect(try news(client) == .greeting(committed: 0, next: 1))
      guard case .granted = try news(client) else { return #expect(Bool(false), "no credit") }
      client.value([1], [2])
      #expect(try client.isSilent())
      client.send(.requestN(StreamID(1), 1))
      try committed(2, client)
      client.value([3], isComplete: true)
      #expect(try news(client) == .complete)
    }
  }

  @Test func heldValuesAreNeitherConfirmedNorTakenTwice() async throws {
    try await withServer { harness in
      try harness.addPublished("s") {
        $0.type = "application/octet-stream"  // in JSON 9, a tab, is no event
        $0.overflow = .block(timeout: nil)
        $0.limits = .init(events: 4, bytes: 8 << 20)
      }
      let slow = try WireClient.ready(harness.path)
      slow.subscribe("s", credit: 1)
      harness.eventually { harness.server.statistics.subscribers == 1 }
      do {
        let first = try WireClient.ready(harness.path, Self.setup)
        try open(first)
        #expect(try news(first) == .greeting(committed: 0, next: 1))
        #expect(try news(first) == .granted(4))
        first.value([1], [2], [3], [4])
        var last = try news(first)
        while case .granted(let count) = last { if count > 0 { last = try news(first) } }
        first.value([5], [6])  // some of it waits
        _ = try first.isSilent()
      }
      harness.eventually { harness.server.statistics.connections == 1 }
      let second = try WireClient.ready(harness.path, Self.setup)
      try open(second, from: 1)
      guard case .greeting(let committed, let next) = try news(second) else {
        return #expect(Bool(false), "no greeting")
      }
      #expect(committed < 7 && next <= 7 && committed < next)
      slow.send(.requestN(StreamID(1), 1000))
      var values = Array(next...9).map { [UInt8($0)] }
      while !values.isEmpty {
        guard case .granted(let count) = try news(second) else { continue }
        second.values(Array(values.prefix(Int(count))))
        values.removeFirst(min(Int(count), values.count))
      }
      second.complete()
      while try news(second) != .complete {}
      #expect(try slow.events(9) == (1...9).map { [UInt8($0)] })
      #expect(try slow.isSilent())
    }
  }

  @Test func theLogStoresTheLastNumberOfEachName() async throws {
    let limits = EventLog.Limits(events: 100, bytes: 1 << 20)
    let log = try #require(EventLog(name: "s", limits: limits))
    for (round, next) in [(1, 1), (2, 3)] as [(UInt8, UInt64)] {
      try await withServer { harness in
        let publishSource = PublishSource()
        try harness.server.add(
          StreamConfiguration(name: "s", limits: limits), log: log,
          source: publishSource.setFailureType(to: StreamFailure.self), publishSource: publishSource)
        let client = try WireClient.ready(harness.path, Self.setup)
        try open(client)
        #expect(try news(client) == .greeting(committed: next - 1, next: next))
        guard case .granted = try news(client) else { return #expect(Bool(false), "no credit") }
        client.value([round], [round], isComplete: true)
        try committed(next + 1, client)
        #expect(try news(client) == .complete)
        if round == 2 { #expect(try events(harness, 4) == [[1], [1], [2], [2]]) }
      }
    }
  }

  @Test func numbersContinueAfterAHandover() async throws {
    let next = try ServerHarness(restores: true)
    try await withServer { first in
      for harness in [first, next] { try harness.addPublished("s") }
      let client = try WireClient.ready(first.path, Self.setup)
      try open(client, from: 5)
      #expect(try news(client) == .greeting(committed: 0, next: 5))
      guard case .granted = try news(client) else { return #expect(Bool(false), "no credit") }
      client.value([5], [6])
      try committed(6, client)
      try await first.handOver(to: next)
      client.value([7], isComplete: true)
      var last = try news(client)
      while case .granted = last { last = try news(client) }
      #expect(last == .committed(7))
      #expect(try news(client) == .complete)
    }
    await next.stop()
  }

  /// A request with the limit as its first number still learns what is confirmed.
  @Test(arguments: [1, LargeValue.leastByteCount]) func aValueWhoseNumberIsTheLimitIsRefused(byteCount: Int)
    async throws
  {
    try await withServer { harness in
      try harness.addPublished("s") { $0.limits = .init(events: 10, bytes: 16 << 20) }
      let limit = PublisherEntry.numberLimit
      let client = try WireClient.ready(harness.path, Self.setup)
      try open(client, from: limit - 1, demand: 1)
      #expect(try news(client) == .greeting(committed: 0, next: limit - 1))
      guard case .granted = try news(client) else { return #expect(Bool(false), "no credit") }
      client.value([1], [UInt8](repeating: 2, count: byteCount))
      #expect(
        try news(client) == .error(.invalid, "value \(limit): the numbers of a publisher's values are below \(limit)"))
      try open(client, from: limit, id: 3)
      #expect(try news(client, id: 3) == .greeting(committed: limit - 1, next: limit))
      #expect(try events(harness, 1) == [[1]])
    }
  }

  @Test func invalidPublisherEntriesAreRejected() async throws {
    try await withServer { harness in
      try harness.addPublished("s") { $0.limits = .init(events: 10, bytes: 4096) }
      let client = try WireClient.ready(harness.path, Self.setup)
      let route = try MetadataFormat.composite.metadata(route: "s")
      func entry(_ content: [UInt8]) -> [UInt8] {
        let type = Array(PublisherEntry.mimeType.utf8)
        return [UInt8(type.count - 1)] + type + [0, 0, UInt8(content.count)] + content
      }
      let number: [UInt8] = [0, 0, 0, 0, 0, 0, 0, 1]
      let cases: [([UInt8], [UInt8], String)] = [
        (entry(number), [], "the publisher's entry has 8 bytes, too few"),
        (entry(number + Array(repeating: 0x61, count: 49)), [], "a publisher's name has 1 to 48 bytes, not 49"),
        (
          entry(Array(repeating: 0xff, count: 9)), [],
          "the number of a publisher's next value is 1 to 4611686018427387904, not 18446744073709551615"
        ),
        (
          entry(Array(repeating: 0, count: 9)), [],
          "the number of a publisher's next value is 1 to 4611686018427387904, not 0"
        ),
        (entry(number + [0x61]), [1], "the request of a named publisher must have no data"),
      ]
      for (index, (entry, data, sentence)) in cases.enumerated() {
        let id = UInt32(index * 2 + 1)
        client.send(
          .request(
            StreamID(id), .channel, initialRequest: 1, Payload(metadata: route + entry, data: data), follows: false,
            isComplete: false))
        #expect(try news(client, id: id) == .error(.invalid, sentence))
      }
      try open(client, from: 41, id: 21)
      #expect(try news(client, id: 21) == .greeting(committed: 0, next: 41))
      guard case .granted = try news(client, id: 21) else { return #expect(Bool(false), "no credit") }
      client.value([1], Array(repeating: 0, count: 5000), [2], id: 21)
      guard case .error(.invalid, let sentence) = try news(client, id: 21) else {
        return #expect(Bool(false), "no error")
      }
      #expect(sentence.hasPrefix("value 42: a value of 5000 bytes is too large"))
      #expect(try events(harness, 1) == [[1]])
    }
  }

  @Test func aUserWithThreeTimesTheFreeNamesIsRejectedAndAnotherIsNot() async throws {
    try await withServer { harness in
      try harness.addPublished("s")
      let client = try WireClient.ready(harness.path, Self.setup)
      for number in 0..<48 {
        let id = UInt32(number * 2 + 1)
        try open(client, as: "\(number)", id: id)
        #expect(try news(client, id: id) == .greeting(committed: 0, next: 1))
        guard case .granted = try news(client, id: id) else { return #expect(Bool(false), "no credit") }
      }
      let id = UInt32(PublisherMarks.capacity * 2 + 1)
      try open(client, as: "one more", id: id)
      let user = "uid \(geteuid())"
      #expect(
        try news(client, id: id) == .error(.rejected, "\(user) has 48 named publishers of \"s\", with 16 of 64 left"))
      client.send(.cancel(StreamID(1)))
      try open(client, as: "one more", id: id + 2)
      #expect(try news(client, id: id + 2) == .greeting(committed: 0, next: 1))
    }
  }

  @Test func onlyTheLastNamesAreStored() async throws {
    try await withServer { harness in
      try harness.addPublished("s")
      let client = try WireClient.ready(harness.path, Self.setup)
      func publish(as name: String, committed: UInt64, id: UInt32) throws {
        try open(client, as: name, id: id)
        #expect(try news(client, id: id) == .greeting(committed: committed, next: committed + 1))
        guard case .granted = try news(client, id: id) else { return #expect(Bool(false), "no credit") }
        client.value([1], isComplete: true, id: id)
        #expect(try news(client, id: id) == .committed(committed + 1))
        #expect(try news(client, id: id) == .complete)
      }
      for number in 0..<500 { try publish(as: "\(number)", committed: 0, id: UInt32(number * 2 + 1)) }
      try publish(as: "499", committed: 1, id: 1001)
      try publish(as: "436", committed: 1, id: 1003)
      try publish(as: "1", committed: 0, id: 1005)  // discarded
    }
    var marks = PublisherMarks()
    let user = ClientUser.uid(.max - 1)
    for number in 0..<10_000 {
      let digits = Array("\(number)".utf8)
      let name = digits + Array(repeating: 0xff, count: PublisherEntry.maximumNameBytes - digits.count)
      marks.set(PublisherKey(name, of: user), to: 1 << 62) { _ in false }
    }
    #expect(try #require(marks.checkpoint).bytes.count <= 4096, "more than earlier versions read")
  }

  @Test func gapsBetweenNumbersAreAccepted() async throws {
    try await withServer { harness in
      try harness.addPublished("s")
      let client = try WireClient.ready(harness.path, Self.setup)
      let jumps: [(from: UInt64, committed: UInt64)] = [
        (1 << 62 - 4, 0), (1, 1 << 62 - 4), (1 << 62 - 4, 1 << 62 - 3), (7, 1 << 62 - 2),
      ]
      for (index, jump) in jumps.enumerated() {
        let id = UInt32(index * 2 + 1)
        try open(client, from: jump.from, id: id)
        #expect(
          try news(client, id: id)
            == .greeting(committed: jump.committed, next: max(jump.from, jump.committed + 1)))
        guard case .granted = try news(client, id: id) else { return #expect(Bool(false), "no credit") }
        client.value([UInt8(index)], isComplete: true, id: id)
        #expect(try news(client, id: id) == .committed(max(jump.from, jump.committed + 1)))
        #expect(try news(client, id: id) == .complete)
      }
      #expect(try events(harness, 4) == [[0], [1], [2], [3]])
    }
  }

  @Test func aValueOverTheLimitIsReportedWithItsNumberAndEndsOnlyItsRequest() async throws {
    var limits = ServerLimits(workers: 1)
    limits.requestBytes = 1024
    try await withServer(limits) { harness in
      try harness.addPublished("s")
      let client = try WireClient.ready(harness.path, Self.setup)
      try open(client)
      #expect(try news(client) == .greeting(committed: 0, next: 1))
      guard case .granted = try news(client) else { return #expect(Bool(false), "no credit") }
      client.value([1])
      try committed(1, client)
      for isLast in [false, true] {
        let part = Payload(data: Array(repeating: 0, count: 600))
        client.send(.payload(StreamID(1), part, follows: !isLast, isComplete: false, isNext: true))
      }
      #expect(
        try news(client)
          == .error(.invalid, "value 2: its fragments exceed the limit of 1024 bytes for incomplete requests"))
      try open(client, from: 2, id: 3)
      #expect(try news(client, id: 3) == .greeting(committed: 1, next: 2))
      #expect(try events(harness, 1) == [[1]])
    }
  }

  /// Requests one batch.
  private final class Taker: Subscriber, Sendable {
    let batches = Locked<[EventBatch]>([])
    func receive(subscription: any Subscription) { subscription.request(.max(1)) }
    func receive(_ batch: EventBatch) -> Subscribers.Demand {
      batches.withLock { $0.append(batch) }
      return .none
    }
    func receive(completion: Subscribers.Completion<Never>) {}
  }

  @Test func valuesLostByAReplacedPipelineAreNotCounted() throws {
    let publishSource = PublishSource()
    publishSource.admitNamed(nil)
    let (gone, other) = (PublisherKey([1], of: .unknown), PublisherKey([2], of: .unknown))
    let (former, later) = (Taker(), Taker())
    publishSource.receive(subscriber: former)
    let queue = try publishSource.join(gone, firstNumber: 1) {}.queue
    _ = publishSource.take([[1], [2]], isComplete: false, from: queue)
    #expect(former.batches.withLock { $0.map { PublisherMarks($0.checkpoint)[gone] } } == [2])
    publishSource.leave(queue)
    let otherQueue = try publishSource.join(other, firstNumber: 1) {}.queue
    _ = publishSource.take([[9]], isComplete: false, from: otherQueue)
    publishSource.interrupt()
    publishSource.receive(subscriber: later)
    #expect(later.batches.withLock { $0.isEmpty })
    #expect(throws: PublishingObstacle.nameInUse) { try publishSource.join(gone, firstNumber: 1) {} }
    publishSource.admitNamed(nil)
    let batches = later.batches.withLock { $0 }
    #expect(batches.map { Array($0) } == [[[9]]])
    let marks = PublisherMarks(batches.first?.checkpoint)
    #expect(marks[gone] == nil && marks[other] == 1)
    let again = try publishSource.join(gone, firstNumber: 1) {}
    #expect(again.committed == 0 && again.next == 1)
  }

  @Test func restoredPublishersJoinInAnyOrderUpToTheLimitOfAll() throws {
    let source = PublishSource()
    let user = ClientUser.uid(1)
    for number in 0..<UInt8(PublisherMarks.capacity) {
      _ = try source.join(PublisherKey([number], of: user), firstNumber: 1, isRestored: true) {}
    }
    #expect(throws: PublishingObstacle.tooManyNames(count: 64, free: 0)) {
      try source.join(PublisherKey([64], of: user), firstNumber: 1, isRestored: true) {}
    }
  }

  @Test func aUserDoesNotDisplaceAnotherWithFewerNames() {
    func key(_ name: String, user: UInt32) -> PublisherKey {
      PublisherKey(Array(name.utf8), of: .uid(user))
    }
    var marks = PublisherMarks()
    marks.set(key("of a run each day", user: 1), to: 7) { _ in false }
    for number in 0..<1000 { marks.set(key("\(number)", user: 2), to: 1) { _ in false } }
    for number in 0..<1000 { marks.set(key("\(number)", user: 3), to: 1) { _ in false } }
    #expect(marks[key("of a run each day", user: 1)] == 7)
    #expect(marks[key("999", user: 2)] == 1 && marks[key("999", user: 3)] == 1)
    #expect(
      !ServerLimits.admitsOne(after: 48, ofHosts: nil, free: 16)
        && ServerLimits.admitsOne(after: 0, ofHosts: nil, free: 1))
    #expect(!ServerLimits.admitsOne(after: 0, ofHosts: nil, free: 0))
  }

  @Test func finishedNamesOfOneRunAreDiscardedFirst() {
    func key(_ name: String) -> PublisherKey {
      PublisherKey(Array(name.utf8), of: .uid(1))
    }
    var marks = PublisherMarks()
    marks.set(key("kept"), to: 1) { _ in false }
    marks.finish(key("kept"))
    for number in 0..<1000 {
      marks.set(key("\0\(number)"), to: 1) { _ in false }
      marks.finish(key("\0\(number)"))
    }
    #expect(marks[key("kept")] == 1 && marks[key("\0999")] == 1 && marks[key("\00")] == nil)
    var restored = PublisherMarks(marks.checkpoint)
    #expect(restored.newest?.key == marks.newest?.key)
    for number in 0..<62 { restored.set(key("\(number)"), to: 1) { _ in false } }
    #expect(restored[key("kept")] == 1)
    // An unfinished publisher may still reconnect: the usual order applies.
    var busy = PublisherMarks()
    for number in 0..<65 { busy.set(key("\0\(number)"), to: 1) { _ in false } }
    #expect(busy[key("\00")] == nil && busy[key("\01")] == 1)
  }

  @Test func marksSurviveARoundTripAndOtherBytesAreRejected() throws {
    var marks = PublisherMarks()
    #expect(PublisherMarks(marks.checkpoint) == marks)
    let keys = (0..<70).map { index in
      PublisherKey(
        Array(repeating: UInt8(index), count: 48),
        of: [.token(String(repeating: "t", count: 48)), .uid(7), .ipv6(.max)][index % 3])
    }
    for (index, key) in keys.enumerated() { marks.set(key, to: UInt64(index + 1)) { $0 == keys[0] } }
    // Three users with equal numbers lose their oldest names in turn.
    #expect(
      marks[keys[0]] == 1 && keys.filter { marks[$0] == nil }.count == 6 && keys[9...].allSatisfy { marks[$0] != nil })
    let checkpoint = try #require(marks.checkpoint)
    #expect(PublisherMarks(checkpoint) == marks)
    for count in 0..<checkpoint.bytes.count {
      let cut = PublisherMarks(Checkpoint(Array(checkpoint.bytes.prefix(count))))
      #expect(cut == PublisherMarks() || cut.checkpoint?.bytes == Array(checkpoint.bytes.prefix(count)))
    }
    #expect(PublisherMarks(Checkpoint(Array("etag: x".utf8))) == PublisherMarks())
    #expect(PublisherMarks(nil) == PublisherMarks())
  }
}
