import HTTP
import Testing

@Suite struct BodyDecoderTests {
  private func body(_ chunks: String) -> [RequestReader.Found] {
    Array(readRequests(request("Transfer-Encoding: chunked", line: "POST / HTTP/1.1") + chunks).dropFirst())
  }

  private func status(_ chunks: String, checkingSplits: Bool = true) -> Status? {
    rejection(request("Transfer-Encoding: chunked", line: "POST / HTTP/1.1") + chunks, checkingSplits: checkingSplits)?
      .status
  }

  private func restored(_ phase: UInt8, _ byteCountLeft: UInt64, _ lineByteCount: UInt16) -> BodyDecoder? {
    var saved = BodyDecoder.Saved()
    (saved.phase, saved.byteCountLeft, saved.lineByteCount) = (phase, byteCountLeft, lineByteCount)
    return BodyDecoder(saved)
  }

  @Test func chunksAreJoined() {
    let body = body("3\r\nabc\r\nA;x=\"y\"\r\n0123456789\r\n000\r\nTrailer: x\r\nB: c\r\n\r\n")
    #expect(body == [.body([UInt8]("abc0123456789".utf8)), .end])
    #expect(self.body("0\r\n\r\n") == [.end])
    #expect(self.body("1\r\na\r\n") == [.body([UInt8(ascii: "a")])])
  }

  @Test func nextRequestFollowsTheLastChunk() { #expect(body("1\r\na\r\n0\r\n\r\n" + request()).count == 4) }

  @Test(arguments: [
    "\r\n", "g\r\n", "-1\r\n", "+1\r\n", "0x1\r\n", " 1\r\n", "1 \r\n", "1\n", "1\r\r\n", ";a\r\n", "1;\u{0}\r\n",
    "1;a\n",
    "1;a\rb\r\n", "1\r\nab\r\n", "1\r\na\n", "1\r\na\r\r", "0\r\n\n", "0\r\n\ra", "0\r\na\n", "0\r\na\r\r",
    "0\r\n\u{0}",
    "1\r\na0\r\n\r\n",
  ])
  func malformedChunkIsRefused(chunks: String) { #expect(status(chunks) == .badRequest) }

  @Test func sizeCannotOverflow() throws {
    #expect(status("00000000000000001\r\n") == .badRequest)
    #expect(status("10000000000000000\r\n") == .badRequest)
    #expect(body("ffffffffffffffff\r\nab") == [.body([UInt8]("ab".utf8))])
    var decoder = try #require(restored(4, .max, 0))
    var offset = 0
    #expect(try decoder.next(in: [1, 2, 3].span, from: &offset) == .data(0..<3))
    #expect(decoder.saved.byteCountLeft == UInt64.max - 3)
  }

  @Test func extensionsAndTrailersAreLimited() {
    let most = String(repeating: "a", count: BodyDecoder.maximumExtensionByteCount - 1)
    #expect(body("1;\(most)\r\na\r\n0\r\n\r\n").last == .end)
    #expect(status("1;\(most)a\r\n") == .badRequest)
    let trailer = String(repeating: "a", count: BodyDecoder.maximumTrailerByteCount / 2)
    #expect(
      readRequests(
        request("Transfer-Encoding: chunked", line: "POST / HTTP/1.1") + "0\r\n\(trailer)\r\n\(trailer)\r\n\r\n",
        checkingSplits: false
      ).last == .end)
    #expect(status("0\r\n\(trailer)\r\n\(trailer)\r\na", checkingSplits: false) == .requestHeaderFieldsTooLarge)
  }

  @Test func bodyOfKnownLengthEndsThere() {
    let found = readRequests(request("Content-Length: 3") + "abc" + request())
    #expect(found.count == 5)
    #expect(found[1] == .body([UInt8]("abc".utf8)))
    #expect(readRequests(request("Content-Length: 0")).last == .end)
    #expect(readRequests(request("Content-Length: 4") + "abc").last == .body([UInt8]("abc".utf8)))
  }

  @Test func restoredStateIsChecked() {
    #expect(restored(12, 0, 0) == nil)
    #expect(restored(0, 0, 0) == nil)
    #expect(restored(11, 1, 0) == nil)
    #expect(restored(1, 1, 0) == nil)
    #expect(restored(1, 1, 17) == nil)
    #expect(restored(4, 1, 1) == nil)
    #expect(restored(11, 0, 0)?.isDone == true)
  }
}
