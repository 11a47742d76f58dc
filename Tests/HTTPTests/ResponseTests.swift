import HTTP
import Testing

@Suite struct ResponseTests {
  @Test func headHasItsFieldsInOrder() {
    var head = ResponseHead(.ok)
    head.add("Content-Type", "text/plain")
    head.add("X", "ä\tb")
    var output = [UInt8]("before".utf8)
    head.append(to: &output)
    #expect(
      String(decoding: output, as: UTF8.self) == "beforeHTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nX: ä\tb\r\n\r\n")
  }

  @Test func valueCannotEndItsLine() {
    var head = ResponseHead(.noContent)
    head.add("X", "a\r\nY: b\n\u{0}\u{7f}c\r")
    var output: [UInt8] = []
    head.append(to: &output)
    #expect(String(decoding: output, as: UTF8.self) == "HTTP/1.1 204 No Content\r\nX: a  Y: b   c \r\n\r\n")
  }

  @Test func problemIsValidJSON() {
    let problem = Problem(Rejection(.notFound, "no stream named \"a\\b\"\n\u{1}"))
    let body = String(decoding: problem.body, as: UTF8.self)
    #expect(
      body
        == #"{"type":"about:blank","title":"Not Found","status":404,"detail":"no stream named \"a\\b\"\n\u0001"}"#
        + "\n")
    let full = String(decoding: Problem(.serviceUnavailable, "full", accepted: 12).body, as: UTF8.self)
    #expect(
      full == #"{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"full","accepted":12}"# + "\n"
    )
  }

  @Test func everyStatusHasATitle() {
    for status in Status.allCases { #expect(100...599 ~= status.rawValue && !status.title.isEmpty) }
  }

  @Test(arguments: [
    (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"), (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
    (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"), (951_868_799, "Tue, 29 Feb 2000 23:59:59 GMT"),
    (951_868_800, "Wed, 01 Mar 2000 00:00:00 GMT"), (4_107_542_399, "Sun, 28 Feb 2100 23:59:59 GMT"),
    (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"), (1_798_761_599, "Thu, 31 Dec 2026 23:59:59 GMT"),
    (253_402_300_799, "Fri, 31 Dec 9999 23:59:59 GMT"), (.max, "Fri, 31 Dec 9999 23:59:59 GMT"),
  ])
  func dateHasTheFormOfTheInternetMessageFormat(seconds: UInt64, form: String) {
    #expect(ResponseHead.date(secondsSinceEpoch: seconds) == form)
  }

  @Test func numbersHaveTheFewestDigits() {
    for (number, form) in [(UInt64(0), "0"), (9, "9"), (10, "10"), (12_345, "12345"), (.max, "18446744073709551615")] {
      #expect(String(decoding: written { $0.append(decimal: number) }, as: UTF8.self) == form)
    }
    for (number, form) in [(1, "1"), (15, "f"), (16, "10"), (255, "ff"), (4096, "1000"), (Int.max, "7fffffffffffffff")]
    {
      #expect(
        String(decoding: written { Chunk.writeHeader(byteCount: number, to: &$0) }, as: UTF8.self) == form + "\r\n")
    }
  }

  @Test func emptyChunkIsRefused() async {
    await #expect(processExitsWith: .failure) {
      var counter = ByteWriter()
      Chunk.writeHeader(byteCount: 0, to: &counter)
    }
  }

  @Test func writerDoesNotExceedItsRoom() async {
    await #expect(processExitsWith: .failure) {
      var counter = ByteWriter(countingUpTo: 2)
      counter.append("abc")
    }
  }
}
