import HTTP
import Testing

@Suite struct RequestTargetTests {
  private func target(_ text: String) -> RequestTarget? { readHead(request(line: "GET \(text) HTTP/1.1"))?.target }

  @Test(arguments: [
    ("/", "/"), ("/streams/a,b%2Cc/$stats", "/streams/a,b,c/$stats"), ("/%C3%A4%25", "/ä%"), ("/a%252Fb", "/a%2Fb"),
    ("//a//", "//a//"), ("/...", "/..."), ("/a.b/.c", "/a.b/.c"), ("http://a", "/"), ("HTTPS://a/b", "/b"),
    ("/a%20b", "/a b"),
    ("/a+b", "/a+b"), ("/{}|\"<>\\^`", "/{}|\"<>\\^`"),
  ])
  func pathIsDecodedOnce(text: String, path: String) { #expect(target(text)?.path == path) }

  @Test(arguments: [
    "/a%2Fb", "/a%2fb", "/%00", "/%0a", "/%7F", "/%1f", "/%", "/%2", "/%2x", "/%C3", "/%C0%AF", "/%ED%A0%80", "/.",
    "/..",
    "/a/../b", "/a/./b", "/%2e%2E/a", "/a/%2e", "http://a/../b", "/?a=%00", "/?a=%", "/?%ff", "/?a%0D%0A=1",
  ])
  func ambiguousTargetIsRefused(text: String) {
    #expect(rejection(request(line: "GET \(text) HTTP/1.1"))?.status == .badRequest)
  }

  @Test func parametersKeepTheirOrderAndDuplicates() {
    let parameters = target("/a?as=sse&from=2026-01-02T03:04:05Z&as=raw&&empty=&bare&a=b=c&%61%3D=%26%2F?")?
      .parameters
    #expect(parameters?.map(\.name) == ["as", "from", "as", "empty", "bare", "a", "a="])
    #expect(parameters?.map(\.value) == ["sse", "2026-01-02T03:04:05Z", "raw", "", "", "b=c", "&/?"])
    #expect(target("/a?")?.parameters.isEmpty == true)
    #expect(target("/a")?.parameters.isEmpty == true)
  }

  @Test func aValueMayHaveTheWhiteSpaceOfJSON() {
    #expect(target("/a?where=%7B%0A%09%22/a%22%3A1%0D%0A%7D")?.parameters.first?.value == "{\n\t\"/a\":1\r\n}")
  }

  @Test(arguments: [
    ("New+York", "New York"), ("New%20York", "New York"), ("a%2Bb", "a+b"), ("a%2bb+c", "a+b c"), ("+", " "),
    ("++", "  "), ("%2B", "+"), ("%252B", "%2B"), ("1%2B1+%3D+2", "1+1 = 2"),
  ])
  func plusInAQueryIsASpace(encoded: String, decoded: String) {
    let parameters = target("/a+b?key=\(encoded)&\(encoded)=1")?.parameters
    #expect(parameters?.map(\.name) == ["key", decoded])
    #expect(parameters?.first?.value == decoded)
    #expect(target("/a+b?key=\(encoded)")?.path == "/a+b")
  }

  @Test func charactersBeyondASCIINeedNotBeEncoded() {
    #expect(target("/ä")?.path == "/ä")
    #expect(target("/a?key=Zürich&%C3%A4=ö+%C3%B6")?.parameters.map(\.value) == ["Zürich", "ö ö"])
    for bytes in [[0xFC], [0xC0, 0xAF], [0xED, 0xA0, 0x80], [0xC3]] as [[UInt8]] {
      let line = Array("GET /a?key=".utf8) + bytes + Array(" HTTP/1.1\r\nHost: a\r\n\r\n".utf8)
      #expect(rejection(line)?.status == .badRequest, "\(bytes)")
    }
  }

  @Test func asteriskIsForOptionsOnly() {
    #expect(readHead(request(line: "OPTIONS * HTTP/1.1"))?.target.path == "*")
    #expect(readHead(request(line: "OPTIONS /a HTTP/1.1"))?.target.path == "/a")
    #expect(rejection(request(line: "OPTIONS *a HTTP/1.1"))?.status == .badRequest)
  }
}
