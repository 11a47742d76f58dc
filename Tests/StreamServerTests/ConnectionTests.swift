import Dispatch
import Glibc
import RSocket
import Reactive
import StreamRuntime
import Testing

@testable import StreamServer

/// Every row of the wire's connection table that the server implements, besides the machine. Another client is
/// connected throughout and must not be affected.
@Suite struct ConnectionTests {
  private func withBystander(
    _ limits: ServerLimits = ServerLimits(workers: 1), _ body: (ServerHarness) throws -> Void
  ) async throws {
    try await withServer(limits) { harness in
      let source = try harness.add("bystander")
      let bystander = try WireClient.ready(harness.path)
      bystander.subscribe("bystander", credit: 1000)
      harness.eventually { harness.server.statistics.subscribers == 1 }
      try body(harness)
      source.send([1])
      #expect(try bystander.events(1) == [[1]])
      #expect(try bystander.isSilent())
    }
  }

  private func expectEnd(_ client: WireClient, _ code: ErrorCode, _ sentence: String? = nil) throws {
    let frame = try client.receive()
    guard case .error(.connection, code, let message)? = frame else {
      Issue.record("expected \(code) on the connection, got \(String(describing: frame))")
      return
    }
    #expect(!message.isEmpty)
    if let sentence { #expect(message == sentence) }
    #expect(try client.receive() == nil)
  }

  @Test func anotherFirstFrameIsInvalidSetup() async throws {
    try await withBystander { (harness) throws in
      let client = try WireClient(harness.path)
      client.subscribe("bystander", credit: 1)
      try expectEnd(client, .invalidSetup)
    }
  }

  @Test func aMalformedFirstFrameIsInvalidSetup() async throws {
    try await withBystander { (harness) throws in
      let client = try WireClient(harness.path)
      client.send([1, 0, 0, 2, 0, 1, 0, 1, 0xFC])
      try expectEnd(client, .invalidSetup)
    }
  }

  @Test func aClientThatSpeaksTLSIsToldThatThePortDoesNotAndTheJournalHasItsAddress() async throws {
    try await withBystander { (harness) throws in
      let client = try HTTPWireClient(try harness.listenOnTCP()).wire
      client.send([0x16, 3, 1, 2, 0, 1, 0, 1, 0xFC])
      try expectEnd(client, .invalidSetup, "the client speaks TLS, and this port does not")
      guard case .clientDropped(_, let reason)? = harness.reports.last else {
        return #expect(Bool(false), "not reported")
      }
      #expect(reason.hasPrefix("the client speaks TLS, and this port does not, from 127."), "\(reason)")
    }
  }

  @Test func aSetupOver64KiBIsInvalid() async throws {
    try await withBystander { (harness) throws in
      let client = try WireClient(harness.path)
      client.send([1, 0, 0, 0, 0, 0, 0, 4, 0])
      try expectEnd(client, .invalidSetup, "the first frame must be SETUP, with at most 65535 bytes")
    }
  }

  @Test func aConnectionWithoutSetupIsClosed() async throws {
    try await withBystander(ServerLimits(workers: 1, handshakeTimeout: .milliseconds(50))) { (harness) throws in
      let client = try WireClient(harness.path)
      client.send([0, 0])
      #expect(try client.receive() == nil)
    }
  }

  @Test func anotherVersionIsUnsupportedSetup() async throws {
    try await withBystander { (harness) throws in
      var setup = Setup()
      setup.majorVersion = 2
      try expectEnd(try WireClient.ready(harness.path, setup), .unsupportedSetup)
    }
  }

  @Test func aResumeTokenIsRejectedSetupAndAResumeFrameIsRejectedResume() async throws {
    try await withBystander { (harness) throws in
      var setup = Setup()
      setup.resumeToken = [1, 2, 3]
      try expectEnd(try WireClient.ready(harness.path, setup), .rejectedSetup)
      let client = try WireClient(harness.path)
      client.send(.resume(token: [1], serverPosition: 0, clientPosition: 0))
      try expectEnd(client, .rejectedResume)
    }
  }

  @Test func aLeaseFollowsTheSetupAndItsRequestsAreServed() async throws {
    try await withBystander { (harness) throws in
      let client = try WireClient.ready(harness.path, Setup(honorsLease: true))
      guard case .lease(let time, let count, _) = try client.receive() else { throw WireClient.Silence() }
      #expect(time > .zero && count > 0)
      client.get("nowhere")
      #expect(try client.receive() == .error(StreamID(1), .rejected, "no stream named \"nowhere\""))
    }
  }

  @Test func aLeaseIsRenewedBeforeItExpires() async throws {
    var limits = ServerLimits(workers: 1)
    limits.leaseTime = .milliseconds(50)
    try await withBystander(limits) { (harness) throws in
      let client = try WireClient.ready(harness.path, Setup(honorsLease: true))
      for _ in 0..<4 {
        guard case .lease(.milliseconds(50), count: 256, metadata: nil) = try client.receive() else {
          throw WireClient.Silence()
        }
      }
    }
  }

  @Test func aClientThatClosesBeforeItsFirstLeaseLeavesNoTimer() async throws {
    var limits = ServerLimits(workers: 1)
    limits.leaseTime = .milliseconds(20)
    try await withBystander(limits) { (harness) throws in
      // The loop is blocked until the client has closed, so that SETUP is read and the reply cannot be sent.
      let gone = DispatchSemaphore(value: 0)
      harness.server.loops[0].execute { gone.wait() }
      do { _ = try WireClient.ready(harness.path, Setup(maximumLifetime: .milliseconds(10), honorsLease: true)) }
      gone.signal()
      harness.eventually { harness.server.statistics.accepted == 2 && harness.server.statistics.connections == 1 }
      let later = try WireClient.ready(harness.path, Setup(honorsLease: true))
      for _ in 0..<5 {
        guard case .lease = try later.receive() else { throw WireClient.Silence() }
      }
    }
  }

  @Test func aKeepaliveIsEchoedWithItsDataWithoutTheRespondFlag() async throws {
    try await withBystander { (harness) throws in
      let client = try WireClient.ready(harness.path)
      client.send(.keepalive(respond: false, position: 0, data: [1]))
      client.send(.keepalive(respond: true, position: 0, data: [1, 2, 3]))
      #expect(try client.receive() == .keepalive(respond: false, position: 0, data: [1, 2, 3]))
    }
  }

  @Test func aClientSilentForItsMaximumLifetimeIsClosedAndReported() async throws {
    try await withBystander { (harness) throws in
      let client = try WireClient.ready(harness.path, Setup(maximumLifetime: .milliseconds(50)))
      #expect(try client.receive() == nil)
      #expect(
        harness.reports.contains {
          if case .clientDropped(_, let reason) = $0 { reason.contains("silent") } else { false }
        })
    }
  }

  @Test(arguments: MetadataFormat.allCases) func aStreamCanBeNamedInEveryMetadataFormat(format: MetadataFormat)
    async throws
  {
    try await withBystander { (harness) throws in
      let client = try WireClient.ready(harness.path, Setup(metadataMIMEType: format.mimeType))
      let payload = Payload(metadata: try format.metadata(route: "elsewhere"))
      client.send(.request(StreamID(1), .response, initialRequest: 1, payload, follows: false, isComplete: false))
      #expect(try client.receive() == .error(StreamID(1), .rejected, "no stream named \"elsewhere\""))
    }
  }

  @Test func anOverlongNameIsRejectedWithoutRepeatingIt() async throws {
    try await withBystander { (harness) throws in
      let client = try WireClient.ready(harness.path, Setup(metadataMIMEType: MetadataFormat.text.mimeType))
      let payload = Payload(metadata: [UInt8](repeating: UInt8(ascii: "x"), count: 100_000))
      client.send(.request(StreamID(1), .stream, initialRequest: 1, payload, follows: false, isComplete: false))
      #expect(try client.receive() == .error(StreamID(1), .rejected, "no stream has a name of 100000 bytes"))
    }
  }

  @Test func metadataThatNamesNoStreamIsInvalid() async throws {
    try await withBystander { (harness) throws in
      let client = try WireClient.ready(harness.path)
      client.send(.request(StreamID(1), .stream, initialRequest: 1, Payload(), follows: false, isComplete: false))
      guard case .error(StreamID(1), .invalid, _) = try client.receive() else { throw WireClient.Silence() }
      #expect(try client.isSilent())
    }
  }

  @Test func anUnknownFrameTypeIsFatalWithoutTheIgnoreFlag() async throws {
    try await withBystander { (harness) throws in
      let client = try WireClient.ready(harness.path)
      client.send([0, 0, 6, 0, 0, 0, 1, 0x78 | 0x02, 0])  // type 0x1e, ignore
      #expect(try client.isSilent())
      client.send([0, 0, 6, 0, 0, 0, 1, 0x78, 0])
      try expectEnd(client, .connectionError)
    }
  }

  @Test(
    arguments: [
      [0, 0, 3, 1, 2, 3],  // shorter than a header
      [0xFF, 0xFF, 0xFF, 0, 0, 0, 1, 0x18, 0],  // longer than a request may be
      [0, 0, 14, 0, 0, 0, 1, 0x19, 0, 0, 0, 0, 1, 0, 0, 9, 1],  // metadata beyond the frame
      [0, 0, 10, 0, 0, 0, 2, 0x18, 0, 0, 0, 0, 1],  // even id
      [0, 0, 10, 0, 0, 0, 0, 0x18, 0, 0, 0, 0, 1],  // id zero
    ] as [[UInt8]])
  func malformedInputIsAConnectionErrorWithTheReason(bytes: [UInt8]) async throws {
    try await withBystander { (harness) throws in
      let client = try WireClient.ready(harness.path)
      client.send(bytes)
      try expectEnd(client, .connectionError)
    }
  }

  @Test func anIDInUseIsAConnectionError() async throws {
    try await withBystander { (harness) throws in
      let client = try WireClient.ready(harness.path)
      client.subscribe("bystander", credit: 1, options: #"{"from": "new"}"#)
      client.subscribe("bystander", credit: 1, options: #"{"from": "new"}"#)
      try expectEnd(client, .connectionError)
      harness.eventually { harness.server.statistics.subscribers == 1 }
    }
  }

  @Test func framesForRequestsThatAreNotLiveAreIgnored() async throws {  // SEMANTICS 20
    try await withBystander { (harness) throws in
      let client = try WireClient.ready(harness.path)
      client.send(.requestN(StreamID(7), 3))
      client.send(.cancel(StreamID(7)))
      client.send(.payload(StreamID(7), Payload(data: [1]), follows: false, isComplete: false, isNext: true))
      client.send(.error(StreamID(7), .canceled, "late"))
      #expect(try client.isSilent())
    }
  }

  @Test func requestsOverTheConnectionsLimitAreRejected() async throws {
    try await withBystander(ServerLimits(workers: 1, requestsPerConnection: 2)) { (harness) throws in
      let client = try WireClient.ready(harness.path)
      for id in [1, 3, 5] as [UInt32] { client.subscribe("bystander", credit: 1, options: #"{"from": "new"}"#, id: id) }
      guard case .error(StreamID(5), .rejected, _) = try client.receive() else { throw WireClient.Silence() }
      client.send(.cancel(StreamID(1)))
      client.subscribe("bystander", credit: 1, options: #"{"from": "new"}"#, id: 7)
      #expect(try client.isSilent())
    }
  }

  @Test func connectionsOverTheServersLimitAreRejected() async throws {
    try await withBystander(ServerLimits(workers: 1, connections: 2)) { (harness) throws in
      let second = try WireClient.ready(harness.path)
      #expect(try second.isSilent())
      try expectEnd(try WireClient(harness.path), .rejectedSetup)
      shutdown(second.descriptor.raw, CInt(SHUT_RDWR))
      harness.eventually { harness.server.statistics.connections == 1 }
      #expect(try WireClient.ready(harness.path).isSilent())
    }
  }

  @Test func publishingToAStreamWithAnotherSourceIsRejected() async throws {
    try await withBystander { (harness) throws in
      let client = try WireClient.ready(harness.path)
      let payload = Payload(metadata: try MetadataFormat.routing.metadata(route: "bystander"), data: [9])
      client.send(.request(StreamID(1), .channel, initialRequest: 1, payload, follows: false, isComplete: false))
      #expect(try client.receive() == .error(StreamID(1), .rejected, "\"bystander\" does not accept values"))
      client.send(.request(StreamID(3), .fireAndForget, initialRequest: 0, payload, follows: false, isComplete: false))
      client.send(.metadataPush([1, 2]))
      #expect(try client.isSilent())
    }
  }

  @Test func unreadRepliesStopReadingOfRequests() async throws {
    try await withBystander { (harness) throws in
      let client = try WireClient(harness.path, receiveBuffer: 4096)
      client.send(.setup(Setup()))
      _ = fcntl(client.descriptor.raw, F_SETFL, O_NONBLOCK)
      var ping: [UInt8] = []
      Frame.keepalive(respond: true, position: 0, data: [UInt8](repeating: 1, count: 1000)).encode(into: &ping)
      var sent = 0
      while sent < 64 << 20 {
        let count = Glibc.send(client.descriptor.raw, ping, ping.count, CInt(MSG_NOSIGNAL))
        if count < 0 {
          var writable = pollfd(fd: client.descriptor.raw, events: Int16(POLLOUT), revents: 0)
          guard poll(&writable, 1, 300) == 1 else { break }  // the server has stopped reading
        } else {
          sent += count
        }
      }
      #expect(sent < 16 << 20)
    }
  }

  @Test func aStoppingServerEndsEveryRequestWithCanceledAndClosesTheConnection() async throws {
    let harness = try ServerHarness()
    _ = try harness.add("s")
    let client = try WireClient.ready(harness.path)
    client.subscribe("s", credit: 1)
    client.subscribe("s", credit: 1, id: 3)
    harness.eventually { harness.server.statistics.subscribers == 2 }
    let stuck = try WireClient.ready(harness.path)
    stuck.subscribe("s", credit: 1)
    await harness.stop()
    #expect(try client.receive() == .error(StreamID(1), .canceled, "streamd is stopping"))
    #expect(try client.receive() == .error(StreamID(3), .canceled, "streamd is stopping"))
    try expectEnd(client, .connectionClose, "streamd is stopping")
  }

  @Test func clientActionsAreReportedOnRequest() async throws {
    try await withServer { harness in
      _ = try harness.add("s", start: .whileSubscribed(linger: .zero))
      do {
        let unseen = try WireClient.ready(harness.path)
        unseen.subscribe("s", credit: 1)
        unseen.send(.keepalive(respond: true, position: 0, data: []))
        _ = try unseen.receive()  // all its actions are reported, or not
        harness.setWantsDetails(true)
        let seen = try WireClient.ready(harness.path)
        seen.subscribe("s", credit: 3)
        harness.eventually { harness.server.statistics.subscribers == 2 }
      }
      harness.eventually { harness.server.statistics.connections == 0 }
      let deeds = harness.reports.compactMap { report -> [String]? in
        guard case .clientActs(let client, let stream, let what) = report else { return nil }
        return ["\(client.number)", stream ?? "-", what.split(separator: " ").prefix(2).joined(separator: " ")]
      }
      #expect(
        deeds.filter { $0[0] == "2" } == [
          ["2", "-", "connected"], ["2", "s", "subscribes from"], ["2", "-", "disconnected"],
        ])
      #expect(deeds.filter { $0[0] == "1" } == [["1", "-", "disconnected"]])
    }
  }
}
