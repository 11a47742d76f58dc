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

  /// Carries the client's output over: what it means to the server.
  func toServer() -> [Side.Event] { server.receive(client.take(), chunkByteCount: chunkByteCount) }

  /// Carries the server's output over: what it means to the client.
  func toClient() -> [Side.Event] { client.receive(server.take(), chunkByteCount: chunkByteCount) }
}

@Suite("Two machines back to back")
struct ConversationTests {
  @Test("A stream runs from SETUP to its completion in any split", arguments: [1, 2, 3, 7, Int.max])
  func stream(chunkByteCount: Int) throws {
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
}
