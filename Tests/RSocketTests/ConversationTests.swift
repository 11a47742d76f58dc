import RSocket
import Testing

/// Two machines back to back.
struct Conversation {
  let client: Side
  let server: Side
  let chunkByteCount: Int

  init(_ setup: Setup = Setup(), chunkByteCount: Int = .max) {
    client = Side(ConnectionMachine(connectingWith: setup))
    server = Side(ConnectionMachine())
    self.chunkByteCount = chunkByteCount
  }

  /// Passes the client's output to the server, and returns its events.
  func toServer() -> [Side.Event] { server.receive(client.take(), chunkByteCount: chunkByteCount) }

  /// Passes the server's output to the client, and returns its events.
  func toClient() -> [Side.Event] { client.receive(server.take(), chunkByteCount: chunkByteCount) }
}

@Suite struct ConversationTests {
  @Test(arguments: [1, 2, 3, 7, Int.max])
  func aStreamRunsFromSetupToItsCompletionInAnySplit(chunkByteCount: Int) throws {
    let setup = Setup(keepaliveInterval: .milliseconds(1500), dataMIMEType: "application/json")
    let talk = Conversation(setup, chunkByteCount: chunkByteCount)
    let request = Payload("{}", metadata: try MetadataFormat.routing.metadata(route: "clock"))
    let id = try #require(talk.client.request(.stream, initialRequest: 2, request))
    #expect(
      talk.toServer() == [.setup(setup), .request(id, .stream, initialRequest: 2, request, isComplete: true)])
    #expect(talk.server.machine.keepaliveInterval == .milliseconds(1500))
    #expect(talk.server.machine.maximumLifetime == .seconds(90))

    talk.server.machine.sendPayload(id, Payload("one"))
    talk.server.machine.sendPayload(id, Payload("two", metadata: []))
    #expect(
      talk.toClient() == [
        .payload(id, Payload("one"), isComplete: false), .payload(id, Payload("two", metadata: []), isComplete: false),
      ])
    talk.client.machine.sendRequestN(id, 5)
    #expect(talk.toServer() == [.requestN(id, 5)])
    talk.server.machine.sendPayload(id, Payload("three"), isComplete: true)
    #expect(talk.toClient() == [.payload(id, Payload("three"), isComplete: true)])
    #expect(talk.client.machine.liveCount == 0)
    #expect(talk.server.machine.liveCount == 0)
  }

  @Test(arguments: [7, 4096, 65_536, Int.max])
  func aLongValueCrossesInFragmentsBothWaysInAnySplit(chunkByteCount: Int) throws {
    let talk = Conversation(chunkByteCount: chunkByteCount)
    let long = Payload(
      metadata: [UInt8](repeating: 1, count: 70_000), data: (0..<200_000).map { UInt8(truncatingIfNeeded: $0) })
    let id = try #require(talk.client.request(.channel, initialRequest: 1, long))
    #expect(
      talk.toServer().last == .request(id, .channel, initialRequest: 1, long, isComplete: false))
    talk.server.machine.sendRequestN(id, 1)
    talk.server.machine.sendPayload(id, long, isComplete: true)
    #expect(talk.toClient() == [.requestN(id, 1), .payload(id, long, isComplete: true)])
    talk.client.machine.sendPayload(id, long, isComplete: true)
    #expect(talk.toServer() == [.payload(id, long, isComplete: true)])
    #expect(talk.client.machine.liveCount + talk.server.machine.liveCount == 0)
  }

  @Test func manyRequestsRunSideBySideAndEndOneByOne() throws {
    let talk = Conversation()
    let ids = (0..<100).compactMap { _ in talk.client.request(.stream, initialRequest: 1) }
    #expect(talk.toServer().count == 101)
    for id in ids.shuffled() { talk.server.machine.sendPayload(id, Payload("\(id)"), isComplete: true) }
    for event in talk.toClient() {
      guard case .payload(let id, let payload, true) = event else {
        Issue.record("\(event)")
        return
      }
      #expect(payload == Payload("\(id)"))
    }
    #expect(talk.client.machine.liveCount == 0)
  }

  @Test func eitherSidesViolationReachesTheOtherAsTheReason() {
    let talk = Conversation()
    _ = talk.toServer()
    guard case .closed(.connectionError, let message) = talk.server.receive([0, 0, 0]).last else {
      Issue.record("not closed")
      return
    }
    #expect(talk.toClient() == [.closed(.connectionError, message)])
  }

  @Test func anIdleConnectionWithOneSubscriptionIsSmall() {
    #expect(MemoryLayout<ConnectionMachine>.size <= 128)
  }
}
