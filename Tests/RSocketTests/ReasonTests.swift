import Testing

@testable import RSocket

@Suite struct ReasonTests {
  private static let stopping = ErrorCode(rawValue: 0x203_001c)

  private func server(knowsReasons: Bool, limits: ConnectionLimits = ConnectionLimits()) -> Side {
    let server = Side.openServer(limits: limits)
    server.machine.knowsReasons = knowsReasons
    return server
  }

  private func request(_ id: UInt32, follows: Bool = false, byteCount: Int = 1) -> Frame {
    let payload = Payload(metadata: [1, 0x61], data: [UInt8](repeating: 0, count: byteCount))
    return .request(StreamID(id), .stream, initialRequest: 1, payload, follows: follows, isComplete: false)
  }

  @Test func onlyAClientThatKnowsReasonsGetsThem() throws {
    for knowsReasons in [false, true] {
      let server = server(knowsReasons: knowsReasons)
      _ = server.receive(request(1).encoded)
      server.machine.sendError(StreamID(1), Self.stopping, "why")
      server.machine.close(ErrorCode(rawValue: 0x102_001c), "why")
      let codes: (ErrorCode, ErrorCode) =
        knowsReasons ? (Self.stopping, ErrorCode(rawValue: 0x102_001c)) : (.canceled, .connectionClose)
      #expect(
        try Frame.decodeAll(server.machine.takeOutput())
          == [.error(StreamID(1), codes.0, "why"), .error(.connection, codes.1, "why")])
    }
  }

  @Test func theReasonOfTheMachinesOwnRefusalIsSent() throws {
    let server = server(knowsReasons: true, limits: ConnectionLimits(maximumRequests: 0))
    _ = server.receive(request(1).encoded)
    guard case .error(_, .tooManyRequests, _)?? = try Frame.decodeAll(server.machine.takeOutput()).first else {
      Issue.record("no ERROR with a reason")
      return
    }
    #expect(ErrorCode.tooManyRequests.base == .rejected && ErrorCode.tooLarge.base == .invalid)
    #expect(ErrorCode.requestTooLarge.base == .connectionError && ErrorCode.lagged.base == .lagged)
  }

  /// Others of the client's requests are not the cause.
  @Test func aRequestThatIsTooLargeHasAnErrorOfItsOwn() throws {
    for knowsReasons in [false, true] {
      let server = server(knowsReasons: knowsReasons, limits: ConnectionLimits(maximumRequestBytes: 100))
      #expect(server.receive(request(1).encoded).count == 1)
      #expect(server.receive(request(3, follows: true, byteCount: 60).encoded) == [])
      let rest = Payload(data: [UInt8](repeating: 0, count: 60))
      let events = server.receive(
        Frame.payload(StreamID(3), rest, follows: false, isComplete: false, isNext: true).encoded)
      #expect(
        events == [.closed(.connectionError, "the fragments up to request 3 exceed the limit of 100 bytes")])
      let frames = try Frame.decodeAll(server.machine.takeOutput())
      let codes = frames.map { frame -> ErrorCode? in if case .error(_, let code, _)? = frame { code } else { nil } }
      #expect(codes == (knowsReasons ? [.tooLarge, .requestTooLarge] : [.connectionError]))
    }
  }

  @Test func theNextProcessKnowsIt() {
    let server = server(knowsReasons: true)
    #expect(ConnectionMachine(restoring: server.machine.save(), limits: ConnectionLimits()).knowsReasons)
  }
}
