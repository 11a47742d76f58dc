import RSocket
import Testing

/// The connection table of the wire document, row by row: the wrong byte, and its error.
@Suite struct ConnectionRulesTests {
  private let id = StreamID(1)

  /// Expects that `bytes` end the connection with `code`, in an event and in the last frame, and that it stays ended.
  private func expectClosed(_ side: Side, by bytes: [UInt8], _ code: ErrorCode, saying part: String) throws {
    for chunkByteCount in [1, 3, Int.max] {
      let side = Side(side.machine)
      guard case .closed(code, let message) = side.receive(bytes, chunkByteCount: chunkByteCount).last else {
        Issue.record("not closed by \(code)")
        return
      }
      #expect(message.contains(part))
      #expect(try side.takeFrames().last == .error(.connection, code, message))
      #expect(side.machine.isClosed)
      #expect(side.machine.liveCount == 0)
      #expect(side.receive(.keepalive(respond: true, position: 0, data: [])) == [])
      #expect(!side.machine.hasOutput)
    }
  }

  // MARK: The first frame

  @Test(arguments: [
    Frame.keepalive(respond: true, position: 0, data: []).encoded,
    Frame.request(StreamID(1), .stream, initialRequest: 1, Payload(), follows: false, isComplete: false).encoded,
    Frame.cancel(StreamID(1)).encoded, Frame.error(.connection, .connectionClose, "").encoded,
    hex("000006 00000000 de00"), Array("GET / HTTP/1.1\r\n".utf8),
    hex("00000e 00000001 0400 00010000 00000001"),
  ])
  func whateverComesBeforeSetupIsInvalidSetup(bytes: [UInt8]) throws {
    try expectClosed(Side(ConnectionMachine()), by: bytes, .invalidSetup, saying: "the first frame must be SETUP")
  }

  @Test(arguments: [
    ("000005", "shorter than the header"), ("000008 00000000 0400 0001", "ends before its fixed fields"),
    ("000012 00000000 0400 0001 0000 00000000 00000001", "keepalive interval of 0"),
    ("000012 00000000 0400 0001 0000 00000001 80000000", "maximum lifetime of 2147483648"),
    ("000014 00000000 0400 0001 0000 00000001 00000001 05 61", "ends before its MIME types"),
    ("000015 00000000 0400 0001 0000 00000001 00000001 01ff 0161 00", "MIME type not in UTF-8"),
    ("00001a 00000000 0500 0001 0000 00000001 00000001 0161 0161 000009 00", "metadata length of 9"),
  ])
  func aSetupThatCannotBeReadIsInvalidSetup(text: String, part: String) throws {
    try expectClosed(Side(ConnectionMachine()), by: hex(text), .invalidSetup, saying: part)
  }

  @Test func aFrameThatIsNoSetupIsRefusedByItsHeaderBeforeTheRestArrives() {
    let server = Side(ConnectionMachine())
    #expect(server.receive(hex("00ffff 00000000 0c")) == [])
    #expect(server.receive([0x80]).count == 1)
    let other = Side(ConnectionMachine())
    #expect(other.receive(hex("00ffff 00000001 0400")).count == 1)
  }

  @Test(arguments: [(UInt16(2), UInt16(0)), (1, 1), (0, 2)])
  func anotherVersionIsUnsupportedSetup(major: UInt16, minor: UInt16) throws {
    var setup = Setup()
    setup.majorVersion = major
    setup.minorVersion = minor
    try expectClosed(
      Side(ConnectionMachine()), by: Frame.setup(setup).encoded, .unsupportedSetup, saying: "version \(major).\(minor)")
  }

  @Test func aMetadataMIMETypeThatNamesNoStreamIsUnsupportedSetup() throws {
    let setup = Frame.setup(Setup(metadataMIMEType: "application/json")).encoded
    try expectClosed(Side(ConnectionMachine()), by: setup, .unsupportedSetup, saying: "\"application/json\"")
  }

  @Test func theResumeFlagIsRejectedSetupAlsoWithAnEmptyToken() throws {
    var setup = Setup()
    setup.resumeToken = []
    try expectClosed(
      Side(ConnectionMachine()), by: Frame.setup(setup).encoded, .rejectedSetup, saying: "resumption is not supported")
  }

  @Test func resumeIsRejectedResumeAndConnectionErrorAfterSetup() throws {
    let resume = Frame.resume(token: [1], serverPosition: 0, clientPosition: 0).encoded
    try expectClosed(Side(ConnectionMachine()), by: resume, .rejectedResume, saying: "resumption is not supported")
    try expectClosed(.openServer(), by: resume, .connectionError, saying: "RESUME came after SETUP")
  }

  @Test func aSecondSetupIsIgnoredAndSoIsOneThatReachesAClient() {
    #expect(Side.openServer().receive(.setup(Setup())) == [])
    #expect(Side.openClient().receive(.setup(Setup())) == [])
  }

  @Test(arguments: MetadataFormat.allCases) func theMetadataFormatAndTheTimesOfSetupAreKept(format: MetadataFormat) {
    let server = Side.openServer(
      Setup(
        keepaliveInterval: .milliseconds(700), maximumLifetime: .seconds(9), honorsLease: true,
        metadataMIMEType: format.mimeType))
    #expect(server.machine.metadataFormat == format)
    #expect(server.machine.keepaliveInterval == .milliseconds(700))
    #expect(server.machine.maximumLifetime == .seconds(9))
    #expect(server.machine.usesLeases)
    #expect(server.machine.isOpen)
  }

  // MARK: Keepalive and ignored frames

  @Test func keepaliveWithRespondIsEchoedWithItsDataAndWithoutRespondWithoutThereIsNoAnswer() throws {
    for side in [Side.openServer(), .openClient()] {
      #expect(side.receive(.keepalive(respond: true, position: 9, data: [1, 2])) == [])
      #expect(try side.takeFrames() == [.keepalive(respond: false, position: 0, data: [1, 2])])
      #expect(side.receive(.keepalive(respond: false, position: 0, data: [1])) == [])
      #expect(!side.machine.hasOutput)
    }
  }

  @Test func anUnknownFrameTypeIsIgnoredWithTheIgnoreFlagElseConnectionError() throws {
    for side in [Side.openServer(), .openClient()] {
      #expect(side.receive(hex("000008 00000001 7e00 ffff")) == [])
      #expect(side.receive(.ext(id, type: 3, isIgnorable: true, hasMetadata: false, body: [])) == [])
      #expect(!side.machine.hasOutput)
      try expectClosed(side, by: hex("000008 00000001 7c00 ffff"), .connectionError, saying: "type 0x1f is unknown")
      try expectClosed(
        side, by: Frame.ext(id, type: 3, isIgnorable: false, hasMetadata: false, body: []).encoded, .connectionError,
        saying: "extended frame type 3")
    }
  }

  @Test func framesForRequestsThatAreNotLiveAreIgnored() {
    for side in [Side.openServer(), .openClient()] {
      for id in [StreamID.connection, StreamID(1), StreamID(2), StreamID(0x7fff_ffff)] {
        let value = Frame.payload(id, Payload("x"), follows: true, isComplete: false, isNext: true)
        #expect(side.receive(value, .requestN(id, 0), .cancel(id), value) == [])
      }
      #expect(side.receive(.error(StreamID(5), .invalid, "late"), .resumeOK(clientPosition: 0)) == [])
      #expect(!side.machine.hasOutput)
    }
  }

  @Test func metadataPushIsToldAndHasNoAnswer() {
    let server = Side.openServer()
    #expect(server.receive(.metadataPush([1, 2])) == [.metadataPush([1, 2])])
    #expect(!server.machine.hasOutput)
  }

  // MARK: Malformed

  @Test(arguments: [
    ("000000", "length of 0 is shorter"), ("000005 00000001 24", "length of 5 is shorter"),
    ("000008 00000001 2000 0001", "REQUEST_N of 8 bytes ends before"),
    ("00000c 00000001 1900 00000001 0000", "REQUEST_STREAM of 12 bytes ends before"),
    ("000010 00000001 1900 00000001 000004 000000", "metadata length of 4, past its end"),
    ("000007 00000001 2400 00", "1 bytes too many"), ("000006 00000000 0c80", "KEEPALIVE of 6 bytes ends before"),
    ("000008 00000001 2c00 0000", "ERROR of 8 bytes ends before"),
  ])
  func aMalformedFrameIsConnectionErrorWithTheReason(text: String, part: String) throws {
    try expectClosed(.openServer(), by: hex(text), .connectionError, saying: part)
  }

  @Test func aLengthOverTheLimitIsRefusedWhenItIsSeenWithNothingBuffered() throws {
    let limits = ConnectionLimits(maximumRequestBytes: 1 << 20)
    try expectClosed(
      .openServer(limits: limits), by: hex("100001"), .connectionError, saying: "exceeds the limit of 1048576")
    #expect(Side.openServer(limits: limits).receive(hex("100000")) == [])
    #expect(Side.openServer().receive(hex("ffffff")) == [])
  }

  @Test(arguments: RequestKind.allCases) func evenZeroAndLiveRequestIDsAreConnectionError(kind: RequestKind) throws {
    func request(_ id: UInt32) -> [UInt8] {
      Frame.request(StreamID(id), kind, initialRequest: 1, Payload(), follows: false, isComplete: false).encoded
    }
    try expectClosed(.openServer(), by: request(2), .connectionError, saying: "request ID 2 is even")
    try expectClosed(.openServer(), by: request(0), .connectionError, saying: "ID 0")
    let server = Side.openServer()
    _ = server.receive(.request(id, .stream, initialRequest: 1, Payload(), follows: false, isComplete: false))
    try expectClosed(server, by: request(1), .connectionError, saying: "request ID 1 is in use")
    try expectClosed(.openClient(), by: request(3), .connectionError, saying: "request ID 3 is odd")
  }

  @Test func whatCameBeforeAViolationInTheSameBytesStillCounts() throws {
    let server = Side.openServer()
    let events = server.receive(
      Frame.request(id, .stream, initialRequest: 1, Payload("a"), follows: false, isComplete: false).encoded
        + Frame.keepalive(respond: true, position: 0, data: [7]).encoded + hex("000000")
        + Frame.cancel(id).encoded)
    #expect(events.count == 2)
    #expect(events.first == .request(id, .stream, initialRequest: 1, Payload("a"), isComplete: true))
    #expect(try server.takeFrames().first == .keepalive(respond: false, position: 0, data: [7]))
  }

  // MARK: The end

  @Test func thePeersErrorOnStream0EndsTheConnectionWithoutAnAnswer() {
    for side in [Side.openServer(), .openClient()] {
      #expect(side.receive(.error(.connection, .connectionClose, "bye")) == [.closed(.connectionClose, "bye")])
      #expect(!side.machine.hasOutput)
      #expect(side.machine.isClosed)
    }
    let refused = Side.openClient()
    #expect(refused.receive(.error(.connection, .rejectedSetup, "no")) == [.closed(.rejectedSetup, "no")])
  }

  @Test func aServerIgnoresCodesOfTheHandshake() {
    let server = Side.openServer()
    #expect(server.receive(.error(.connection, .rejectedSetup, "what?")) == [])
    #expect(!server.machine.isClosed)
  }

  @Test func closingWritesOneErrorOnStream0AndNothingAfterIt() throws {
    let server = Side.openServer()
    _ = server.receive(.request(id, .stream, initialRequest: 1, Payload(), follows: false, isComplete: false))
    server.machine.close(.connectionClose, "enough")
    server.machine.close(.connectionError, "again")
    server.machine.sendPayload(id, Payload("x"))
    server.machine.sendKeepalive()
    server.machine.sendLease(timeToLive: .seconds(1), count: 1)
    #expect(try server.takeFrames() == [.error(.connection, .connectionClose, "enough")])
    let client = Side.openClient()
    client.machine.close(.connectionClose, "")
    #expect(client.request(.stream) == nil)
  }
}
