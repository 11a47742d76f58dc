/// Requests of a client over HTTP that sends anything.
enum HostileRequest {
  private static let paths = [
    "/", "/streams", "/stats", "/metrics", "/healthz", "/rsocket", "*", "http://localhost/streams/p0", "/streams/../p0",
    "/streams/%2e%2e", "/streams/p0?from=1&from=2", "/streams/p0?wait=60s", "/streams/s1?as=sse&on_lag=latest",
    "/streams/s1,p1,p0?as=sse", "/streams/p1?as=ndjson&ids=1&follow=0", "/streams/s0?lastEventID=99999999999999999999",
    "/streams/s0?as=raw&count=3", "/streams/p0", "/streams/p1", "/streams/p0,p0", "/streams/none", "/%zz", "/\u{7f}",
  ]

  /// One request, mostly with a mistake.
  static func some(_ random: inout Random) -> [UInt8] {
    let method = random.pick(["GET", "GET", "GET", "POST", "POST", "HEAD", "OPTIONS", "PUT", "PRI", "GE T", ""])
    let version = random.pick(["HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/2.0", "HTTP/1.1 ", ""])
    var lines = ["\(method) \(random.pick(paths)) \(version)"]
    if random.chance(90) { lines.append("Host: \(random.pick(["localhost", "localhost", "example.org", "a b", ""]))") }
    for _ in 0..<random.below(4) { lines.append(field(&random)) }
    let end = random.chance(95) ? "\r\n" : random.pick(["\n", "\r", "\r\n\r\n", "\r\n "])
    var bytes = Array((lines.joined(separator: end) + "\r\n\r\n").utf8)
    if method == "POST" || random.chance(5) { bytes += body(&random) }
    return bytes
  }

  private static func field(_ random: inout Random) -> String {
    switch random.below(12) {
    case 0: "Content-Length: \(random.pick([0, 5, 1000, .max]))"
    case 1: "Transfer-Encoding: \(random.pick(["chunked", "chunked", "gzip", "chunked, chunked"]))"
    case 2: "Content-Type: application/x-ndjson"
    case 3: "Expect: \(random.pick(["100-continue", "anything"]))"
    case 4: "Connection: \(random.pick(["close", "keep-alive", "upgrade"]))"
    case 5: "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
    case 6: "X-\(String(repeating: "x", count: random.below(random.pick([10, 20_000])))): y"
    case 7: "Last-Event-ID: \(random.pick(["1", "x", "1,2", ""]))"
    case 8: random.pick(["no colon", " leading: space", "space : before", ": nameless", "nul: \0"])
    case 9: "Accept: \(random.pick(["text/event-stream", "application/json-seq;q=0", "*/*", ";;,"]))"
    case 10: "Sec-Fetch-Site: cross-site"
    default: "If-None-Match: \(random.pick(["*", "\"1\"", "\"", "W/"]))"
    }
  }

  /// Values of nobody, with the length of none of the heads above, or in chunks that may be none.
  private static func body(_ random: inout Random) -> [UInt8] {
    let value = Content("x", random.below(1 << 40), random.next() >> 2).bytes(count: random.below(2000))
    switch random.below(3) {
    case 0: return value + [10]
    case 1: return Array("\(String(value.count, radix: 16))\r\n".utf8) + value + Array("\r\n0\r\n\r\n".utf8)
    default:
      return Array("\(random.pick(["fffffffffffffffff", "-1", "5;\(String(repeating: "x", count: 300))"]))\r\n".utf8)
        + value
    }
  }

  /// Much of one thing.
  static func flood(_ random: inout Random) -> [UInt8] {
    func request(_ path: String, _ fields: String = "") -> [UInt8] {
      Array("GET \(path) HTTP/1.1\r\nHost: localhost\r\n\(fields)\r\n".utf8)
    }
    switch random.below(5) {
    case 0: return (0..<300).flatMap { _ in request("/streams/p0") }
    case 1: return (0..<40).flatMap { _ in request(random.pick(["/", "/metrics", "/stats"])) }
    case 2:  // a head that never ends
      return request("/").dropLast(2) + (0..<2000).flatMap { Array("X-\($0): y\r\n".utf8) }
    case 3:  // a body of many small chunks
      let head = "POST /streams/p0 HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\n"
      return Array("\(head)Transfer-Encoding: chunked\r\n\r\n".utf8)
        + (0..<3000).flatMap { _ in Array("1\r\n\n\r\n".utf8) }
    default: return (0..<100).flatMap { _ in request("/streams/p1?wait=\(random.below(61))s") }
    }
  }
}
