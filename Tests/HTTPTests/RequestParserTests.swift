import HTTP
import Testing

@Suite struct RequestParserTests {
  @Test func headIsReadWithItsFields() throws {
    let text =
      "POST /streams/a?x=1 HTTP/1.1\r\nHost: example.org:8080\r\nContent-Length: 3\r\nX: \t 1 2\t \r\nx:3\r\n\r\nabc"
    let found = readRequests(text)
    let head = try #require(readHead(text))
    #expect(found == [.head(head), .body([UInt8]("abc".utf8)), .end])
    #expect(head.method == .post)
    #expect(head.version == .http11)
    #expect(head.target.path == "/streams/a")
    #expect(head.authority == Authority("example.org:8080"))
    #expect(head.framing == .length(3))
    #expect(head["HOST"] == "example.org:8080")
    #expect(head["x"] == "1 2, 3")
    #expect(head["y"] == nil)
    #expect(head.byteCount == text.utf8.count - 3)
  }

  @Test func pipelinedRequestsAreReadOneAfterTheOther() {
    let found = readRequests(
      request("Content-Length: 2", line: "POST / HTTP/1.1") + "ab" + "\r\n" + request()
        + request(line: "HEAD / HTTP/1.0"))
    #expect(found.count == 7)
    #expect(found.filter { $0 == .end }.count == 3)
  }

  @Test func incompleteHeadIsNoHead() {
    let bytes = [UInt8](request("A: b").utf8)
    for count in bytes.indices { #expect(readRequests([UInt8](bytes[..<count])).isEmpty) }
  }

  @Test(arguments: [
    ("GET", RequestHead.Method.get), ("HEAD", .head), ("POST", .post), ("OPTIONS", .options), ("get", .other("get")),
    ("M-SEARCH", .other("M-SEARCH")),
  ])
  func unknownMethodsAreData(name: String, method: RequestHead.Method) {
    #expect(readHead(request(line: "\(name) / HTTP/1.1"))?.method == method)
  }

  @Test(arguments: [
    "GET  / HTTP/1.1", "GET /  HTTP/1.1", "GET / HTTP/1.1 ", " GET / HTTP/1.1", "GET /", "GET", "GET / a HTTP/1.1",
    "GET /\tHTTP/1.1", "GET\t/ HTTP/1.1", "G(T / HTTP/1.1", " / HTTP/1.1", "GET / http/1.1", "GET / HTTP/1",
    "GET / HTTP/11",
    "GET / HTTP/1.10", "GET / HTTP/1,1", "GET / HTTPS/1.1", "GET /#a HTTP/1.1", "GET a HTTP/1.1",
    "CONNECT a:80 HTTP/1.1", "GET * HTTP/1.1", "GET ftp://a/ HTTP/1.1", "GET http:///a HTTP/1.1",
    "GET http://u@a/ HTTP/1.1",
    "GET /\u{1} HTTP/1.1", "GET /\u{7f} HTTP/1.1",
  ])
  func malformedRequestLineIsRefused(line: String) { #expect(rejection(request(line: line))?.status == .badRequest) }

  @Test(arguments: ["PRI * HTTP/2.0", "GET / HTTP/2.0", "GET / HTTP/0.9", "GET / HTTP/1.2", "GET / HTTP/3.0"])
  func otherVersionsAreNotSupported(line: String) {
    #expect(rejection(request(line: line))?.status == .httpVersionNotSupported)
  }

  @Test func prefaceOfHTTP2IsRefusedAtItsFirstLine() {
    #expect(rejection("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")?.status == .httpVersionNotSupported)
  }

  @Test(arguments: [
    "A b", "A : b", "A\t: b", ": b", " A: b", "\tA: b", "A(: b", "Ä: b", "A: b\r", "A: \u{1}", "A: \u{7f}",
    "A: b\u{b}c",
    "A: b\r\n c", "A: b\nC: d", "A: b\rC: d", "A\r: b", "\u{0}A: b", "A: \u{0}b",
  ])
  func malformedFieldIsRefused(line: String) { #expect(rejection(request(line))?.status == .badRequest) }

  @Test(arguments: [
    "GET / HTTP/1.1\nHost: a\n\n", "GET / HTTP/1.1\r\nHost: a\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\n\n", "\n",
  ])
  func bareLineFeedIsRefused(text: String) { #expect(rejection(text)?.status == .badRequest) }

  @Test func fieldValuesMayHaveTabsAndBytesOfUTF8() {
    let head = readHead(request("A: b\tc", "B: ä", "C:", "!#$%&'*+-.^_`|~09aZ: x"))
    #expect(head?["a"] == "b\tc")
    #expect(head?["b"] == "ä")
    #expect(head?["c"] == "")
    #expect(head?["!#$%&'*+-.^_`|~09az"] == "x")
  }

  @Test(arguments: [
    ["Content-Length: 1", "Transfer-Encoding: chunked"], ["Transfer-Encoding: chunked", "Content-Length: 1"],
    ["Content-Length: 1", "Content-Length: 1"], ["Content-Length: 1, 1"], ["Content-Length: +1"],
    ["Content-Length: -1"],
    ["Content-Length: 0x1"], ["Content-Length: "], ["Content-Length: 1 1"], ["Content-Length: 9223372036854775808"],
    ["Content-Length: 18446744073709551616"], ["Content-Length: 99999999999999999999999"],
    ["Transfer-Encoding: gzip"], ["Transfer-Encoding: gzip, chunked"], ["Transfer-Encoding: chunked, chunked"],
    ["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"], ["Transfer-Encoding: identity"],
    ["Transfer-Encoding: "],
    ["Transfer-Encoding: chunked;a=b"], ["Transfer-Encoding: \"chunked\""], ["Transfer-Encoding: xchunked"],
  ])
  func unclearBodyIsRefused(lines: [String]) {
    #expect(rejection(request(lines.joined(separator: "\r\n")))?.status == .badRequest)
  }

  @Test func bodyLengthIsKnownFromTheHead() {
    #expect(readHead(request())?.framing == RequestHead.BodyFraming.none)
    #expect(readHead(request("content-length: 0042"))?.framing == .length(42))
    #expect(readHead(request("Content-Length: 9223372036854775807"))?.framing == .length(UInt64(Int64.max)))
    #expect(readHead(request("TRANSFER-ENCODING: Chunked"))?.framing == .chunked)
  }

  @Test func http10HasNoChunks() {
    #expect(rejection("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n")?.status == .badRequest)
  }

  @Test func http11RequiresOneHost() {
    #expect(rejection("GET / HTTP/1.1\r\n\r\n")?.status == .badRequest)
    #expect(rejection(request("host: b"))?.status == .badRequest)
    #expect(rejection("GET / HTTP/1.1\r\nHost: a b\r\n\r\n")?.status == .badRequest)
    #expect(rejection("GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n")?.status == .badRequest)
    #expect(readHead("GET / HTTP/1.1\r\nHost:\r\n\r\n")?.authority.kind == .empty)
    #expect(readHead("GET / HTTP/1.0\r\n\r\n")?.authority.kind == .empty)
  }

  @Test func hostOfTheTargetOverridesTheField() {
    let head = readHead("GET http://B:81?c=d HTTP/1.1\r\nHost: a\r\n\r\n")
    #expect(head?.authority == Authority("b:81"))
    #expect(head?.target.path == "/")
    #expect(head?.target.parameters.map(\.name) == ["c"])
    #expect(rejection("GET http://b/ HTTP/1.1\r\n\r\n")?.status == .badRequest)
  }

  @Test func requestLineIsLimited() {
    let most = RequestParser.maximumRequestLineByteCount - "GET / HTTP/1.1".utf8.count
    #expect(
      readRequests(request(line: "GET /\(String(repeating: "a", count: most)) HTTP/1.1"), checkingSplits: false).count
        == 2)
    let longer = String(repeating: "a", count: most + 1)
    let refused = rejection(request(line: "GET /\(longer) HTTP/1.1"), checkingSplits: false)
    #expect(refused?.status == .uriTooLong)
    #expect(rejection(String(repeating: "a", count: 8193), checkingSplits: false)?.status == .uriTooLong)
    #expect(rejection(String(repeating: "a", count: 8192), checkingSplits: false) == nil)
  }

  @Test func headIsLimited() {
    let rest = RequestParser.maximumHeadByteCount - request("A: ").utf8.count
    #expect(readRequests(request("A: " + String(repeating: "a", count: rest)), checkingSplits: false).count == 2)
    let refused = rejection(request("A: " + String(repeating: "a", count: rest + 1)), checkingSplits: false)
    #expect(refused?.status == .requestHeaderFieldsTooLarge)
    let empty = String(repeating: "\r\n", count: RequestParser.maximumEmptyLineCount)
    let endless = [UInt8]((empty + "GET / HTTP/1.1\r\nA: " + String(repeating: "a", count: 1 << 15)).utf8)
    let most = RequestParser.maximumHeadByteCount + empty.utf8.count + 1
    #expect(rejection([UInt8](endless[..<(most - 1)]), checkingSplits: false) == nil)
    #expect(rejection([UInt8](endless[..<most]), checkingSplits: false)?.status == .requestHeaderFieldsTooLarge)
  }

  @Test func numberOfFieldsIsLimited() {
    let lines = Array(repeating: "A: b", count: RequestParser.maximumFieldCount - 1).joined(separator: "\r\n")
    #expect(readRequests(request(lines), checkingSplits: false).count == 2)
    #expect(rejection(request(lines, "A: b"), checkingSplits: false)?.status == .requestHeaderFieldsTooLarge)
  }

  @Test func someEmptyLinesMayPrecedeARequest() {
    let most = String(repeating: "\r\n", count: RequestParser.maximumEmptyLineCount)
    #expect(readHead(most + request())?.byteCount == (most + request()).utf8.count)
    #expect(rejection(most + "\r\n" + request())?.status == .badRequest)
  }

  @Test func headThatArrivesByteByByteIsReadOnce() throws {
    // 16 KiB in single bytes: quadratic work would take 134 million steps, and be seen in a debug build.
    let bytes = [UInt8](request("A: " + String(repeating: "a", count: 16_000)).utf8)
    var parser = RequestParser()
    var head: RequestHead?
    for count in 0...bytes.count { head = try parser.parse(bytes.span.extracting(0..<count)) }
    #expect(head?.byteCount == bytes.count)
  }

  @Test func connectionIsKeptUnlessAskedOtherwise() {
    #expect(readHead(request())?.keepsConnection == true)
    #expect(readHead(request("Connection: Upgrade , CLOSE"))?.keepsConnection == false)
    #expect(readHead(request("Connection: upgrade", "connection: close"))?.keepsConnection == false)
    #expect(readHead(request("Connection: \"close\""))?.keepsConnection == true)
    #expect(readHead("GET / HTTP/1.0\r\n\r\n")?.keepsConnection == false)
    #expect(readHead("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n")?.keepsConnection == true)
    #expect(readHead("GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n")?.keepsConnection == false)
  }

  @Test func statusContinueIsExpectedOnlyBeforeABody() {
    #expect(readHead(request("Expect: 100-Continue", "Content-Length: 1"))?.expectsContinue == true)
    #expect(readHead(request("Expect: 100-continue"))?.expectsContinue == false)
    #expect(readHead(request("Content-Length: 1"))?.expectsContinue == false)
    #expect(readHead("GET / HTTP/1.0\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n")?.expectsContinue == false)
  }
}
