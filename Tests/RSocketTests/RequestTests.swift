import Testing

@testable import RSocket

/// One side at a time: how requests begin, continue and end.
@Suite struct RequestTests {
  private let id = StreamID(1)

  private func open(
    _ kind: RequestKind, initialRequest: UInt32 = 1, id: StreamID = StreamID(1), isComplete: Bool = false
  ) -> Frame {
    .request(
      id, kind, initialRequest: initialRequest, Payload("q"), follows: false, isComplete: isComplete)
  }

  private func value(_ id: StreamID, _ text: String, isComplete: Bool = false) -> Frame {
    .payload(id, Payload(text), follows: false, isComplete: isComplete, isNext: true)
  }

  // MARK: Responder

  @Test(arguments: RequestKind.allCases)
  func eachKindOfRequestIsToldOnceAndLivesUntilItIsAnswered(kind: RequestKind) throws {
    let server = Side.openServer()
    let demand: [RequestKind: UInt32] = [.response: 1, .fireAndForget: 0]
    #expect(
      server.receive(open(kind, initialRequest: 5)) == [
        .request(id, kind, initialRequest: demand[kind] ?? 5, Payload("q"), isComplete: kind != .channel)
      ])
    #expect(server.machine.isLive(id) == (kind != .fireAndForget))
    server.machine.sendError(id, .rejected, "no")
    #expect(server.machine.liveCount == 0)
    #expect(try server.takeFrames() == (kind == .fireAndForget ? [] : [.error(id, .rejected, "no")]))
  }

  @Test func theAnswerToAResponseRequestEndsItSaidOrNot() throws {
    let server = Side.openServer()
    _ = server.receive(open(.response))
    server.machine.sendPayload(id, Payload("a"))
    server.machine.sendPayload(id, Payload("b"))
    #expect(try server.takeFrames() == [value(id, "a", isComplete: true)])
    #expect(!server.machine.isLive(id))
  }

  @Test func aStreamEndsWithALastValueCompleteErrorOrAFrameThatTheOwnerWritesByItself() throws {
    let ends: [(inout ConnectionMachine) -> Void] = [
      { $0.sendPayload(StreamID(1), Payload("z"), isComplete: true) }, { $0.sendComplete(StreamID(1)) },
      { $0.sendError(StreamID(1), .applicationError, "e") }, { $0.end(StreamID(1)) },
    ]
    let frames: [[Frame]] = [
      [value(id, "z", isComplete: true)],
      [.payload(id, Payload(), follows: false, isComplete: true, isNext: false)],
      [.error(id, .applicationError, "e")], [],
    ]
    for (end, frames) in zip(ends, frames) {
      let server = Side.openServer()
      _ = server.receive(open(.stream))
      end(&server.machine)
      end(&server.machine)
      #expect(try server.takeFrames() == frames)
      #expect(server.machine.liveCount == 0)
      #expect(server.receive(.requestN(id, 1), .cancel(id)) == [])
    }
  }

  @Test(arguments: [RequestKind.response, .stream, .channel])
  func cancelEndsARequestAndSendingForItThenDoesNothing(kind: RequestKind) {
    let server = Side.openServer()
    _ = server.receive(open(kind))
    #expect(server.receive(.cancel(id), .cancel(id)) == [.cancel(id)])
    server.machine.sendPayload(id, Payload("late"))
    server.machine.sendComplete(id)
    server.machine.sendRequestN(id, 1)
    server.machine.sendError(id, .invalid, "late")
    #expect(!server.machine.hasOutput)
  }

  @Test(arguments: [UInt32(0), 0x8000_0000, .max])
  func aDemandThatIsNoneEndsThatRequestAloneWithInvalid(count: UInt32) throws {  // SEMANTICS 15
    let server = Side.openServer()
    _ = server.receive(open(.stream), open(.stream, id: StreamID(3)))
    #expect(server.receive(.requestN(id, count), .requestN(id, 1)) == [.cancel(id)])
    #expect(try server.takeFrames() == [.error(id, .invalid, "a demand of \(count) is not 1...2147483647")])
    #expect(server.receive(.requestN(StreamID(3), 2)) == [.requestN(StreamID(3), 2)])
  }

  @Test(arguments: [RequestKind.stream, .channel])
  func aRequestThatBeginsWithoutDemandIsInvalidAndNeverTold(kind: RequestKind) throws {  // SEMANTICS 15
    let server = Side.openServer()
    #expect(server.receive(open(kind, initialRequest: 0)) == [])
    #expect(
      try server.takeFrames() == [.error(id, .invalid, "an initial demand of 0 is not 1...2147483647")])
    #expect(server.machine.liveCount == 0)
  }

  @Test func demandForAResponseIsIgnored() {
    let server = Side.openServer()
    _ = server.receive(open(.response))
    #expect(server.receive(.requestN(id, 4), .requestN(id, 0)) == [])
    #expect(server.machine.isLive(id))
  }

  @Test func overTheLimitOfRequestsAFurtherOneIsRejectedUntilOneEnds() throws {
    let server = Side.openServer(limits: ConnectionLimits(maximumRequests: 2))
    _ = server.receive(open(.stream), open(.channel, id: StreamID(3)))
    #expect(server.receive(open(.stream, id: StreamID(5)), open(.fireAndForget, id: StreamID(7))) == [])
    let message = "more than 2 requests at once on one connection"
    #expect(try server.takeFrames() == [.error(StreamID(5), .rejected, message)])
    server.machine.sendComplete(id)
    #expect(server.receive(open(.stream, id: StreamID(9))).count == 1)
    #expect(server.machine.liveCount == 2)
  }

  @Test func idsNeedNotRiseASmallerOneAndOneThatWasUsedBeforeAreRequestsLikeAnyOther() {
    let server = Side.openServer()
    for id in [9, 3, 7, 1, 5] as [UInt32] { _ = server.receive(open(.stream, id: StreamID(id))) }
    #expect(server.machine.liveCount == 5)
    for id in [7, 1, 9, 5, 3] as [UInt32] { #expect(server.receive(.cancel(StreamID(id))) == [.cancel(StreamID(id))]) }
    #expect(server.receive(open(.stream, id: StreamID(3))).count == 1)
  }

  @Test func aServerCancelsNothingItEndsRequestsWithErrors() {
    let server = Side.openServer()
    _ = server.receive(open(.channel))
    server.machine.sendCancel(id)
    #expect(!server.machine.hasOutput)
    #expect(server.machine.isLive(id))
  }

  // MARK: Publishing on a channel

  @Test func aChannelsValuesComeAgainstCreditAndItsHalvesEndOneByOne() throws {
    let server = Side.openServer()
    _ = server.receive(open(.channel))
    server.machine.sendRequestN(id, 2)
    server.machine.sendRequestN(id, 1)
    #expect(try server.takeFrames() == [.requestN(id, 2), .requestN(id, 1)])
    #expect(
      server.receive(value(id, "a"), value(id, "b"), value(id, "c", isComplete: true)) == [
        .payload(id, Payload("a"), isComplete: false), .payload(id, Payload("b"), isComplete: false),
        .payload(id, Payload("c"), isComplete: true),
      ])
    #expect(server.receive(value(id, "late")) == [])
    server.machine.sendRequestN(id, 1)
    #expect(server.machine.isLive(id))
    server.machine.sendComplete(id)
    #expect(!server.machine.isLive(id))
    #expect(
      try server.takeFrames() == [.payload(id, Payload(), follows: false, isComplete: true, isNext: false)])
  }

  @Test func aPublisherMayEndWithoutAValueOrWithItsFirstOne() {
    let server = Side.openServer()
    _ = server.receive(open(.channel))
    let complete = Frame.payload(id, Payload(), follows: false, isComplete: true, isNext: false)
    #expect(server.receive(complete, complete) == [.complete(id)])
    #expect(
      server.receive(open(.channel, id: StreamID(3), isComplete: true)) == [
        .request(StreamID(3), .channel, initialRequest: 1, Payload("q"), isComplete: true)
      ])
    server.machine.end(id)
    server.machine.end(StreamID(3))
    #expect(server.machine.liveCount == 0)
  }

  @Test(arguments: [UInt32(0), 1, 3]) func aPublisherThatSendsBeyondItsCreditIsCutOff(credit: UInt32) {
    let server = Side.openServer()
    _ = server.receive(open(.channel))
    if credit > 0 { server.machine.sendRequestN(id, credit) }
    for _ in 0..<credit { #expect(server.receive(value(id, "v")) == [.payload(id, Payload("v"), isComplete: false)]) }
    let message = "a value for request 1 exceeds the credit"
    #expect(server.receive(value(id, "v")) == [.closed(.connectionError, message)])
  }

  /// The events of frames in one piece for a machine that gathers values, and the values in the range of each run.
  private func gathered(_ server: Side, _ bytes: [UInt8]) -> (events: [Side.Event], runs: [[Payload]]) {
    var events: [Side.Event] = []
    bytes.withUnsafeBytes { server.machine.receive($0, gathersValues: true, into: &events) }
    let runs = events.compactMap { event -> [Payload]? in
      guard case .payloads(id, let range) = event else { return nil }
      return bytes[range].withUnsafeBytes { run in
        PayloadFrames(run).map { Payload(metadata: $0.metadata.map { [UInt8]($0) }, data: [UInt8]($0.data)) }
      }
    }
    return (events, runs)
  }

  @Test func valuesInARowAreToldOfInOnePieceAsFarAsTheyAreOneFrameEachAndNotTheLast() {
    let server = Side.openServer()
    _ = server.receive(open(.channel))
    server.machine.sendRequestN(id, 9)
    let values = [Payload("a"), Payload(), Payload("c", metadata: [1, 2]), Payload("d", metadata: [])]
    let frames = values.map { Frame.payload(id, $0, follows: false, isComplete: false, isNext: true) }
    let last = value(id, "e", isComplete: true)
    let (events, runs) = gathered(server, (frames + [.cancel(StreamID(9)), frames[0], last]).flatMap(\.encoded))
    #expect(runs == [values, [values[0]]])
    #expect(events.count == 3)
    #expect(events.last == .payload(id, Payload("e"), isComplete: true))
  }

  @Test func aClientThatGathersValuesCancelsARequestWhoseValueExceedsTheLimitAsWithoutGathering() throws {
    for gathersValues in [false, true] {
      var client = ConnectionMachine(
        connectingWith: Setup(), limits: ConnectionLimits(maximumRequestBytes: 8, maximumFrameBytes: 512))
      let requested = client.request(.stream, initialRequest: 9, Payload())
      let id = try #require(requested)
      _ = client.takeOutput()
      let bytes = ["small", "much larger"].flatMap { value(id, $0).encoded }
      var events: [ConnectionMachine.Event] = []
      bytes.withUnsafeBytes { client.receive($0, gathersValues: gathersValues, into: &events) }
      #expect(events.count == 2)
      #expect(events.last == .error(id, .invalid, "a value has more than 8 bytes, the limit of the receiver"))
      #expect(client.takeOutput() == Frame.cancel(id).encoded)
    }
  }

  @Test(arguments: [UInt32(1), 3]) func whoGathersValuesGetsNoneBeyondTheCredit(credit: UInt32) {
    let server = Side.openServer()
    _ = server.receive(open(.channel))
    server.machine.sendRequestN(id, credit)
    let (events, runs) = gathered(server, (0...credit).flatMap { _ in value(id, "v").encoded })
    #expect(runs.map(\.count) == [Int(credit)])
    #expect(events.last == .closed(.connectionError, "a value for request 1 exceeds the credit"))
  }

  @Test func whoGathersValuesIsToldOfAMetadataLengthPastItsFrameBehindTheValuesBeforeIt() {
    let server = Side.openServer()
    _ = server.receive(open(.channel))
    server.machine.sendRequestN(id, 9)
    var broken = Frame.payload(id, Payload("x", metadata: [1]), follows: false, isComplete: false, isNext: true).encoded
    broken[PayloadFrame.headerByteCount + 2] = 3
    let (events, runs) = gathered(server, value(id, "v").encoded + broken)
    #expect(runs == [[Payload("v")]])
    guard case .closed(.connectionError, let message) = events.last else { return #expect(Bool(false)) }
    #expect(message.contains("metadata length of 3"))
  }

  @Test func creditAddsUpAndSaturatesAtUnlimitedWhichDoesNotWearOff() {  // SEMANTICS 15
    let server = Side.openServer()
    _ = server.receive(open(.channel))
    server.machine.sendRequestN(id, Credit.unlimited - 1)
    server.machine.sendRequestN(id, Credit.unlimited - 1)
    for _ in 0..<3 { #expect(server.receive(value(id, "v")).count == 1) }
    #expect(Credit.sum(Credit.unlimited, Credit.unlimited) == Credit.unlimited)
    #expect(Credit.sum(1, 2) == 3)
  }

  @Test func aPayloadWithNeitherNextNorCompleteIsMalformed() {
    let server = Side.openServer()
    _ = server.receive(open(.channel))
    let events = server.receive(.payload(id, Payload("v"), follows: false, isComplete: false, isNext: false))
    #expect(events == [.closed(.connectionError, "PAYLOAD for request 1 has neither next nor complete")])
  }

  @Test func valuesForARequestThatTakesNoneAreIgnored() {
    let server = Side.openServer()
    _ = server.receive(open(.stream))
    #expect(server.receive(value(id, "v")) == [])
    #expect(server.machine.isLive(id))
  }

  @Test func aPublishersErrorEndsBothHalves() {
    let server = Side.openServer()
    _ = server.receive(open(.channel))
    #expect(server.receive(.error(id, .applicationError, "broke")) == [.error(id, .applicationError, "broke")])
    #expect(server.machine.liveCount == 0)
  }

  // MARK: Requester

  @Test func aClientsIDsAreOddAndRiseFireAndForgetDoesNotStay() throws {
    let client = Side.openClient()
    #expect(client.request(.stream, initialRequest: 4) == StreamID(1))
    #expect(client.request(.fireAndForget) == StreamID(3))
    #expect(client.request(.response) == StreamID(5))
    #expect(client.machine.liveCount == 2)
    #expect(
      try client.takeFrames() == [
        .request(StreamID(1), .stream, initialRequest: 4, Payload(), follows: false, isComplete: false),
        .request(StreamID(3), .fireAndForget, initialRequest: 0, Payload(), follows: false, isComplete: false),
        .request(StreamID(5), .response, initialRequest: 1, Payload(), follows: false, isComplete: false),
      ])
  }

  @Test func afterTheLastIDComeTheFirstOnesAgainPastThoseInUse() {
    let client = Side.openClient()
    #expect(client.request(.stream) == StreamID(1))
    client.machine.lastRequestID = 0x7fff_fffd
    #expect(client.request(.stream) == StreamID(0x7fff_ffff))
    #expect(client.request(.stream) == StreamID(3))
  }

  @Test func aServerThatSendsBeyondTheClientsDemandIsCutOff() {
    let client = Side.openClient()
    _ = client.request(.stream, initialRequest: 1)
    #expect(client.receive(value(id, "a")) == [.payload(id, Payload("a"), isComplete: false)])
    client.machine.sendRequestN(id, 1)
    #expect(client.receive(value(id, "b")) == [.payload(id, Payload("b"), isComplete: false)])
    let message = "a value for request 1 exceeds the credit"
    #expect(client.receive(value(id, "c")) == [.closed(.connectionError, message)])
  }

  @Test func aResponseWithoutTheCompleteFlagIsCompleteAllTheSame() {
    let client = Side.openClient()
    _ = client.request(.response)
    #expect(client.receive(value(id, "a"), value(id, "b")) == [.payload(id, Payload("a"), isComplete: true)])
    #expect(client.machine.liveCount == 0)
  }

  @Test func afterCancelNothingMoreIsToldAndTheServersLateValuesDoNoHarm() throws {  // SEMANTICS 20
    let client = Side.openClient()
    _ = client.request(.stream, initialRequest: 1)
    _ = client.take()
    client.machine.sendCancel(id)
    client.machine.sendCancel(id)
    client.machine.sendRequestN(id, 1)
    #expect(try client.takeFrames() == [.cancel(id)])
    #expect(client.receive(value(id, "a"), value(id, "b"), .error(id, .canceled, "")) == [])
  }

  @Test func aClientsChannelCancelFromTheServerClosesTheClientsHalfOnly() throws {
    let client = Side.openClient()
    _ = client.request(.channel, initialRequest: 1)
    _ = client.take()
    #expect(client.receive(.requestN(id, 3), .cancel(id)) == [.requestN(id, 3), .cancel(id)])
    client.machine.sendPayload(id, Payload("late"))
    #expect(!client.machine.hasOutput)
    #expect(client.receive(value(id, "bye", isComplete: true)) == [.payload(id, Payload("bye"), isComplete: true)])
    #expect(client.machine.liveCount == 0)
  }

  @Test func aDemandThatIsNoneFromTheServerFailsThatChannel() throws {  // SEMANTICS 15
    let client = Side.openClient()
    _ = client.request(.channel, initialRequest: 1)
    _ = client.take()
    let message = "a demand of 0 is not 1...2147483647"
    #expect(client.receive(.requestN(id, 0)) == [.error(id, .invalid, message)])
    #expect(try client.takeFrames() == [.error(id, .invalid, message)])
  }

  @Test func aClientRefusesRequestsByItself() throws {
    let client = Side.openClient()
    #expect(client.receive(open(.stream, id: StreamID(2)), open(.fireAndForget, id: StreamID(4))) == [])
    #expect(try client.takeFrames() == [.error(StreamID(2), .rejected, "this client accepts no requests")])
  }

  // MARK: Leases

  @Test func withLeasesRequestsBeyondTheLeaseAreRejectedAndNeverTold() throws {
    let server = Side.openServer(Setup(honorsLease: true))
    let message = "the lease allows no more requests"
    #expect(server.receive(open(.stream)) == [])
    server.machine.sendLease(timeToLive: .seconds(5), count: 2)
    #expect(
      try server.takeFrames() == [
        .error(id, .rejected, message), .lease(timeToLive: .seconds(5), count: 2, metadata: nil),
      ])
    let more = [3, 5, 7, 9].map { open($0 == 5 ? .fireAndForget : .stream, id: StreamID($0)) }
    #expect(server.receive(more.flatMap(\.encoded)).count == 2)
    #expect(
      try server.takeFrames() == [.error(StreamID(7), .rejected, message), .error(StreamID(9), .rejected, message)])
  }

  @Test func aClientKeepsToItsLeaseAndToTheLastOneOnly() {
    let client = Side.openClient(Setup(honorsLease: true))
    #expect(client.request(.stream) == nil)
    let lease = Frame.lease(timeToLive: .seconds(1), count: 1, metadata: nil)
    #expect(client.receive(lease, lease).count == 2)
    #expect(client.request(.stream) == StreamID(1))
    #expect(client.request(.stream) == nil)
    #expect(client.receive(.lease(timeToLive: .zero, count: 5, metadata: nil)).count == 1)
    #expect(client.request(.stream) == nil)
    #expect(client.receive(lease) == [.lease(timeToLive: .seconds(1), count: 1)])
  }

  @Test func withoutTheLeaseFlagThereAreNoLeases() {
    let server = Side.openServer()
    server.machine.sendLease(timeToLive: .seconds(1), count: 0)
    #expect(!server.machine.hasOutput)
    #expect(server.receive(open(.stream)).count == 1)
    #expect(Side.openClient().receive(.lease(timeToLive: .seconds(1), count: 0, metadata: nil)) == [])
  }
}
