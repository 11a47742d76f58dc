import Dispatch
import Events
import Glibc
import RSocket
import Reactive
import ReplayLog
import StreamProtocol
import StreamRuntime
import Synchronization
import TestSupport
import Testing

@testable import StreamServer

/// Makes streams to which clients publish, or whose source the test feeds.
final class TestMaker: StreamMaker {
  let queue = WorkQueue(label: "maker")
  private let server: StreamServer
  private let published: Bool
  private let isAtOnce: Bool
  let rules: Locked<@Sendable (NameValues) -> (read: AccessRules, write: AccessRules)>
  let forgotten = Locked<[String]>([])
  /// The bases of streams of the template `of/{base}`.
  let delay = Locked<DispatchSemaphore?>(nil)

  init(
    _ server: StreamServer, published: Bool, isAtOnce: Bool = true,
    _ rules: @escaping @Sendable (NameValues) -> (read: AccessRules, write: AccessRules)
  ) {
    (self.server, self.published, self.isAtOnce) = (server, published, isAtOnce)
    self.rules = Locked(rules)
  }

  let memory = Atomic(Int.max)
  /// Each stream takes 1.
  var hasMemory: Bool { server.madeStreams.count < memory.load(ordering: .relaxed) }

  func makesAtOnce(_ template: NameTemplate) -> Bool {
    isAtOnce && hasMemory && delay.withLock { $0 } == nil && !template.text.hasPrefix("of/")
  }

  func make(
    _ name: String, of template: NameTemplate, _ values: NameValues, for maker: StreamOwner?
  ) throws(StreamFailure) -> [String] {
    delay.withLock { $0 }?.wait()
    let bases = ["base", "other"].compactMap { values[$0] }.map { "s/\($0)" }
    server.setBases(bases, of: name)
    for base in bases { try server.makeStream(base, for: maker) }
    var configuration = StreamConfiguration(name: name, replay: 100)
    configuration.template = template.text
    (configuration.read, configuration.write) = rules.withLock { $0 }(values)
    do {
      if published {
        let source = PublishSource()
        try server.add(
          configuration, source: source.setFailureType(to: StreamFailure.self), publishSource: source)
      } else {
        try server.add(configuration, source: HandFedSource())
      }
    } catch {
      throw StreamFailure("\(error)")
    }
    return bases
  }

  func forget(_ names: [String]) { forgotten.withLock { $0 += names } }
}

/// Streams that exist because a client asks for them.
@Suite struct MakingTests {
  private typealias Rules = @Sendable (NameValues) -> (read: AccessRules, write: AccessRules)
  private static let owner: Rules = { _ in (AccessRules(), .owner) }
  private static let nobody: Rules = { _ in (AccessRules([]), AccessRules([])) }

  @discardableResult private func serve(
    _ harness: ServerHarness, _ names: [String] = ["s/{x}"], limit: Int = 1000, forget: Duration? = nil,
    published: Bool = true, shownTo: AccessRules = AccessRules(), waits: Bool = false, isAtOnce: Bool = true,
    _ rules: @escaping Rules = owner
  ) throws -> TestMaker {
    let maker = TestMaker(harness.server, published: published, isAtOnce: isAtOnce, rules)
    let letters = NameTemplate.Parameter(characters: NameCharacters("a-z0-9-") ?? .all, length: 20)
    let templates = try names.map { name in
      StreamTemplate(
        try NameTemplate(name, parameters: ["x": letters]), limit: limit, forgetTime: forget,
        source: published ? "publish" : "timer", takesValues: published, shownTo: shownTo,
        accessWaits: waits, access: rules)
    }
    maker.queue.sync { harness.server.setTemplates(templates, maker: maker) }
    return maker
  }

  /// Publishes one value, and waits until the stream has it.
  private func publish(_ name: String, _ value: UInt8, by client: WireClient, id: UInt32 = 1) throws {
    client.publish(name, [value], isComplete: true, id: id)
    #expect(try client.receive() == completion(of: id, isNext: false))
  }

  private func completion(of id: UInt32, isNext: Bool) -> Frame {
    .payload(StreamID(id), Payload(data: []), follows: false, isComplete: true, isNext: isNext)
  }

  private func names(_ harness: ServerHarness) -> [String] { harness.server.userStreams.map(\.name) }

  // MARK: What makes a stream

  @Test(arguments: [false, true]) func aSubscriptionMakesAStream(atOnce: Bool) async throws {
    try await withServer { harness in
      try serve(harness, published: false, isAtOnce: atOnce)
      let client = try WireClient.ready(harness.path)
      client.subscribe("s/a", credit: 9)
      harness.eventually { names(harness) == ["s/a"] && harness.server.streams["s/a"]?.log.subscriberCount == 1 }
      client.subscribe("s/a", credit: 9, id: 3)
      harness.eventually { harness.server.streams["s/a"]?.log.subscriberCount == 2 }
    }
  }

  @Test(arguments: [false, true]) func aPublishedValueMakesAStream(atOnce: Bool) async throws {
    try await withServer { harness in
      try serve(harness, isAtOnce: atOnce)
      let client = try WireClient.ready(harness.path)
      client.toss("s/tossed", [1], id: 1)
      try client.publishAll("s/channel", [[1], [2]], id: 3)
      let http = try HTTPWireClient(harness)
      http.post("/streams/s/posted", "1\n2\n", "Content-Type: application/x-ndjson")
      #expect(try http.response().text == "{\"accepted\":2}\n")
      #expect(names(harness) == ["s/channel", "s/posted", "s/tossed"])
      #expect(harness.server.streams["s/tossed"]?.log.read { storage, _ in storage.appendedEvents } == 1)
    }
  }

  @Test(arguments: ["?wait=5s", "?as=sse", "?as=ndjson"])
  func aRequestThatWaitsMakesAStream(query: String) async throws {
    try await withServer { harness in
      try serve(harness)
      let client = try HTTPWireClient(harness)
      client.get("/streams/s/a\(query)")
      harness.eventually { harness.server.streams["s/a"]?.log.subscriberCount == 1 }
      let publisher = try HTTPWireClient(harness)
      publisher.post("/streams/s/a", "[1]")
      #expect(try publisher.response().status == 200)
      if query.hasPrefix("?wait") { #expect(try client.response().text == "[1]") }
    }
  }

  @Test func aStreamingResponseMakesEachOfItsStreams() async throws {
    try await withServer { harness in
      try serve(harness)
      let client = try HTTPWireClient(harness)
      client.get("/streams/s/a,s/b,s/c?as=sse")
      harness.eventually { names(harness) == ["s/a", "s/b", "s/c"] }
      #expect(try client.head()?.status == 200)
    }
  }

  @Test func aRequestForTheNewestEventMakesNothing() async throws {
    try await withServer { harness in
      try serve(harness)
      let http = try HTTPWireClient(harness)
      for query in ["", "?as=ndjson&follow=0"] {
        http.get("/streams/s/a\(query)")
        let response = try http.response()
        #expect(response.status == 404 && response.text.contains("no stream named \\\"s/a\\\" yet"), "\(response)")
      }
      http.request("HEAD", "/streams/s/a?as=ndjson")
      #expect(try http.response(isToHead: true).status == 404)
      let client = try WireClient.ready(harness.path)
      client.get("s/a")
      let sentence = "no stream named \"s/a\" yet: a subscription or a published value makes it"
      #expect(try client.receive() == .error(StreamID(1), .rejected, sentence))
      #expect(names(harness) == [])
    }
  }

  @Test(arguments: [false, true]) func aPUTMakesAStreamOnce(atOnce: Bool) async throws {
    try await withServer { harness in
      try serve(harness, isAtOnce: atOnce)
      _ = try harness.add("configured")
      let client = try HTTPWireClient(harness)
      var statuses: [Int] = []
      for path in ["s/a", "s/a", "s/UPPER", "none", "configured"] {
        client.request("PUT", "/streams/\(path)")
        statuses.append(try client.response().status)
      }
      #expect(statuses == [201, 200, 404, 404, 405])
      client.request("OPTIONS", "/streams/s/new")
      #expect(try client.response()["Allow"] == "GET, HEAD, POST, PUT, DELETE, OPTIONS")
    }
  }

  @Test func everybodyMayGiveTheCommandsForStreamsThatAdmitHim() async throws {
    try await withServer { harness in
      try serve(harness) { _ in (AccessRules(), AccessRules([.user(4711)])) }
      let client = try WireClient(harness.server, user: 4711)
      client.get("$control", options: #"{"make":"s/a"}"#)
      #expect(try client.receive() == completion(of: 1, isNext: true))
      #expect(names(harness) == ["s/a"])
      client.get("$control", options: #"{"forget":"s/a"}"#, id: 3)
      #expect(try client.receive() == completion(of: 3, isNext: true))
      client.get("$control", options: #"{"forget":"s/a"}"#, id: 5)
      #expect(try client.receive() == .error(StreamID(5), .rejected, "no stream named \"s/a\""))
      client.get("$control", options: #"{"kick":1}"#, id: 7)
      guard case .error(_, .rejected, let sentence)? = try client.receive() else {
        Issue.record("no error")
        return
      }
      #expect(sentence.contains("may not give commands"))
    }
  }

  // MARK: Names

  @Test func aNameThatBreaksARuleIsRefusedWithTheRule() async throws {
    try await withServer { harness in
      try serve(harness)
      let client = try WireClient.ready(harness.path)
      for (index, name) in ["s/ABC", "s/\(String(repeating: "a", count: 21))", "s/a/b", "s/", "t/a"].enumerated() {
        client.subscribe(name, credit: 1, id: UInt32(2 * index + 1))
        guard case .error(_, .rejected, let sentence)? = try client.receive() else {
          Issue.record("no error")
          return
        }
        #expect(sentence.hasPrefix("no stream named \"\(name)\""), "\(sentence)")
        #expect(index > 1 || sentence.contains("in \"s/{x}\", \"x\" has"), "\(sentence)")
      }
      #expect(names(harness) == [])
    }
  }

  @Test func aConfiguredNameGoesBeforeATemplate() async throws {
    try await withServer { harness in
      _ = try harness.add("s/a")
      try serve(harness)
      let client = try HTTPWireClient(harness)
      client.request("DELETE", "/streams/s/a")
      #expect(try client.response().status == 405)
      client.post("/streams/s/a", "1")
      #expect(try client.response().status == 405)
    }
  }

  // MARK: Rights

  @Test(arguments: [false, true]) func aClientWithoutTheRightMakesNothingAndLearnsNothing(waits: Bool) async throws {
    try await withServer { harness in
      let maker = try serve(harness, waits: waits, Self.nobody)
      maker.rules.withLock { $0 = Self.nobody }
      try maker.queue.sync { try harness.server.makeStream("s/there", for: nil) }
      func answers(_ name: String) throws -> [Int] {
        try ["GET", "GET ?as=sse", "GET ?wait=1s", "HEAD", "POST", "PUT", "DELETE"].map { request in
          let client = try HTTPWireClient(harness.server, user: 4711)
          let parts = request.split(separator: " ")
          let target = "/streams/\(name)" + (parts.count > 1 ? parts[1] : "")
          client.request(String(parts[0]), target, body: parts[0] == "POST" ? [0x31] : nil)
          let response = try client.response(isToHead: parts[0] == "HEAD")
          #expect(parts[0] != "POST" || response.text.contains("\"accepted\":0"), "\(response)")
          return response.status
        }
      }
      #expect(try answers("s/there") == [403, 403, 403, 403, 403, 403, 403])
      #expect(try answers("s/absent") == [403, 403, 403, 403, 403, 403, 403])
      let client = try WireClient(harness.server, user: 4711)
      for (index, name) in ["s/there", "s/absent"].enumerated() {
        client.subscribe(name, credit: 1, id: UInt32(4 * index + 1))
        #expect(
          try client.receive()
            == .error(StreamID(UInt32(4 * index + 1)), .rejected, "uid 4711 may not read \"\(name)\""))
      }
      #expect(names(harness) == ["s/there"])
    }
  }

  @Test func whoMadeAStreamMayDeleteIt() async throws {
    try await withServer { harness in
      try serve(harness, published: false) { _ in (AccessRules(), AccessRules([])) }
      let maker = try HTTPWireClient(harness.server, user: 4711)
      maker.request("PUT", "/streams/s/a")
      #expect(try maker.response().status == 201)
      let other = try HTTPWireClient(harness.server, user: 4712)
      other.request("DELETE", "/streams/s/a")
      #expect(try other.response().status == 403)
      maker.request("DELETE", "/streams/s/a")
      #expect(try maker.response().status == 204)
      maker.request("DELETE", "/streams/s/a")
      #expect(try maker.response().status == 403)  // it is nobody's now
    }
  }

  @Test func aClientSeesTheTemplatesOfWhichItMayHaveStreams() async throws {
    try await withServer { harness in
      try serve(harness, shownTo: AccessRules([.user(4711)]))
      for (user, isShown) in [(UInt32(4711), true), (4712, false), (getuid(), true)] {
        let client = try WireClient(harness.server, user: user)
        client.get("$templates")
        let text = String(decoding: try client.event().data, as: UTF8.self)
        #expect(text.contains("s/{x}") == isShown, "\(user): \(text)")
      }
    }
  }

  // MARK: Ends

  @Test func aDeletedStreamEndsItsRequests() async throws {
    try await withServer { harness in
      let maker = try serve(harness)
      let subscriber = try WireClient.ready(harness.path)
      subscriber.subscribe("s/a", credit: 9)
      harness.eventually { harness.server.streams["s/a"]?.log.subscriberCount == 1 }
      let client = try HTTPWireClient(harness)
      client.request("DELETE", "/streams/s/a")
      #expect(try client.response().status == 204)
      #expect(try subscriber.receive() == .error(StreamID(1), .canceled, "\"s/a\" is no longer served"))
      client.request("DELETE", "/streams/s/a")
      #expect(try client.response().status == 404)
      #expect(maker.forgotten.withLock { $0 } == ["s/a"])
    }
  }

  @Test func aStreamWithoutUseIsForgottenAndMadeAgainWithHigherIDs() async throws {
    try await withServer { harness in
      let maker = try serve(harness, forget: .milliseconds(20))
      let client = try WireClient.ready(harness.path)
      client.subscribe("s/kept", credit: 9, id: 1)
      try publish("s/a", 1, by: client, id: 3)
      let first = harness.server.streams["s/a"]?.log.read { storage, _ in storage.endPosition } ?? 0
      harness.eventually { maker.forgotten.withLock { $0 } == ["s/a"] }
      #expect(names(harness) == ["s/kept"])
      client.subscribe("s/a", credit: 9, options: #"{"from": \#(first), "gaps": true}"#, id: 5)
      try publish("s/a", 2, by: client, id: 7)
      let payload = try client.payload()
      #expect(payload.data == [2] && payload.metadata.count == 24)  // with a gap
      client.send(.cancel(StreamID(1)))
      harness.eventually { harness.server.streams["s/kept"] == nil }
    }
  }

  @Test func aBaseIsInUseWhileAStreamIsMadeOfIt() async throws {
    try await withServer { harness in
      let maker = try serve(harness, ["s/{x}", "of/{base}"], forget: .milliseconds(20))
      let client = try WireClient.ready(harness.path)
      client.subscribe("of/a", credit: 1)
      harness.eventually { names(harness) == ["of/a", "s/a"] }
      try publish("s/b", 1, by: client, id: 3)
      harness.eventually { maker.forgotten.withLock { $0 } == ["s/b"] }
      #expect(names(harness) == ["of/a", "s/a"])
      let http = try HTTPWireClient(harness)
      http.request("DELETE", "/streams/s/a")
      #expect(try http.response().text.contains("\\\"of/a\\\" is made of it"))
      client.send(.cancel(StreamID(1)))
      harness.eventually { maker.forgotten.withLock { $0 } == ["s/b", "of/a", "s/a"] }
    }
  }

  @Test(arguments: [false, true]) func atTheLimitTheLongestUnusedStreamGoesAndElseTheRequestIsRefused(atOnce: Bool)
    async throws
  {
    try await withServer { harness in
      let maker = try serve(harness, limit: 2, isAtOnce: atOnce)
      let client = try WireClient.ready(harness.path)
      for (index, name) in ["s/a", "s/b", "s/c"].enumerated() {
        try publish(name, 1, by: client, id: UInt32(2 * index + 1))
      }
      #expect(names(harness) == ["s/b", "s/c"] && maker.forgotten.withLock { $0 } == ["s/a"])
      client.subscribe("s/b", credit: 1, id: 11)
      client.subscribe("s/c", credit: 1, id: 13)
      _ = try client.event()
      _ = try client.event()
      client.subscribe("s/d", credit: 1, id: 15)
      let sentence = "all 2 streams of \"s/{x}\" are in use (its key streams)"
      #expect(try client.receive() == .error(StreamID(15), .rejected, sentence))
      let http = try HTTPWireClient(harness)
      http.request("PUT", "/streams/s/d")
      let response = try http.response()
      #expect(response.status == 503 && response["Retry-After"] == "10" && response.text.contains("too-many-streams"))
      client.send(.cancel(StreamID(11)))
      harness.eventually { harness.server.streams["s/b"]?.log.subscriberCount == 0 }
      http.request("PUT", "/streams/s/d")
      #expect(try http.response().status == 201)
      #expect(names(harness) == ["s/c", "s/d"])
    }
  }

  @Test func withoutMemoryUnusedStreamsGoFirstAndElseTheRequestIsRefused() async throws {
    try await withServer { harness in
      let maker = try serve(harness, ["s/{x}", "t/{x}"])
      let client = try WireClient.ready(harness.path)
      client.subscribe("s/used", credit: 1, id: 1)
      try publish("s/a", 1, by: client, id: 3)
      try publish("t/b", 1, by: client, id: 5)
      maker.memory.store(2, ordering: .relaxed)
      client.subscribe("t/c", credit: 1, id: 7)
      harness.eventually { names(harness) == ["s/used", "t/c"] }
      #expect(maker.forgotten.withLock { $0.sorted() } == ["s/a", "t/b"])
      let http = try HTTPWireClient(harness)
      http.request("PUT", "/streams/s/d")
      let response = try http.response()
      #expect(response.status == 503 && response.text.contains("server.memory"))
      // A log that could not grow makes room as well.
      client.send(.cancel(StreamID(7)))
      harness.eventually { harness.server.streams["t/c"]?.log.subscriberCount == 0 }
      harness.server.noteLackOfMemory()
      harness.eventually { names(harness) == ["s/used"] }
    }
  }

  @Test(arguments: [false, true]) func aRequestForMoreStreamsThanTheLimitIsRefusedAndNotRepeated(atOnce: Bool)
    async throws
  {
    try await withServer { harness in
      let maker = try serve(harness, limit: 2, isAtOnce: atOnce)
      let client = try HTTPWireClient(harness)
      client.get("/streams/s/a,s/b,s/c?as=sse")
      let response = try client.response()
      // An EventSource that gets another status never asks again.
      #expect(response.status == 200 && response.text.hasPrefix("retry: ") && response.text.contains("in use"))
      #expect(maker.forgotten.withLock { $0.isEmpty })
      client.get("/streams/s/c,s/d?as=sse")
      #expect(try client.head()?.status == 200)
    }
  }

  @Test func noStreamOfARequestIsForgottenBeforeTheLastIsMade() async throws {
    try await withServer { harness in
      try serve(harness, forget: .nanoseconds(1))
      let client = try HTTPWireClient(harness)
      client.get("/streams/" + (0..<16).map { "s/\($0)" }.joined(separator: ",") + "?as=sse")
      #expect(try client.head()?.status == 200)
    }
  }

  @Test func noBaseOfAStreamMakesRoomForAnother() async throws {
    try await withServer { harness in
      let maker = try serve(harness, ["s/{x}", "of/{base}/{other}"], limit: 1)
      let client = try HTTPWireClient(harness)
      client.request("PUT", "/streams/of/a/b")
      let response = try client.response()
      #expect(response.status == 503 && response.text.contains("too-many-streams"))
      #expect(names(harness) == ["s/a"] && maker.forgotten.withLock { $0.isEmpty })
      client.request("PUT", "/streams/s/b")
      #expect(try client.response().status == 201)
    }
  }

  // MARK: Order

  @Test func laterInputWaitsForTheStreamOfTheRequestBeforeIt() async throws {
    try await withServer { harness in
      let maker = try serve(harness)
      let gate = DispatchSemaphore(value: 0)
      maker.delay.withLock { $0 = gate }
      let client = try WireClient.ready(harness.path)
      for value in 0..<100 as Range<UInt8> { client.toss("s/a", [value], id: 2 * UInt32(value) + 1) }
      client.subscribe("s/a", credit: 1000, options: #"{"from": "replay"}"#, id: 1001)
      let http = try HTTPWireClient(harness)
      http.send(
        "POST /streams/s/b HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\n1"
          + "GET /streams/s/b HTTP/1.1\r\nHost: localhost\r\n\r\n")
      gate.signal()
      gate.signal()
      #expect(try client.events(100) == (0..<100).map { [$0] })
      #expect(try http.response().text == "{\"accepted\":1}\n")
      #expect(try http.response().text == "1")
    }
  }

  @Test func aClientThatIsGoneMeanwhileHarmsNothing() async throws {
    try await withServer { harness in
      let maker = try serve(harness)
      let gate = DispatchSemaphore(value: 0)
      maker.delay.withLock { $0 = gate }
      do {
        let client = try WireClient.ready(harness.path)
        client.subscribe("s/a", credit: 1)
        let http = try HTTPWireClient(harness)
        http.get("/streams/s/b?as=sse")
      }
      gate.signal()
      gate.signal()
      harness.eventually { names(harness) == ["s/a", "s/b"] }
      harness.eventually { harness.server.statistics.connections == 0 }
    }
  }

  /// A stream is never seen to end because nobody used it just before.
  @Test(arguments: [false, true]) func aStreamThatIsForgottenAtThisMomentIsMadeAgain(atOnce: Bool) async throws {
    try await withServer { harness in
      let maker = try serve(harness, forget: .zero, isAtOnce: atOnce)
      let clients = try (0..<4).map { _ in try WireClient.ready(harness.path) }
      for round in 0..<200 as Range<UInt32> {
        for client in clients {
          client.publish("s/a", [1], isComplete: true, id: 4 * round + 1)
          client.subscribe("s/a", credit: 0x7fff_ffff, id: 4 * round + 3)
          client.send(.cancel(StreamID(4 * round + 3)))
        }
        for client in clients {
          var isStored = false
          while !isStored, let frame = try client.receive() {
            switch frame {
            case .error(_, let code, let sentence): Issue.record("\(code) \(sentence)")
            case .payload(StreamID(4 * round + 1), _, _, isComplete: true, _): isStored = true
            default: break
            }
          }
        }
      }
      #expect(maker.forgotten.withLock { $0.count } > 0)
    }
  }

  /// The queue waits two seconds for a turn of each loop.
  @Test func aStreamThatAStuckLoopKeepsIsForgottenLater() async throws {
    try await withServer { harness in
      let maker = try serve(harness, forget: .milliseconds(1))
      let (isStuck, mayGoOn) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
      harness.server.loops[0].execute {
        isStuck.signal()
        mayGoOn.wait()
      }
      isStuck.wait()
      maker.queue.sync { try? harness.server.makeStream("s/a", for: nil) }
      // After one attempt, which the loop prevents.
      maker.queue.async(after: .milliseconds(50)) { mayGoOn.signal() }
      harness.eventually { names(harness).isEmpty && maker.forgotten.withLock { $0 } == ["s/a"] }
    }
  }

  @Test func usersTakeTurnsWithTheStreamsThatAreMadeForThem() {
    var requests = MakingRequests()
    let order = Locked<[String]>([])
    func add(_ text: String, _ user: ClientUser) { requests.append({ order.withLock { $0.append(text) } }, of: user) }
    for index in 0..<3 { add("a\(index)", .uid(1000)) }
    for index in 0..<3 as Range<UInt32> { add("h\(index)", .ipv4(index)) }
    for index in 0..<2 { add("b\(index)", .uid(1001)) }
    add("r", .uid(0))
    while let work = requests.popFirst() { work() }
    let orders = order.withLock { $0 }
    // The standings take turns, and so do the users of each.
    #expect(orders.count == 9 && Set(orders.prefix(3)) == ["a0", "h0", "r"], "\(orders)")
    #expect(orders.filter { !$0.hasPrefix("h") && $0 != "r" } == ["a0", "b0", "a1", "b1", "a2"], "\(orders)")
  }

  // MARK: Changes and restarts

  @Test func aChangedTemplateKeepsItsStreams() async throws {
    try await withServer { harness in
      let maker = try serve(harness, ["s/{x}", "t/{x}"])
      let client = try WireClient.ready(harness.path)
      try publish("s/a", 1, by: client)
      try publish("t/a", 1, by: client, id: 3)
      let templates = [StreamTemplate(try NameTemplate("s/{other}"), limit: 1)]
      maker.queue.sync { harness.server.setTemplates(templates, maker: maker) }
      #expect(maker.queue.sync { harness.server.madeStreams } == ["s/a": "s/{other}"])
    }
  }

  @Test func aBaseIsForgottenAfterTheTemplateOfItsDerivedStreamIsRemoved() async throws {
    try await withServer { harness in
      let maker = try serve(harness, ["s/{x}", "of/{base}"], forget: .milliseconds(1))
      maker.queue.sync {
        harness.server.setBases(["s/a"], of: "configured")
        try? harness.server.makeStream("s/a", for: nil)
      }
      let client = try HTTPWireClient(harness)
      client.request("PUT", "/streams/of/b")
      #expect(try client.response().status == 201)
      try publish("s/other", 1, by: try WireClient.ready(harness.path))
      harness.eventually { maker.forgotten.withLock { $0.contains("s/other") } }
      let templates = [StreamTemplate(try NameTemplate("s/{x}"), forgetTime: .milliseconds(1))]
      maker.queue.sync {
        harness.server.setTemplates(templates, maker: maker)
        harness.server.setBases([], of: "configured")
      }
      harness.eventually { Set(["s/a", "s/b"]).isSubset(of: maker.forgotten.withLock { $0 }) }
    }
  }

  @Test func requestsWhoseStreamIsBeingMadeContinueInTheNextProcess() async throws {
    let next = try ServerHarness(restores: true)
    var limits = ServerLimits(workers: 2)
    limits.settleTime = .seconds(600)
    try await withServer(limits) { first in
      let maker = try serve(first)
      let delay = DispatchSemaphore(value: 0)
      maker.delay.withLock { $0 = delay }
      let (subscriber, publisher, web) = (
        try WireClient.ready(first.path), try WireClient.ready(first.path), try HTTPWireClient(first)
      )
      subscriber.subscribe("s/a", credit: 9)
      publisher.publish("s/b", [7], isComplete: true, id: 1)
      web.request("PUT", "/streams/s/c")
      first.eventually { first.server.waitingMakingCount == 3 }
      let saved = try await first.handOver { for _ in 1...3 { delay.signal() } }
      let (state, following) = (try serve(next), saved.streams)
      for (name, owner) in following { try state.queue.sync { try next.server.restoreStream(name, of: owner) } }
      await next.restore(saved)
      #expect(next.server.streams["s/a"]?.log.subscriberCount == 1)
      #expect(try publisher.receive() == completion(of: 1, isNext: false))
      #expect(try web.response().status == 201)
    }
    await next.stop()
  }

  @Test func theNextProcessKnowsWhoMadeAStream() async throws {
    let next = try ServerHarness(restores: true)
    try await withServer { first in
      try serve(first)
      let client = try HTTPWireClient(first.server, user: 4711)
      client.get("/streams/s/a?as=sse")
      _ = try client.head()
      let saved = try await first.handOver()
      let decoded = try SavedConnections(state: saved.state(ofFirst: saved.count), saved.descriptors)
      let maker = try serve(next)
      #expect(decoded.streams.first { $0.name == "s/a" }?.maker == StreamOwner(user: .uid(4711)))
      for (name, owner) in decoded.streams { try maker.queue.sync { try next.server.restoreStream(name, of: owner) } }
      await next.restore(decoded)
      #expect(names(next) == ["s/a"] && next.server.streams["s/a"]?.log.subscriberCount == 1)
      #expect(next.server.templates.all[0].owner(of: "s/a") == .uid(4711))
      // It was made once, and is not counted again.
      #expect(next.server.templates.all[0].madeCount.load(ordering: .relaxed) == 1)
    }
    await next.stop()
  }
}
