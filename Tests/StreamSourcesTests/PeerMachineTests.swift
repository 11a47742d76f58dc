import Events
import RSocket
import StreamProtocol
import StreamRuntime
import Testing

@testable import StreamSources

/// The other streamd of a machine under test.
private struct OtherStreamd {
  var server = ConnectionMachine(acceptingWith: ConnectionLimits())
  var setup: Setup?
  /// The options of each request, by id.
  var requests: [(id: StreamID, credit: UInt32, options: String)] = []
  var granted: [UInt32] = []

  /// Receives what the machine sends.
  mutating func receive(from machine: inout PeerMachine) {
    var events: [ConnectionMachine.Event] = []
    machine.session.machine.takeOutput().withUnsafeBytes { server.receive($0, into: &events) }
    for event in events {
      switch event {
      case .setup(let setup): self.setup = setup
      case .request(let id, _, let credit, let payload, _):
        requests.append((id, credit, String(decoding: payload.data, as: UTF8.self)))
      case .requestN(_, let count): granted.append(count)
      default: Issue.record("\(event)")
      }
    }
  }

  mutating func send(_ text: String, _ id: UInt64, leftOut: UInt64? = nil, gap: UInt64? = nil, kind: UInt8? = nil) {
    let numbers: [UInt64] = [id, 1_000_000, leftOut, gap].compactMap(\.self)
    var metadata = numbers.flatMap { number in (0..<8).map { UInt8(number >> (56 - 8 * $0) & 0xff) } }
    if let kind { metadata.append(kind) }
    server.sendPayload(request, Payload(metadata: metadata, data: Array(text.utf8)))
  }

  var request: StreamID { requests.last?.id ?? StreamID(1) }

  /// Passes what was sent to the machine, in pieces of that size.
  mutating func deliver(to machine: inout PeerMachine, by size: Int = .max, at now: Duration = .zero) {
    let bytes = server.takeOutput()
    for start in stride(from: 0, to: bytes.count, by: min(size, max(1, bytes.count))) {
      let piece = Array(bytes[start..<min(bytes.count, start + min(size, bytes.count))])
      piece.withUnsafeBytes { machine.receive($0, at: now) }
    }
  }
}

@Suite struct PeerMachineTests {
  private func configuration(_ change: (inout PeerConfiguration) -> Void = { _ in }) -> PeerConfiguration {
    var configuration = PeerConfiguration(address: .unix("/run/s"), stream: "quotes")
    change(&configuration)
    return configuration
  }

  /// A machine, and the other streamd with its first frames.
  private func begin(
    after id: UInt64? = 7, hasLostPosition: Bool = false, window: Int = 1000,
    _ change: (inout PeerConfiguration) -> Void = { _ in }
  ) -> (PeerMachine, OtherStreamd) {
    var machine = PeerMachine(
      configuration(change), after: id, hasLostPosition: hasLostPosition, window: window, at: .zero)
    var other = OtherStreamd()
    other.receive(from: &machine)
    return (machine, other)
  }

  private func texts(_ part: PeerMachine.Part?) -> [String]? {
    part?.events.map { String(decoding: $0, as: UTF8.self) }
  }

  @Test func itSubscribesOnceFromItsPosition() throws {
    let filter = try EventFilter(.init("/symbol", .equals("AAPL")))
    var (_, other) = begin { ($0.filter, $0.token) = (filter, "secret") }
    #expect(other.requests.map(\.credit) == [1000])
    #expect(
      other.requests.map(\.options) == [
        #"{"from":7,"on_lag":"skip","gaps":true,"marker":true,"where":{"/symbol":"AAPL"}}"#
      ])
    let setup = try #require(other.setup)
    #expect(setup.keepaliveInterval == .seconds(10) && setup.maximumLifetime == .seconds(30))
    #expect(
      try MetadataFormat.composite.bearerToken(in: setup.payload.metadata).map(Array.init) == Array("secret".utf8))
    (_, other) = begin(after: nil, window: 1)
    #expect(other.requests.map(\.credit) == [1] && other.setup?.payload.metadata == nil)
    #expect(other.requests.map(\.options) == [#"{"from":-9007199254740992,"on_lag":"skip","gaps":true}"#])
  }

  @Test(arguments: [1, 5, Int.max]) func whatIsReadTogetherIsABatch(size: Int) {
    var (machine, other) = begin()
    for id in 8..<12 as Range<UInt64> { other.send("e\(id)", id) }
    other.deliver(to: &machine, by: size)
    #expect(machine.hasParts && machine.isAnswered && machine.credit == 996 && machine.ending == nil)
    #expect(machine.takePart() == .init(events: ["e8", "e9", "e10", "e11"].batch, lastID: 11))
    #expect(machine.takePart() == nil && machine.lastID == 11)
  }

  @Test func aBatchHasALimit() {
    var (machine, other) = begin { $0.batchLimit = (events: 2, bytes: 10) }
    for (index, text) in ["1", "2", "3", "twelve bytes", "5", "6", "123456789"].enumerated() {
      other.send(text, UInt64(8 + index))
    }
    other.deliver(to: &machine)
    var parts: [[String]] = []
    while let part = machine.takePart() { parts.append(part.events.map { String(decoding: $0, as: UTF8.self) }) }
    #expect(parts == [["1", "2"], ["3"], ["twelve bytes"], ["5", "6"], ["123456789"]])
  }

  @Test func aGapIsALossBeforeItsEvent() {
    var (machine, other) = begin()
    other.send("a", 8)
    other.send("b", 12, gap: 3)
    other.send("c", 13)
    other.send("d", 1_000_000, gap: .max)
    other.deliver(to: &machine)
    #expect(texts(machine.takePart()) == ["a"])
    let lost = machine.takePart()
    #expect(texts(lost) == ["b", "c"] && lost?.events.loss == .known(3) && lost?.lastID == 13)
    let unknown = machine.takePart()
    #expect(texts(unknown) == ["d"] && unknown?.events.loss == .possible)
  }

  @Test func theBeginningIsALossOnlyAfterAnother() {
    for isLost in [false, true] {
      var (machine, other) = begin(after: nil, hasLostPosition: isLost)
      other.send("a", 100, gap: .max)
      other.send("b", 101)
      other.deliver(to: &machine)
      let part = machine.takePart()
      #expect(texts(part) == ["a", "b"] && part?.events.loss == (isLost ? .possible : nil) && part?.lastID == 101)
    }
  }

  @Test func aMarkerMovesThePosition() throws {
    let filter = try EventFilter(.init("/a", .equals(1)))
    var (machine, other) = begin { $0.filter = filter }
    other.send("x", 9, leftOut: 1, kind: 0)
    other.send("", 20, leftOut: 11, kind: 1)
    other.deliver(to: &machine)
    #expect(machine.takePart() == .init(events: ["x"].batch, lastID: 20))
    other.send("", 30, leftOut: 10, kind: 1)
    other.deliver(to: &machine)
    #expect(machine.takePart() == .init(events: EventBatch(), lastID: 30))
    #expect(machine.credit == 997)
    // In a stream without events.
    (machine, other) = begin(after: nil) { $0.filter = filter }
    other.send("", 0, leftOut: 0, kind: 1)
    other.deliver(to: &machine)
    #expect(!machine.hasParts && machine.lastID == nil && machine.ending == nil)
  }

  // MARK: Credit

  @Test func creditFollowsTheRate() throws {
    var (machine, other) = begin(window: 1)
    _ = try machine.next(at: .zero)
    #expect(machine.credit == 1)
    var (id, now) = (7 as UInt64, Duration.zero)
    /// Uses up the credit in that time, and takes all.
    func use(_ time: Duration) throws -> UInt32? {
      other.granted = []
      let count = machine.credit
      now += time
      for _ in 0..<count {
        id += 1
        other.send("e", id)
      }
      other.deliver(to: &machine, at: now)
      while machine.takePart() != nil {}
      _ = try machine.next(at: now)
      other.receive(from: &machine)
      return other.granted.first
    }
    // An event each second costs one in advance.
    for _ in 0..<3 { #expect(try use(.seconds(1)) == 1) }
    for count in [2, 4, 8, 16, 32, 64, 128, 256, 256] as [UInt32] {
      #expect(try use(.milliseconds(1)) == count)
    }
    #expect(try use(.milliseconds(500)) == 256)
    #expect(try use(.seconds(2)) == 128)
    #expect(machine.ending == nil)
  }

  @Test func halfOfTheWindowIsNotGrantedAgain() throws {
    var (machine, other) = begin(window: 8)
    for id in 8..<11 as Range<UInt64> { other.send("e", id) }
    other.deliver(to: &machine)
    _ = machine.takePart()
    _ = try machine.next(at: .milliseconds(500))
    other.receive(from: &machine)
    #expect(machine.credit == 5 && other.granted.isEmpty)
    other.send("e", 11)
    other.deliver(to: &machine)
    _ = try machine.next(at: .milliseconds(500))
    other.receive(from: &machine)
    #expect(machine.credit == 8 && other.granted == [4])
  }

  @Test func nothingIsGrantedWithoutDemand() throws {
    var (machine, other) = begin(window: 4)
    for id in 8..<12 as Range<UInt64> { other.send("e", id) }
    other.deliver(to: &machine)
    machine.session.setReading(false, at: .zero)
    _ = try machine.next(at: .seconds(60))
    other.receive(from: &machine)
    #expect(machine.credit == 0 && other.granted.isEmpty && other.requests.count == 1)
    machine.session.setReading(true, at: .seconds(60))
    _ = try machine.next(at: .seconds(60))
    other.receive(from: &machine)
    #expect(other.granted == [2])
  }

  // MARK: The end

  @Test func aSilentPeerIsDead() throws {
    var (machine, other) = begin()
    #expect(try machine.next(at: .zero) == .seconds(10))
    #expect(throws: PeerMachine.Ending.unanswered) { try machine.next(at: .seconds(30)) }
    (machine, other) = begin()
    _ = try machine.next(at: .zero)
    other.receive(from: &machine)
    other.deliver(to: &machine, at: .seconds(5))  // the answer to KEEPALIVE
    #expect(machine.isAnswered)
    #expect(try machine.next(at: .seconds(34)) == .seconds(35))
    // Nothing is read meanwhile, and no answer is requested.
    machine.session.setReading(false, at: .seconds(34))
    other.receive(from: &machine)
    _ = other.server.takeOutput()
    #expect(try machine.next(at: .seconds(100)) == .seconds(110))
    other.receive(from: &machine)
    #expect(!other.server.hasOutput)
    machine.session.setReading(true, at: .seconds(100))
    #expect(try machine.next(at: .seconds(129)) == .seconds(130))
    #expect(throws: PeerMachine.Ending.silent) { try machine.next(at: .seconds(130)) }
  }

  @Test(arguments: [
    (ErrorCode.rejected, "no stream named \"quotes\"", "the other streamd has no stream \"quotes\""),
    (
      .rejected, "uid 7 may not read \"quotes\"",
      "the other streamd does not let this one read \"quotes\": see read of the stream there"
    ),
    (.rejected, "more than 5 secret", "the other streamd refuses the subscription: a limit is reached there"),
    (.invalid, "secret", "the other streamd does not accept the subscription's options"),
    (.invalid, "no event has the id 9 yet", "the other streamd does not accept the subscription's options"),
    (.canceled, "streamd is restarting", "the other streamd has stopped"),
    (.canceled, "streamd restarts", "the other streamd has stopped"),
    (.canceled, "secret", "the other streamd has ended the subscription"),
    (
      .lagged, "secret", "the other streamd has ended the subscription, because its events were not read in time"
    ),
    (.applicationError, "secret", "the stream of the other streamd has failed"),
    (.init(rawValue: 0x999), "secret", "the other streamd has ended the subscription with 0x999"),
  ]) func anErrorIsASentenceWithoutItsText(code: ErrorCode, message: String, sentence: String) {
    var (machine, other) = begin()
    other.send("e", 8)
    other.server.sendError(other.request, code, message)
    other.deliver(to: &machine)
    #expect(texts(machine.takePart()) == ["e"])
    #expect(machine.ending == .init(failure: SourceFailure(sentence)))
  }

  /// Whatever the sentences say.
  @Test(arguments: [
    (FailureReason.noStream, "the other streamd has no stream \"quotes\""),
    (.mayNotRead, "the other streamd does not let this one read \"quotes\": see read of the stream there"),
    (.tooManyRequests, "the other streamd refuses the subscription: a limit is reached there"),
    (.invalidRequest, "the other streamd does not accept the subscription's options"),
    (.stopping, "the other streamd has stopped"), (.removed, "the other streamd has ended the subscription"),
    (.stalled, "the other streamd has ended the subscription, because its events were not read in time"),
    (.failed, "the stream of the other streamd has failed"),
  ]) func aReasonIsASentence(reason: FailureReason, sentence: String) {
    var (machine, other) = begin()
    #expect(other.setup.map { FailureReason.areAnnounced(by: $0.payload.data) } == true)
    other.server.knowsReasons = true
    other.server.sendError(other.request, ErrorCode(rawValue: reason.wireCode()), "no stream named \"quotes\"")
    other.deliver(to: &machine)
    #expect(machine.ending == .init(failure: SourceFailure(sentence)))
  }

  @Test func theRefusalOfAPositionIsRecognised() {
    var (machine, other) = begin()
    other.server.sendError(other.request, .invalid, "no event has the id 7 yet")
    other.deliver(to: &machine)
    #expect(machine.ending?.isOfPosition == true && !machine.isAnswered)
  }

  @Test func theEndOfTheConnectionHasAReason() {
    for (code, message, sentence) in [
      (ErrorCode.rejectedSetup, "the token is not valid", "the token is not valid for the other streamd"),
      (.rejectedSetup, "secret", "the other streamd refuses the connection: a limit is reached there"),
      (.connectionClose, "secret", "the other streamd has closed the connection"),
      (.connectionError, "secret", "the other side has closed the connection with CONNECTION_ERROR"),
    ] {
      var (machine, other) = begin()
      other.server.close(code, message)
      other.deliver(to: &machine)
      #expect(machine.ending?.failure.sentence == sentence)
    }
    var (machine, other) = begin()
    other.server.sendComplete(other.request)
    other.deliver(to: &machine)
    #expect(machine.ending == .completed)
  }

  @Test func aViolationEndsTheConnection() {
    for (bytes, sentence) in [
      (Array("HTTP/1.1 400 Bad Request\r\n".utf8), "the other side violates the protocol: a frame length of "),
      ([0, 0, 1, 0], "the other side violates the protocol: a frame length of 1 is shorter"),
    ] {
      var (machine, _) = begin()
      bytes.withUnsafeBytes { machine.receive($0, at: .zero) }
      #expect(machine.ending?.failure.sentence.hasPrefix(sentence) == true, "\(String(describing: machine.ending))")
      #expect(machine.session.machine.takeOutput().count > 0)
      // Nothing has an effect any more.
      #expect((try? machine.next(at: .seconds(1))) != nil)
      machine.session.setReading(false, at: .seconds(1))
      #expect((try? machine.next(at: .seconds(9))) != nil)
    }
    var (machine, other) = begin()
    other.send("e", 8)
    other.send("e", 8)
    other.send("f", 9)
    other.deliver(to: &machine)
    #expect(texts(machine.takePart()) == ["e"] && machine.takePart() == nil && machine.ending == .outOfOrder)
    (machine, other) = begin()
    other.server.sendPayload(other.request, Payload(data: [1]))
    other.deliver(to: &machine)
    #expect(machine.ending == .withoutID)
  }

  @Test(arguments: [10, 100, 200_000]) func anEventMayBeTooLarge(size: Int) {
    var (machine, other) = begin { $0.maximumEventBytes = size }
    other.send(String(repeating: "x", count: size), 8)
    other.send(String(repeating: "x", count: size + 1), 9)
    other.deliver(to: &machine)
    #expect(machine.takePart()?.events.largestByteCount == size)
    #expect(machine.ending?.failure == .over(size, "event"))
  }
}

extension [String] {
  fileprivate var batch: EventBatch { reduce(into: EventBatch()) { $0.append([UInt8]($1.utf8)) } }
}
