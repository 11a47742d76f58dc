import Testing

@testable import HTTP

@Suite struct NegotiationTests {
  @Test(arguments: [
    ("\"41\"", true), ("W/\"41\"", true), ("*", true), (" * ", true), ("\"1\", \"41\"", true), ("\"1\",W/\"41\"", true),
    (",, \"41\" ,", true), ("\"a,\" \"41\"", true), ("\"42\"", false), ("\"41", false), ("", false),
    ("w/\"41\"", false), ("41", true), ("W/41", true), ("42, 41", true), ("41-gzip", true), ("4", false),
    ("410", false),
    ("\"41-gzip\"", true), ("W/\"41-gzip\"", true), ("\"41;gz\"", true), ("\"41--gzip\"", true), ("\"41-br\"", true),
    ("\"1-gzip\", W/\"41-ZSTD\"", true), ("\"41-\"", false), ("\"41-7\"", false), ("\"41gzip\"", false),
    ("\"4-gzip\"", false), ("\"410-gzip\"", false), ("\"-gzip\"", false), ("\"41-gzip-1\"", false),
    ("\"4\"1\"", false), ("\"1\"\"41\"", false), ("x\"41\"", false), ("*, \"41\"", true), ("x, \"41\"", true),
    ("\"41 \"", false),
  ])
  func tagIsComparedWithEachOfAList(condition: String, isNamed: Bool) {
    #expect(EntityTag(eventID: 41).isNamed(by: condition) == isNamed)
  }

  @Test func tagIsQuoted() {
    #expect(EntityTag(eventID: 41).fieldValue == "\"41\"")
    #expect(EntityTag(digest: 255).fieldValue == "\"xff\"")
    #expect(EntityTag(digest: 255).isNamed(by: "\"xff\""))
  }

  private let offered = ["application/json", "text/event-stream", "application/x-ndjson", "text/html; charset=utf-8"]
    .compactMap {
      MediaType($0)
    }

  @Test(
    arguments: [
      (nil, 0), ("", 0), ("*/*", 0), ("*", 0), ("text/event-stream", 1), ("TEXT/Event-Stream", 1), ("text/*", 1),
      ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", 3), ("application/x-ndjson, */*;q=0.5", 2),
      ("application/json;q=0.5, text/event-stream;q=0.7", 1), ("application/json;q=0, */*", 1), ("*/*;q=0", nil),
      ("image/png", nil), ("text/html;q=0.9, text/html;q=0", 3), ("application/json;q=0", nil),
      ("text/*;q=0.3, text/html;q=0.7, text/event-stream;q=0.6", 3),
      ("text/html;charset=latin1", nil), ("text/html;charset=\"UTF-8\"", 3), ("application/json; charset=utf-8", 0),
      ("text/html;charset=latin1;q=1, text/html;q=0.2", 3), ("text/event-stream;q=1.000, application/json;q=0.999", 1),
      ("application/json;q=x", 0), ("application/json;q=2", 0), ("application/json;q=.5", 0),
      ("application/json;q=0.0001", 0), ("application/json;q=0.0000", nil), ("application/json;q=0.", nil),
      ("application/json;q=0.3333, text/event-stream;q=0.333", 0), ("application/json;q=0.9999, text/event-stream", 0),
      ("nonsense", 0), ("a/b/c, text/html", 3), ("text/html;a=\"x,y;q=0\"", 3),
      ("application/json ; q=0.1 , text/html ; q = 0.2", 3), ("text/event-stream, */*", 1), ("*/*, text/*", 1),
      ("application/json, text/event-stream, */*", 0), ("image/png, */*", 0), ("text/html, text/event-stream", 1),
      ("text/event-stream;q=0.5, */*", 0), ("text/event-stream, text/html;charset=utf-8", 1),
    ] as [(String?, Int?)])
  func acceptedTypeIsFound(accept: String?, index: Int?) {
    #expect(MediaType.preferred(accept, among: offered) == index)
  }

  @Test func scraperChoosesItsFormat() {
    let types = [
      "text/plain; version=0.0.4; charset=utf-8", "application/openmetrics-text; version=1.0.0; charset=utf-8",
    ]
    .compactMap { MediaType($0) }
    let second =
      "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,"
      + "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
    #expect(MediaType.preferred(second, among: types) == 1)
    let third =
      "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=1.0.0;q=0.4,*/*;q=0.1"
    #expect(MediaType.preferred(third, among: types) == 1)
    #expect(MediaType.preferred("application/openmetrics-text;version=0.0.1,text/plain;q=0.1", among: types) == 0)
  }

  @Test(
    arguments: [
      ("", .empty, "", nil), (":80", .empty, "", 80), ("LocalHost:8080", .name, "localhost", 8080),
      ("a_b.c-d~", .name, "a_b.c-d~", nil),
      ("a:", .name, "a", nil), ("127.0.0.1", .ipv4, "127.0.0.1", nil), ("127.0.0.1:65535", .ipv4, "127.0.0.1", 65535),
      ("127.1", .name, "127.1", nil), ("256.0.0.1", .name, "256.0.0.1", nil), ("01.0.0.1", .name, "01.0.0.1", nil),
      ("1.2.3.4.5", .name, "1.2.3.4.5", nil), ("[::1]", .ipv6, "::1", nil), ("[::1]:80", .ipv6, "::1", 80),
      ("[::]", .ipv6, "::", nil),
      ("[FE80::A]", .ipv6, "fe80::a", nil), ("[1:2:3:4:5:6:7:8]", .ipv6, "1:2:3:4:5:6:7:8", nil),
      ("[1:2:3:4:5:6:1.2.3.4]", .ipv6, "1:2:3:4:5:6:1.2.3.4", nil), ("[::ffff:1.2.3.4]", .ipv6, "::ffff:1.2.3.4", nil),
      ("[1::8]", .ipv6, "1::8", nil), ("[1:2:3:4:5:6:7::]", .ipv6, "1:2:3:4:5:6:7::", nil), ("a:00080", .name, "a", 80),
      ("%2Frun%2Fstreamd.sock", .socketPath, "%2frun%2fstreamd.sock", nil),
      ("%2frun%2fa%20b.sock:", .socketPath, "%2frun%2fa%20b.sock:", nil),
      ("/run/a.sock", .socketPath, "/run/a.sock", nil),
      ("unix:/run/a.sock", .socketPath, "unix:/run/a.sock", nil), ("unix:", .name, "unix", nil),
    ] as [(String, Authority.Kind, String, UInt16?)])
  func hostIsRead(text: String, kind: Authority.Kind, host: String, port: UInt16?) {
    let authority = Authority(text)
    #expect(authority?.kind == kind)
    #expect(authority?.host == host)
    #expect(authority?.port == port)
  }

  @Test(arguments: [
    "a b", "a/b", "a@b", "a:b", "a:65536", "a:-1", "a:80:80", "[::1", "::1", "[::1]a", "[::1]:a", "[]", "[:]", "[1]",
    "[:::]",
    "[1::2::3]", "[1:2:3:4:5:6:7:8:9]", "[1:2:3:4:5:6:7:8::]", "[12345::]", "[g::]", "[::1%25eth0]", "[v1.a]",
    "[1.2.3.4::]",
    "[::1.2.3.4:1]", "[1:2:3:4:5:6:7:1.2.3.4]", "[::256.0.0.1]", "[:1:2:3:4:5:6:7]", "[1:2:3:4:5:6:7:]", "a%20b", "ä",
    "a\\b", "\"", "a?b",
    "a,b c", "a#b", "[a]", "%2F%", "%2Frun%2", "%2Frun%zz", "/run/a b", "/run/@a", "/run?a", "a%2Fb", "%2E%2F",
    "unix:a", "[::1]/run",
  ])
  func malformedHostIsRefused(text: String) { #expect(Authority(text) == nil) }

  private func status(
    _ rules: OriginRules, _ lines: String..., host: String = "localhost", line: String = "GET /a HTTP/1.1"
  ) -> Status? {
    guard let head = readHead(([line, "Host: \(host)"] + lines).map { $0 + "\r\n" }.joined() + "\r\n") else {
      return .badRequest
    }
    do throws(Rejection) {
      _ = try rules.check(head)
      return nil
    } catch { return error.status }
  }

  @Test func hostsAreThoseThatDNSCannotMapHere() {
    let tcp = OriginRules(hosts: ["streams.example"], isUnixSocket: false)
    let unix = OriginRules(hosts: ["streams.example"], isUnixSocket: true)
    for host in ["127.0.0.1", "[::1]:80", "10.0.0.1:81", "localhost", "a.b.LOCALHOST:1", "Streams.Example:7"] {
      #expect(status(tcp, host: host) == nil)
      #expect(status(unix, host: host) == nil)
    }
    for host in ["", ":0", "docker", "a_b:80", "%2Frun%2Fa.sock", "/run/a.sock", "unix:/run/a.sock"] {
      #expect(status(tcp, host: host) == .forbidden)
      #expect(status(unix, host: host) == nil)
    }
    for host in ["example.org", "localhost.example.org", "xlocalhost.org", "127.0.0.1.nip.io", "127.1", "localhost."] {
      #expect(status(tcp, host: host) == .forbidden)
      #expect(status(unix, host: host) == .forbidden)
    }
  }

  @Test func checksOfLoadBalancersNeedNoHost() throws {
    let rules = OriginRules(isUnixSocket: false)
    func isAllowed(_ line: String, _ fields: String = "") throws -> Bool {
      let head = try #require(readHead("\(line) HTTP/1.0\r\n\(fields)\r\n"))
      do throws(Rejection) { _ = try rules.check(head) } catch { return false }
      return true
    }
    for line in ["GET /healthz", "HEAD /healthz", "OPTIONS /", "OPTIONS *"] { #expect(try isAllowed(line), "\(line)") }
    for line in ["GET /", "GET /streams/a", "POST /streams/a"] { #expect(try !isAllowed(line), "\(line)") }
    #expect(try !isAllowed("GET /healthz", "Host: example.org\r\n"))
    #expect(try !isAllowed("GET /healthz", "Sec-Fetch-Site: cross-site\r\n"))
  }

  @Test func pagesOfOtherSitesAreRefused() {
    let rules = OriginRules(isUnixSocket: false)
    #expect(status(rules) == nil)
    for site in ["none", "same-origin"] { #expect(status(rules, "Sec-Fetch-Site: \(site)") == nil) }
    for site in ["cross-site", "same-site", "", "None", "none, none"] {
      #expect(status(rules, "Sec-Fetch-Site: \(site)") == .forbidden)
      #expect(status(rules, "Sec-Fetch-Site: \(site)", line: "POST /a HTTP/1.1") == .forbidden)
    }
    #expect(status(rules, "Sec-Fetch-Site: none", "Sec-Fetch-Site: cross-site") == .forbidden)
    let navigation = "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate"
    #expect(status(rules, navigation, line: "GET / HTTP/1.1") == nil)
    #expect(status(rules, navigation, line: "GET /a HTTP/1.1") == .forbidden)
    #expect(status(rules, navigation, line: "POST / HTTP/1.1") == .forbidden)
    #expect(status(rules, "Sec-Fetch-Site: cross-site", line: "GET / HTTP/1.1") == .forbidden)
  }

  @Test func withoutSecFetchSiteOriginMustEqualHost() {
    let rules = OriginRules(isUnixSocket: false)
    for (origin, host) in [
      ("http://localhost", "localhost"), ("http://LOCALHOST:80", "localhost"), ("https://localhost", "localhost:443"),
      ("http://localhost:8080", "localhost:8080"), ("http://[::1]:8080", "[::1]:8080"),
    ] { #expect(status(rules, "Origin: \(origin)", host: host) == nil) }
    for (origin, host) in [
      ("http://localhost:81", "localhost"), ("http://a.localhost", "localhost"), ("null", "localhost"),
      ("", "localhost"),
      ("file://", "localhost"), ("http://localhost/", "localhost"), ("http://evil@localhost", "localhost"),
      ("http://example.org", "127.0.0.1"), ("https://localhost:80", "localhost"), ("http://", "[::1]"),
    ] { #expect(status(rules, "Origin: \(origin)", host: host) == .forbidden) }
    #expect(status(rules, "Origin: http://localhost", "Origin: http://localhost") == .forbidden)
  }

  @Test func listedOriginIsAllowed() throws {
    let rules = OriginRules(origins: ["https://app.example"], isUnixSocket: false)
    let head = try #require(
      readHead(
        request("Origin: https://app.example", "Sec-Fetch-Site: cross-site", line: "POST http://[::1]/a HTTP/1.1")))
    #expect(try rules.check(head) == "https://app.example")
    #expect(status(rules, "Origin: https://app.example", "Sec-Fetch-Site: cross-site") == nil)
    #expect(status(rules, "Origin: https://app.example:443") == .forbidden)
    #expect(status(rules, "Origin: https://app.example", host: "example.org") == .forbidden)
  }
}
