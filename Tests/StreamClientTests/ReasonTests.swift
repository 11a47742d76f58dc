import ClientTestSupport
import RSocket
import Reactive
import StreamProtocol
import Testing

@testable import StreamClient

/// Decisions by reasons: those of a server that sends them, and of one of the last release, which sends sentences.
@Suite(.timeLimit(.minutes(10))) struct ReasonTests {
  private static func code(_ reason: FailureReason) -> ErrorCode { ErrorCode(rawValue: reason.wireCode()) }

  /// Replies to the first request with an error, and to later ones with an event.
  private static func failing(
    _ code: ErrorCode, _ sentence: String
  ) -> @Sendable (ClientTestSupport.Peer, ServerEvent) -> Void {
    { peer, event in
      switch event {
      case .other(.setup(let setup)):
        peer.machine.knowsReasons = FailureReason.areAnnounced(by: setup.payload.data)
      case .request(StreamID(1), _, _, _, _): peer.machine.sendError(StreamID(1), code, sentence)
      case .request(let id, _, _, _, _): peer.send("1", on: id, number: 1)
      default: break
      }
    }
  }

  @Test(arguments: [
    (FailureReason.noStream, StreamError.rejected("why")), (.unknownPosition, .invalid("why")),
    (.removed, .canceled("why")), (.stalled, .lagged("why")), (.failed, .failed(.applicationError, "why")),
  ]) func anErrorHasItsReason(reason: FailureReason, expected: StreamError) async throws {
    try await ScriptedServer.run(script: Self.failing(Self.code(reason), "why")) { server in
      let probe = try StreamConnection(socket: server.path).stream("s").probe(1)
      guard case .failed(let error)? = await probe.next() else { return #expect(Bool(false), "no error") }
      #expect(error == expected && error.reason == reason)
    }
  }

  @Test func anUnknownReasonIsWhatItsCodeSays() async throws {
    let code = ErrorCode(rawValue: 0x202_ffff)
    try await ScriptedServer.run(script: Self.failing(code, "no stream named \"s\"")) { server in
      let probe = try StreamConnection(socket: server.path).stream("s", reconnect: ReconnectPolicy()).probe(1)
      guard case .failed(let error)? = await probe.next() else { return #expect(Bool(false), "no error") }
      #expect(error == .rejected("no stream named \"s\"") && error.reason == nil)
    }
  }

  @Test(
    arguments: [
      (FailureReason.restarting.wireCode(), "one text", true), (FailureReason.stopping.wireCode(), "", true),
      (FailureReason.kicked.wireCode(), "", true), (FailureReason.removed.wireCode(), "streamd is stopping", false),
      (FailureReason.ended.wireCode(), "", false), (0x203, "streamd restarts", true), (0x203, "another text", true),
      (0x203, "\"s\" is no longer served", false), (0x203, "\"s\" no longer accepts values", false),
    ] as [(UInt32, String, Bool)])
  func aCancelledRequestIsMadeAgainIfThatMayHelp(code: UInt32, sentence: String, isMadeAgain: Bool) async throws {
    try await ScriptedServer.run(script: Self.failing(ErrorCode(rawValue: code), sentence)) { server in
      let policy = ReconnectPolicy(first: .milliseconds(1))
      let probe = try StreamConnection(socket: server.path).stream("s", reconnect: policy).probe(1)
      #expect(await probe.next() == (isMadeAgain ? .value("1") : .failed(.canceled(sentence))))
    }
  }

  /// Another request of the connection was the cause.
  @Test func aRequestThatIsTooLargeIsALossForOthers() async throws {
    try await ScriptedServer.run(script: { peer, event in
      if case .other(.setup) = event { peer.machine.knowsReasons = true }
      guard case .request(let id, _, _, _, _) = event else { return }
      guard peer.id == 0 else { return peer.send("1", on: id, number: 1) }
      peer.machine.close(.requestTooLarge, "why")
    }) { server in
      let connection = try StreamConnection(socket: server.path)
      let policy = ReconnectPolicy(first: .milliseconds(1))
      #expect(await connection.stream("s", reconnect: policy).probe(1).next() == .value("1"))
    }
  }
}
