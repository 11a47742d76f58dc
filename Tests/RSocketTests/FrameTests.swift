import RSocket
import Testing

/// Every type, with and without optional parts.
private let samples: [Frame] = {
  var setup = Setup(
    keepaliveInterval: .milliseconds(500), maximumLifetime: .seconds(3), honorsLease: true,
    metadataMIMEType: "text/plain", payload: Payload("hello", metadata: [1]))
  setup.resumeToken = [7, 7]
  let payload = Payload("data", metadata: [1, 2, 3])
  let id = StreamID(5)
  return [
    .setup(Setup()), .setup(setup),
    .lease(timeToLive: .seconds(1), count: 3, metadata: nil), .lease(timeToLive: .zero, count: 0, metadata: [9]),
    .lease(timeToLive: .milliseconds(0x7fff_ff01), count: 1, metadata: nil),
    .keepalive(respond: true, position: 0, data: []), .keepalive(respond: false, position: 77, data: [1, 2]),
    .request(id, .response, initialRequest: 1, payload, follows: false, isComplete: false),
    .request(id, .fireAndForget, initialRequest: 0, Payload(), follows: true, isComplete: false),
    .request(id, .stream, initialRequest: 12, Payload("x"), follows: false, isComplete: false),
    .request(id, .channel, initialRequest: 0x7fff_ffff, payload, follows: true, isComplete: true),
    .requestN(id, 0), .requestN(id, .max), .cancel(id),
    .payload(id, payload, follows: false, isComplete: false, isNext: true),
    .payload(id, Payload(metadata: []), follows: true, isComplete: true, isNext: false),
    .error(.connection, .connectionError, "why"), .error(id, ErrorCode(rawValue: 0x999), ""),
    .metadataPush([1, 2, 3]), .resume(token: [1], serverPosition: 2, clientPosition: 3),
    .resumeOK(clientPosition: 1 << 62),
    .ext(id, type: 9, isIgnorable: true, hasMetadata: true, body: [4]),
  ]
}()

/// Frames put together by hand from the layouts that RSocket 1.0 gives.
private let golden: [(Frame, String)] = [
  (
    .setup(
      Setup(
        keepaliveInterval: .milliseconds(20_000), maximumLifetime: .milliseconds(90_000),
        metadataMIMEType: "text/plain", dataMIMEType: "a/b", payload: Payload("hi", metadata: [0xaa]))),
    """
    000027 00000000 0500 0001 0000 00004e20 00015f90 0a 746578742f706c61696e 03 612f62 000001 aa 6869
    """
  ),
  (.lease(timeToLive: .milliseconds(258), count: 3, metadata: nil), "00000e 00000000 0800 00000102 00000003"),
  (.keepalive(respond: true, position: 0, data: [0xab]), "00000f 00000000 0c80 0000000000000000 ab"),
  (
    .request(StreamID(1), .response, initialRequest: 1, Payload("q"), follows: false, isComplete: false),
    "000007 00000001 1000 71"
  ),
  (
    .request(StreamID(3), .fireAndForget, initialRequest: 0, Payload("q"), follows: false, isComplete: false),
    "000007 00000003 1400 71"
  ),
  (
    .request(
      StreamID(1), .stream, initialRequest: 3, Payload("{}", metadata: [1, 0x61]), follows: false, isComplete: false),
    "000011 00000001 1900 00000003 000002 0161 7b7d"
  ),
  (
    .request(StreamID(5), .channel, initialRequest: 1, Payload("v"), follows: false, isComplete: true),
    "00000b 00000005 1c40 00000001 76"
  ),
  (.requestN(StreamID(1), 256), "00000a 00000001 2000 00000100"),
  (.cancel(StreamID(0x7fff_ffff)), "000006 7fffffff 2400"),
  (
    .payload(StreamID(1), Payload("e"), follows: false, isComplete: false, isNext: true),
    "000007 00000001 2820 65"
  ),
  (.payload(StreamID(1), Payload(), follows: false, isComplete: true, isNext: false), "000006 00000001 2840"),
  (
    .payload(StreamID(1), Payload("e", metadata: [9]), follows: true, isComplete: false, isNext: true),
    "00000b 00000001 29a0 000001 09 65"
  ),
  (.error(StreamID(1), .rejected, "no"), "00000c 00000001 2c00 00000202 6e6f"),
  (.metadataPush([1]), "000007 00000000 3100 01"),
  (
    .resume(token: [0xee], serverPosition: 1, clientPosition: 2),
    "00001d 00000000 3400 0001 0000 0001 ee 0000000000000001 0000000000000002"
  ),
  (.resumeOK(clientPosition: 5), "00000e 00000000 3800 0000000000000005"),
  (
    .ext(.connection, type: 1, isIgnorable: true, hasMetadata: false, body: [2]), "00000b 00000000 fe00 00000001 02"
  ),
]

@Suite struct FrameTests {
  @Test(arguments: samples) func everyFrameSurvivesEncodingAndDecoding(frame: Frame) throws {
    #expect(try Frame.decodeAll(frame.encoded) == [frame])
  }

  @Test(arguments: golden.indices) func framesHaveTheBytesThatTheSpecificationDraws(index: Int) throws {
    let (frame, text) = golden[index]
    #expect(frame.encoded == hex(text))
    #expect(try Frame.decodeAll(hex(text)) == [frame])
  }

  @Test(arguments: samples) func aFrameThatIsCutShortNeverDecodesAsItself(frame: Frame) throws {
    let body = [UInt8](frame.encoded.dropFirst(3))
    for count in 0..<body.count {
      let decoded = try? body.prefix(count).withUnsafeBytes { try Frame.decode($0) }
      #expect(decoded != frame)
    }
    #expect(throws: ProtocolViolation.self) { try body.prefix(5).withUnsafeBytes { try Frame.decode($0) } }
  }

  @Test(arguments: ["2000 00000001 00", "2400 00"]) func bytesThatNoFieldAccountsForMakeAFrameMalformed(text: String) {
    #expect(throws: ProtocolViolation.self) {
      try hex("00000001" + text).withUnsafeBytes { try Frame.decode($0) }
    }
  }

  @Test func reservedBitsAreIgnored() throws {
    #expect(try Frame.decodeAll(hex("000006 80000001 241f")) == [.cancel(StreamID(1))])
  }

  @Test func aFrameAboutTheConnectionThatHasAStreamIDIsSkipped() throws {
    #expect(try Frame.decodeAll(hex("000007 00000001 3100 01")) == [nil])
    #expect(try Frame.decodeAll(hex("00000e 00000001 0c80 0000000000000000")) == [nil])
  }

  @Test func errorCodesPrintTheirRSocketNamesAndUnknownCodesSurvive() {
    #expect("\(ErrorCode.invalidSetup) \(ErrorCode.canceled)" == "INVALID_SETUP CANCELED")
    #expect("\(ErrorCode(rawValue: 0x777))" == "0x777")
  }

  @Test func timesBeyondWhatTheWireCanSayAreClamped() throws {
    let setup = Setup(keepaliveInterval: .zero, maximumLifetime: .seconds(1 << 40))
    guard case .setup(let decoded) = try Frame.decodeAll(Frame.setup(setup).encoded).first else {
      Issue.record("no SETUP")
      return
    }
    #expect(decoded.keepaliveInterval == .milliseconds(1))
    #expect(decoded.maximumLifetime == .milliseconds(0x7fff_ffff))
  }
}
