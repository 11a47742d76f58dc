import Events
import HTTP
import Testing

@testable import StreamSources

@Suite struct WebSocketMachineTests {
  typealias Ending = WebSocketMachine.Ending

  /// A server's frame.
  private func frame(_ opcode: UInt8, _ payload: [UInt8], isLast: Bool = true, isCompressed: Bool = false) -> [UInt8] {
    let count = payload.count
    let size = count < 126 ? [UInt8(count)] : [126, UInt8(count >> 8), UInt8(truncatingIfNeeded: count)]
    return [(isLast ? 0x80 : 0) | (isCompressed ? 0x40 : 0) | opcode] + size + payload
  }

  private func text(_ text: String) -> [UInt8] { frame(1, Array(text.utf8)) }

  /// A configuration of a URL that is not used.
  private func configuration(_ change: (inout WebSocketConfiguration) -> Void = { _ in }) -> WebSocketConfiguration {
    var configuration = WebSocketConfiguration(HTTPConfiguration(url: "ws://localhost/", maximumBodyBytes: 1000))
    configuration.pingEvery = .seconds(30)
    change(&configuration)
    return configuration
  }

  private func machine(
    compresses: Bool = false, _ change: (inout WebSocketConfiguration) -> Void = { _ in }
  ) -> WebSocketMachine {
    // Frames with this key are as those of a server, but for four zeros.
    WebSocketMachine(configuration(change), compresses: compresses, at: .zero) { 0 }
  }

  /// The events of bytes that arrive in pieces of that size, and why the connection ends.
  private func read(
    _ bytes: [UInt8], by size: Int = .max, compresses: Bool = false
  ) -> (events: [String], ending: Ending?) {
    var (machine, events) = (machine(compresses: compresses), EventBatch())
    do throws(Ending) {
      for start in stride(from: 0, to: bytes.count, by: min(size, max(1, bytes.count))) {
        let piece = Array(bytes[start..<min(bytes.count, start + min(size, bytes.count))])
        piece.withUnsafeBytes { machine.receive($0, at: .zero) }
        while try !machine.read(into: &events, at: .zero) {}
      }
    } catch {
      return (events.map { String(decoding: $0, as: UTF8.self) }, error)
    }
    return (events.map { String(decoding: $0, as: UTF8.self) }, nil)
  }

  /// What the machine sends, in pieces of that size.
  private func sent(_ machine: inout WebSocketMachine, by size: Int = 4096) -> [UInt8] {
    var bytes: [UInt8] = []
    var room = [UInt8](repeating: 0, count: size)
    while true {
      let count = room.withUnsafeMutableBytes { machine.fill($0) }
      guard count > 0 else { return bytes }
      bytes += room[..<count]
    }
  }

  /// A frame of the machine, whose key is zero.
  private func masked(_ opcode: UInt8, _ payload: [UInt8] = []) -> [UInt8] {
    [0x80 | opcode, 0x80 | UInt8(payload.count), 0, 0, 0, 0] + payload
  }

  @Test(arguments: [1, 2, 3, 7, Int.max]) func aMessageIsAnEventWhateverTheSplits(size: Int) {
    let long = String(repeating: "lang ", count: 100)
    let bytes =
      text("één") + frame(2, [0x62]) + text("") + frame(1, [0xc3], isLast: false) + frame(9, [7])
      + frame(0, [], isLast: false) + frame(0, [0xa9]) + text(long)
    let (events, ending) = read(bytes, by: size)
    #expect(events == ["één", "b", "", "é", long] && ending == nil)
  }

  @Test(arguments: [1, 2, 5, Int.max]) func compressedMessagesAreThoseOfTheStandard(size: Int) {
    // RFC 7692, 7.2.3: in one frame, in two, referring to the message before, stored, and with a final block.
    let hello: [UInt8] = [0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00]
    var bytes = frame(1, hello, isCompressed: true)
    bytes +=
      frame(1, Array(hello[..<3]), isLast: false, isCompressed: true) + frame(9, []) + frame(0, Array(hello[3...]))
    bytes += frame(1, [0xf2, 0x00, 0x11, 0x00, 0x00], isCompressed: true)
    bytes += text("plain")
    bytes += frame(1, [0x00, 0x05, 0x00, 0xfa, 0xff] + Array("Hello".utf8) + [0x00], isCompressed: true)
    bytes += frame(1, [0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0x00], isCompressed: true)
    let (events, ending) = read(bytes, by: size, compresses: true)
    #expect(events == ["Hello", "Hello", "Hello", "plain", "Hello", "Hello"] && ending == nil)
  }

  @Test func aViolationHasItsCodeAndTheEventsBeforeItAreValid() {
    func ending(_ bytes: [UInt8], compresses: Bool = false) -> Ending? {
      let (events, ending) = read(text("a") + bytes, compresses: compresses)
      #expect(events == ["a"])
      return ending
    }
    let violates = "the upstream has violated the WebSocket protocol: "
    #expect(
      ending([0x81, 0x81, 0, 0, 0, 0, 0x61])
        == Ending(code: 1002, failure: SourceFailure(violates + "a frame of the server is masked")))
    #expect(ending(frame(1, [], isCompressed: true))?.code == 1002)
    #expect(ending(frame(9, [], isCompressed: true), compresses: true)?.code == 1002)
    #expect(ending(frame(1, [], isLast: false) + frame(0, [], isCompressed: true), compresses: true)?.code == 1002)
    #expect(ending(frame(3, []))?.code == 1002)
    #expect(ending(frame(0, []))?.code == 1002)
    #expect(ending(frame(9, [], isLast: false))?.code == 1002)
    #expect(
      ending(frame(1, [0xff, 0xff], isCompressed: true), compresses: true)
        == Ending(code: 1002, failure: SourceFailure("a compressed message cannot be decoded")))
  }

  @Test func invalidTextEndsTheConnectionBeforeTheMessageDoes() {
    let malformed = Ending(code: 1007, failure: SourceFailure("a text message is not UTF-8"))
    #expect(read(frame(1, [0x61, 0xff], isLast: false)).ending == malformed)
    #expect(read(Array(frame(1, [0xed, 0xa0, 0x80, 0x61]).dropLast())).ending == malformed)
    #expect(read(frame(1, [0xc3])).ending == malformed)
    #expect(read(frame(2, [0xff])).ending == nil)
    // A stored block with the byte 0xff.
    let compressed: [UInt8] = [0x00, 0x01, 0x00, 0xfe, 0xff, 0xff, 0x00]
    #expect(read(frame(1, compressed, isCompressed: true), compresses: true).ending == malformed)
    #expect(read(frame(2, compressed, isCompressed: true), compresses: true).ending == nil)
  }

  @Test func aMessageOverTheLimitEndsTheConnectionBeforeItArrives() {
    let tooLong = Ending(code: 1009, failure: SourceFailure("message over 1000 B"))
    #expect(read(frame(1, [UInt8](repeating: 0x61, count: 1000))).ending == nil)
    #expect(read([0x82, 126, 0x03, 0xe9]).ending == tooLong)
    #expect(read([0x82, 127, 0x7f] + [UInt8](repeating: 0xff, count: 7)).ending == tooLong)
    let half = frame(1, [UInt8](repeating: 0x61, count: 501), isLast: false)
    #expect(read(half + frame(0, [UInt8](repeating: 0x61, count: 501))).ending == tooLong)
    // 1,001 times the letter a, compressed.
    let letters: [UInt8] = [0x4a, 0x4c, 0x1c, 0x05, 0xa3, 0x60, 0x14, 0x0c, 0x7b, 0x00, 0x00]
    #expect(read(frame(2, letters, isCompressed: true), compresses: true).ending == tooLong)
  }

  @Test func whatIsInflatedInOneTurnIsBounded() throws {
    var configuration = configuration()
    configuration.request.maximumBodyBytes = 1 << 20
    var machine = WebSocketMachine(configuration, compresses: true, at: .zero)
    var (events, turns) = (EventBatch(), 0)
    func stored(_ text: [UInt8]) -> [UInt8] {
      let count = UInt16(text.count)
      return [0, UInt8(truncatingIfNeeded: count), UInt8(count >> 8)]
        + [UInt8(truncatingIfNeeded: ~count), UInt8(~count >> 8)] + text
    }
    // Stored blocks inflate to themselves: many messages in one piece exceed the share as well.
    let message = frame(2, stored([UInt8](repeating: 0x61, count: 10_000)) + [0x00], isCompressed: true)
    for _ in 0..<30 { message.withUnsafeBytes { machine.receive($0, at: .zero) } }
    while try !machine.read(into: &events, at: .zero) { turns += 1 }
    #expect(events.count == 30 && turns >= 300_000 / WebSocketMachine.shareOfTurn)
  }

  @Test func theUpstreamsCloseIsAnsweredAndSomeCodesAreFailures() {
    #expect(read(frame(8, [])).ending == Ending(code: nil, failure: nil))
    for (code, sentence) in [
      (1000, nil), (1001, nil), (1008, "the upstream has closed the connection with 1008 (policy violation)"),
      (4001, "the upstream has closed the connection with 4001"),
    ] as [(UInt16, String?)] {
      let close = frame(8, [UInt8(code >> 8), UInt8(truncatingIfNeeded: code)] + Array("a secret".utf8))
      #expect(read(close + text("late")) == ([], Ending(code: code, failure: sentence.map { SourceFailure($0) })))
    }
    var machine = machine()
    machine.close(1000)
    #expect(sent(&machine) == masked(8, [0x03, 0xe8]))
    machine.close(nil)
    #expect(sent(&machine) == masked(8))
  }

  @Test(arguments: [1, 3, 4096]) func whatIsSentHasItsOrderWhateverTheRoom(size: Int) {
    var machine = machine { $0.messages = ["first", "second"] }
    #expect(machine.hasUnsent)
    #expect(sent(&machine, by: size) == masked(1, Array("first".utf8)) + masked(1, Array("second".utf8)))
    #expect(!machine.hasUnsent)
  }

  @Test func ofManyPingsThatCannotBeAnsweredTheLastOneIs() throws {
    var (machine, events) = (machine(), EventBatch())
    for number in UInt8(0)...200 {
      frame(9, [number]).withUnsafeBytes { machine.receive($0, at: .zero) }
      #expect(try machine.read(into: &events, at: .zero))
    }
    #expect(sent(&machine) == masked(10, [200]))
  }

  @Test func anUpstreamWithoutAnyFrameAfterAPingHasFailed() throws {
    var (machine, events) = (machine(), EventBatch())
    #expect(try machine.next(at: .seconds(29)) == .seconds(30))
    #expect(!machine.hasUnsent)
    #expect(try machine.next(at: .seconds(30)) == .seconds(40))
    #expect(sent(&machine) == masked(9))
    text("not a pong").withUnsafeBytes { machine.receive($0, at: .seconds(39)) }
    #expect(try machine.read(into: &events, at: .seconds(39)))
    #expect(try machine.next(at: .seconds(40)) == .seconds(60))
    #expect(try machine.next(at: .seconds(60)) == .seconds(70))
    let silent = Ending(code: 1011, failure: SourceFailure("no answer to a ping within 10 s"))
    #expect(throws: silent) { try machine.next(at: .seconds(70)) }
  }

  @Test func anUpstreamThatReadsNothingIsSentNothingMore() throws {
    var machine = machine {
      $0.heartbeat = ("beat", .seconds(1))
      $0.messages = ["first"]
    }
    for second in 1...39 { _ = try machine.next(at: .seconds(second)) }
    #expect(sent(&machine) == masked(1, Array("first".utf8)))
    #expect(throws: Ending.self) { try machine.next(at: .seconds(40)) }
  }

  @Test func aHeartbeatIsSentRegularlyAndNoMessageIsAFailure() throws {
    var (machine, events) = (
      machine {
        $0.heartbeat = ("beat", .seconds(5))
        $0.idleTimeout = .seconds(8)
      }, EventBatch()
    )
    #expect(try machine.next(at: .seconds(5)) == .seconds(8))
    #expect(sent(&machine) == masked(1, Array("beat".utf8)))
    frame(10, []).withUnsafeBytes { machine.receive($0, at: .seconds(6)) }  // no message
    #expect(try machine.read(into: &events, at: .seconds(6)))
    let idle = Ending(code: 1000, failure: SourceFailure("no message within 8 s"))
    #expect(throws: idle) { try machine.next(at: .seconds(8)) }
    text("a").withUnsafeBytes { machine.receive($0, at: .seconds(8)) }
    #expect(try machine.read(into: &events, at: .seconds(8)))
    #expect(try machine.next(at: .seconds(8)) == .seconds(10))
  }

  @Test func withoutDemandNothingIsExpectedAndTheConnectionIsClosedInTime() throws {
    var machine = machine {
      $0.idleTimeout = .seconds(5)
      $0.heartbeat = ("beat", .seconds(3))
    }
    machine.setWanted(false, at: .seconds(1))
    #expect(try machine.next(at: .seconds(20)) == .seconds(31))
    #expect(!machine.hasUnsent)
    machine.setWanted(true, at: .seconds(25))
    #expect(try machine.next(at: .seconds(25)) == .seconds(28))
    #expect(sent(&machine) == masked(1, Array("beat".utf8)))
    machine.setWanted(false, at: .seconds(26))
    machine.setWanted(false, at: .seconds(30))
    #expect(try machine.next(at: .seconds(55)) == .seconds(56))
    #expect(throws: Ending(code: 1000, failure: nil)) { try machine.next(at: .seconds(56)) }
  }

  /// `{"ping":1}` by Python's `gzip`, `zlib.compress`, and `zlib.compress(…, wbits=-15)`.
  private static let packed: [(WebSocketCoding, [UInt8])] = [
    (
      .gzip,
      [
        31, 139, 8, 0, 0, 0, 0, 0, 2, 255, 171, 86, 42, 200, 204, 75, 87, 178, 50, 172, 5, 0, 45, 236, 152, 33, 10, 0,
        0, 0,
      ]
    ), (.deflate, [120, 156, 171, 86, 42, 200, 204, 75, 87, 178, 50, 172, 5, 0, 19, 21, 3, 86]),
    (.deflate, [171, 86, 42, 200, 204, 75, 87, 178, 50, 172, 5, 0]),
  ]

  @Test(arguments: packed.indices) func binaryMessagesAreDecoded(index: Int) throws {
    let (coding, bytes) = Self.packed[index]
    let messages = frame(2, bytes) + text("plain") + frame(2, bytes, isLast: false) + frame(0, [])
    for size in [1, 3, messages.count] {
      var (machine, events) = (machine { $0.decode = coding }, EventBatch())
      for start in stride(from: 0, to: messages.count, by: size) {
        messages[start..<min(messages.count, start + size)].withUnsafeBytes { machine.receive($0, at: .zero) }
        while try !machine.read(into: &events, at: .zero) {}
      }
      #expect(events.map { String(decoding: $0, as: UTF8.self) } == [#"{"ping":1}"#, "plain", #"{"ping":1}"#])
    }
    var (plain, events) = (machine(), EventBatch())
    frame(2, bytes).withUnsafeBytes { plain.receive($0, at: .zero) }
    #expect(try plain.read(into: &events, at: .zero) && events == [bytes])
  }

  @Test func aBinaryMessageThatIsCutOffOrTooLargeEndsTheConnection() {
    let bytes = Self.packed[0].1
    func ending(_ bytes: [UInt8], limit: Int = 1000) -> Ending? {
      var (machine, events) = (machine { ($0.decode, $0.request.maximumBodyBytes) = (.gzip, limit) }, EventBatch())
      frame(2, bytes).withUnsafeBytes { machine.receive($0, at: .zero) }
      do throws(Ending) { while try !machine.read(into: &events, at: .zero) {} } catch { return error }
      return nil
    }
    let damaged = SourceFailure("a binary message is not encoded with gzip, or damaged")
    #expect(ending(Array(bytes.dropLast(9))) == Ending(code: 1007, failure: damaged))
    #expect(ending(bytes.dropLast(8) + [0, 0, 0, 0, 10, 0, 0, 0]) == Ending(code: 1007, failure: damaged))
    #expect(ending(bytes) == nil)
    #expect(
      ending(
        [
          31, 139, 8, 0, 0, 0, 0, 0, 2, 255, 83, 80, 24, 5, 163, 96, 20, 12, 119, 0, 0, 130, 227, 147, 205, 232, 3, 0,
          0,
        ], limit: 200)?.failure == .over(200, "message"))
  }
}
