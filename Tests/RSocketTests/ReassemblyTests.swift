import RSocket
import Testing

@Suite struct ReassemblyTests {
  private let id = StreamID(1)

  private func first(_ kind: RequestKind, _ payload: Payload, id: StreamID = StreamID(1)) -> Frame {
    .request(id, kind, initialRequest: 2, payload, follows: true, isComplete: false)
  }

  private func fragment(
    _ payload: Payload, id: StreamID = StreamID(1), follows: Bool, isComplete: Bool = false, isNext: Bool = true
  ) -> Frame {
    .payload(id, payload, follows: follows, isComplete: isComplete, isNext: isNext)
  }

  @Test(arguments: RequestKind.allCases) func aRequestInFragmentsIsToldOnceWhole(kind: RequestKind) {
    let server = Side.openServer()
    let demand: UInt32 = [.response: 1, .fireAndForget: 0][kind] ?? 2
    #expect(server.receive(first(kind, Payload("", metadata: [1]))) == [])
    #expect(server.machine.liveCount == 1)
    #expect(server.receive(fragment(Payload("ab", metadata: [2]), follows: true, isNext: false)) == [])
    #expect(
      server.receive(fragment(Payload("c"), follows: false)) == [
        .request(
          id, kind, initialRequest: demand, Payload("abc", metadata: [1, 2]), isComplete: kind != .channel)
      ])
    #expect(server.machine.isLive(id) == (kind != .fireAndForget))
  }

  @Test(arguments: [700, 30_000, 70_000, 600_000])
  func aFrameInPiecesTakesNoMoreMemoryThanItHasBytes(chunkByteCount: Int) {
    let server = Side.openServer()
    let frame = first(.stream, Payload(String(repeating: "a", count: 1 << 20))).encoded
    _ = server.receive(Array(frame.dropLast()), chunkByteCount: chunkByteCount)
    // The allocator rounds up.
    #expect(server.machine.partialByteCount(perRequest: 0) <= frame.count + 8192)
  }

  @Test func fragmentsOfSeveralRequestsMayBeMixed() {
    let server = Side.openServer()
    let events = server.receive(
      first(.stream, Payload("a")), first(.stream, Payload("x"), id: StreamID(3)),
      fragment(Payload("b"), follows: true),
      fragment(Payload("y"), id: StreamID(3), follows: false), fragment(Payload("c"), follows: false))
    #expect(
      events == [
        .request(StreamID(3), .stream, initialRequest: 2, Payload("xy"), isComplete: true),
        .request(id, .stream, initialRequest: 2, Payload("abc"), isComplete: true),
      ])
  }

  @Test  // SEMANTICS 28
  func aValueInFragmentsCostsOneCredit() {
    let client = Side.openClient()
    _ = client.request(.stream, initialRequest: 1)
    let events = client.receive(
      fragment(Payload("a"), follows: true), fragment(Payload("b"), follows: true, isNext: false),
      fragment(Payload("c"), follows: false, isComplete: true, isNext: false))
    #expect(events == [.payload(id, Payload("abc"), isComplete: true)])
    #expect(client.machine.liveCount == 0)
  }

  @Test func theFirstFragmentOfAValueBeyondTheCreditIsAlreadyTooMuch() {
    let server = Side.openServer()
    _ = server.receive(.request(id, .channel, initialRequest: 1, Payload(), follows: false, isComplete: false))
    #expect(server.receive(fragment(Payload("a"), follows: true)).count == 1)
    #expect(server.machine.isClosed)
  }

  @Test func theCompleteFlagMakesAFragmentTheLastOne() {
    let client = Side.openClient()
    _ = client.request(.stream, initialRequest: 1)
    #expect(
      client.receive(fragment(Payload("a"), follows: true, isComplete: true)) == [
        .payload(id, Payload("a"), isComplete: true)
      ])
  }

  @Test func aChannelsRequestMaySayInItsFirstOrItsLastFragmentThatThereIsNoFurtherValue() {
    for isFirst in [true, false] {
      let server = Side.openServer()
      let events = server.receive(
        .request(id, .channel, initialRequest: 1, Payload("a"), follows: true, isComplete: isFirst),
        fragment(Payload("b"), follows: false, isComplete: !isFirst))
      #expect(events == [.request(id, .channel, initialRequest: 1, Payload("ab"), isComplete: true)])
    }
  }

  @Test func demandThatComesBetweenFragmentsOfARequestIsInItsInitialDemand() {
    let server = Side.openServer()
    let events = server.receive(
      first(.stream, Payload("a")), .requestN(id, 3), .requestN(id, Credit.unlimited - 9),
      fragment(Payload("b"), follows: false))
    #expect(events == [.request(id, .stream, initialRequest: Credit.unlimited - 4, Payload("ab"), isComplete: true)])
  }

  @Test func aRequestGivenUpBetweenItsFragmentsWasNeverThere() throws {
    for end in [Frame.cancel(id), .error(id, .applicationError, ""), .requestN(id, 0)] {
      let server = Side.openServer()
      let events = server.receive(
        first(.stream, Payload("a")), end, fragment(Payload("b"), follows: true), fragment(Payload("c"), follows: false)
      )
      #expect(events == [])
      #expect(server.machine.liveCount == 0)
      #expect(server.receive(first(.stream, Payload())).isEmpty)
    }
  }

  @Test func aValuesFragmentsDieWithTheirRequestAndGiveTheirRoomBack() {
    let server = Side.openServer(limits: ConnectionLimits(maximumRequestBytes: 100))
    for id in stride(from: UInt32(1), to: 41, by: 2).map({ StreamID($0) }) {
      _ = server.receive(.request(id, .channel, initialRequest: 1, Payload(), follows: false, isComplete: false))
      server.machine.sendRequestN(id, 1)
      let part = Payload(data: [UInt8](repeating: 0, count: 60))
      #expect(server.receive(fragment(part, id: id, follows: true), .cancel(id)) == [.cancel(id)])
    }
    #expect(!server.machine.isClosed)
  }

  @Test func aValueOverTheLimitEndsItsRequestAlone() {
    for sizes in [[60, 41], [60, 30, 11], [60, 60, 1]] {
      let server = Side.openServer(limits: ConnectionLimits(maximumRequestBytes: 100))
      for id in [StreamID(1), StreamID(3)] {
        _ = server.receive(.request(id, .channel, initialRequest: 1, Payload(), follows: false, isComplete: false))
        server.machine.sendRequestN(id, 5)
      }
      let parts = sizes.enumerated().map { index, size in
        fragment(Payload(data: [UInt8](repeating: 0, count: size)), follows: index < sizes.count - 1)
      }
      #expect(parts.flatMap { server.receive($0) } == [.valueTooLarge(StreamID(1))])
      #expect(server.receive(fragment(Payload("more"), follows: false)) == [])
      server.machine.sendError(StreamID(1), .invalid, "too large")
      #expect(
        server.receive(fragment(Payload("a"), id: StreamID(3), follows: false))
          == [.payload(StreamID(3), Payload("a"), isComplete: false)])
      #expect(!server.machine.isClosed && server.machine.liveCount == 1)
    }
  }

  @Test func aWholeRequestOverTheLimitIsConnectionErrorOneAtTheLimitIsNot() {
    for (count, isFine) in [(100, true), (101, false)] {
      let server = Side.openServer(limits: ConnectionLimits(maximumRequestBytes: 100))
      let half = Payload(metadata: [UInt8](repeating: 0, count: 10), data: [UInt8](repeating: 0, count: 40))
      let rest = Payload(data: [UInt8](repeating: 0, count: count - 50))
      let events = server.receive(first(.stream, half), fragment(rest, follows: false))
      #expect(server.machine.isClosed == !isFine)
      #expect(events.count == 1)
    }
  }

  @Test func theFragmentsOfAllRequestsTogetherAreHeldToTheLimit() {
    let server = Side.openServer(limits: ConnectionLimits(maximumRequestBytes: 100))
    let part = Payload(data: [UInt8](repeating: 0, count: 40))
    #expect(server.receive(first(.stream, part), first(.stream, part, id: StreamID(3))) == [])
    let message = "the fragments up to request 5 exceed the limit of 100 bytes"
    #expect(server.receive(first(.stream, part, id: StreamID(5))) == [.closed(.connectionError, message)])
  }

  @Test func fragmentsOfARefusedRequestAreIgnored() throws {
    let server = Side.openServer(limits: ConnectionLimits(maximumRequests: 0))
    #expect(
      server.receive(
        first(.stream, Payload("a")), fragment(Payload("b"), follows: false),
        first(.fireAndForget, Payload("a"), id: StreamID(3)), fragment(Payload("b"), id: StreamID(3), follows: false))
        == [])
    #expect(try server.takeFrames().count == 1)
  }
}
