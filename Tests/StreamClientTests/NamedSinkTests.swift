import ClientTestSupport
import Glibc
import RSocket
import Reactive
import StreamClient
import Testing

/// Sinks that outlive their connection.
@Suite(.timeLimit(.minutes(10))) struct NamedSinkTests {
  private let completions = Recorder<Subscribers.Completion<StreamError>>()
  private let reports = Recorder<ReconnectPolicy.Report>()
  private static let loss = StreamError.disconnected("the server closed the connection")

  private func name(_ name: String? = "p", from number: UInt64 = 1) -> PublisherName {
    let policy = ReconnectPolicy(first: .milliseconds(1)) { [reports] in reports.record($0) }
    return PublisherName(name, firstNumber: number, reconnect: policy)
  }

  private func publish(_ values: [String], to server: ScriptedServer, _ name: PublisherName) throws -> AnyCancellable {
    try StreamConnection(socket: server.path).publish(values.publisher, to: "s", as: name) { [completions] in
      completions.record($0)
    }
  }

  /// The server's confirmation: the number up to which all values are stored, and at first the next number.
  private static func numbers(_ numbers: UInt64...) -> Payload {
    Payload(data: numbers.flatMap { number in (0..<8).map { UInt8(truncatingIfNeeded: number >> (56 - 8 * $0)) } })
  }

  private func expectValues(
    _ texts: [String], _ server: ScriptedServer, sourceLocation: SourceLocation = #_sourceLocation
  ) async throws {
    for text in texts {
      let expected = ServerEvent.other(.payload(StreamID(1), Payload(data: Array(text.utf8)), isComplete: false))
      #expect(await server.next() == expected, sourceLocation: sourceLocation)
    }
  }

  @Test func unconfirmedValuesAreSentAgainOnTheNextConnection() async throws {
    try await ScriptedServer.run { server in
      let publishing = try publish(["1", "2", "3", "4", "5"], to: server, name())
      #expect(await server.next() == .request(StreamID(1), .channel, Credit.unlimited, "s", ""))
      server.act { peer in
        peer.machine.sendPayload(StreamID(1), Self.numbers(0, 1))
        peer.machine.sendRequestN(StreamID(1), 3)
      }
      try await expectValues(["1", "2", "3"], server)
      server.act { peer in
        peer.machine.sendPayload(StreamID(1), Self.numbers(1))
        peer.close()
      }
      #expect(await server.next() == .request(StreamID(1), .channel, Credit.unlimited, "s", ""))
      #expect(await reports.next() == .lost(Self.loss))
      server.act(1) { peer in
        peer.machine.sendPayload(StreamID(1), Self.numbers(1, 3))  // 2 waits there for space
        peer.machine.sendRequestN(StreamID(1), 10)
      }
      #expect(await reports.next() == .resumed(missing: nil))
      try await expectValues(["3", "4", "5"], server)
      #expect(await server.next() == .other(.complete(StreamID(1))))
      server.act(1) { $0.close() }  // before the confirmation
      #expect(await server.next() == .request(StreamID(1), .channel, Credit.unlimited, "s", ""))
      server.act(2) { $0.machine.sendPayload(StreamID(1), Self.numbers(5, 6)) }
      #expect(await reports.next() == .lost(Self.loss))
      #expect(await reports.next() == .resumed(missing: nil))
      #expect(await server.next() == .other(.complete(StreamID(1))))
      server.act(2) { $0.machine.sendComplete(StreamID(1)) }
      #expect(await completions.next() == .finished)
      withExtendedLifetime(publishing) {}
    }
  }

  @Test func valuesThatTheStreamHasAreSkipped() async throws {
    try await ScriptedServer.run { server in
      let publishing = try publish((1...1000).map { "\($0)" }, to: server, name())
      guard case .request = await server.next() else { return #expect(Bool(false), "no request") }
      server.act { peer in
        peer.machine.sendPayload(StreamID(1), Self.numbers(998, 999))
        peer.machine.sendRequestN(StreamID(1), 128)
      }
      try await expectValues(["999", "1000"], server)
      #expect(await server.next() == .other(.complete(StreamID(1))))
      server.act { $0.machine.sendComplete(StreamID(1)) }
      #expect(await completions.next() == .finished)
      withExtendedLifetime(publishing) {}
    }
  }

  @Test func theSinkFinishesOnceAllValuesAreConfirmed() async throws {
    try await ScriptedServer.run { server in
      let publishing = try publish(["1"], to: server, name(from: 7))
      guard case .request = await server.next() else { return #expect(Bool(false), "no request") }
      server.act { peer in
        peer.machine.sendPayload(StreamID(1), Self.numbers(6, 7))
        peer.machine.sendRequestN(StreamID(1), 1)
      }
      try await expectValues(["1"], server)
      #expect(await server.next() == .other(.complete(StreamID(1))))
      server.act { peer in
        peer.machine.sendPayload(StreamID(1), Self.numbers(7))
        peer.close()
      }
      #expect(await completions.next() == .finished)
      #expect(server.connectionCount == 1)
      withExtendedLifetime(publishing) {}
    }
  }

  @Test(arguments: [
    (ErrorCode.rejected, StreamError.rejected("why")), (.invalid, .invalid("why")),
    (.applicationError, .failed(.applicationError, "why")),
  ]) func anErrorThatIsNotALossEndsTheSink(code: ErrorCode, expected: StreamError) async throws {
    try await ScriptedServer.run(script: { peer, event in
      if case .request(let id, _, _, _, _) = event { peer.machine.sendError(id, code, "why") }
    }) { server in
      let publishing = try publish(["1"], to: server, name())
      #expect(await completions.next() == .failure(expected))
      withExtendedLifetime(publishing) {}
    }
  }

  @Test(arguments: [[0], [1, 1], [5, 3], [0, 0]] as [[UInt64]])
  func anInvalidConfirmationEndsTheSink(numbers: [UInt64]) async throws {
    try await ScriptedServer.run(script: { peer, event in
      guard case .request(let id, _, _, _, _) = event else { return }
      peer.machine.sendPayload(
        id,
        Payload(data: numbers.flatMap { number in (0..<8).map { UInt8(truncatingIfNeeded: number >> (56 - 8 * $0)) } }))
    }) { server in
      let publishing = try publish(["1"], to: server, name())
      #expect(
        await completions.next() == .failure(.failed(.invalid, "unexpected confirmation from the server")))
      withExtendedLifetime(publishing) {}
    }
  }

  @Test func generatedNamesAreUnique() {
    let names = Set((0..<100).map { _ in PublisherName().name })
    #expect(names.count == 100 && names.allSatisfy { (1...48).contains($0.utf8.count) })
  }

  @Test func anInvalidNameIsAFailure() async throws {
    try await ScriptedServer.run { server in
      let publishing = try publish(["1"], to: server, name(""))
      #expect(
        await completions.next() == .failure(.invalid("a publisher's name has 1 to 48 bytes, not 0")))
      withExtendedLifetime(publishing) {}
    }
  }

  @Test func aCancelledSinkDoesNotReconnect() async throws {
    try await ScriptedServer.run { server in
      let publishing = try publish(["1"], to: server, name())
      guard case .request(let id, _, _, _, _) = await server.next() else { return #expect(Bool(false), "no request") }
      publishing.cancel()
      #expect(await server.next() == .other(.cancel(id)))
      #expect(server.connectionCount == 1)
    }
  }
}
