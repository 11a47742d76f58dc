import CLinux
import Glibc
import RSocket
import StreamRuntime

// Measures what one byte of a client's input, or of a broker's, costs the daemon at most: for each kind of input the shortest
// or most laborious form of it, as fast as the daemon takes it. Answers are read and thrown away; their cost is part of it.

/// Nanoseconds of processor time; the limit of docs/DESIGN.md.
private let mostPerByte = 1000.0
/// Microseconds of processor time; the same for a request for many streams, each of which has a name of few bytes.
private let mostPerRequest = 1000.0

func measureInput(_ options: Options) throws {
  Report.heading("processor time of the daemon per byte of input", goal: "below 1 us")
  let broker = try StreamdBroker(options.program, stream: InputKind.streams)
  var worst = 0.0
  for kind in InputKind.all() {
    let costs = try (0..<options.runs).map { _ in try InputFlood(broker, kind).cost(over: options.seconds) }
    worst = max(worst, Figures(costs).median)
    Report.line(kind.name, Figures(costs), "ns/B")
  }
  let flood = try BrokerFlood(options.program)
  for (name, unit) in BrokerFlood.units {
    let costs = try (0..<options.runs).map { _ in try flood.cost(of: unit, over: options.seconds) }
    worst = max(worst, Figures(costs).median)
    Report.line(name, Figures(costs), "ns/B")
  }
  guard worst < mostPerByte else { throw BenchError("a byte of input costs \(Report.text(worst)) ns") }
  Report.heading("processor time of the daemon per request for 64 streams", goal: "below 1 ms")
  for kind in InputKind.products() {
    let byteCount = Double(kind.unit(0).count)
    let costs = try (0..<options.runs).map { _ in
      try InputFlood(broker, kind).cost(over: options.seconds) * byteCount / 1000
    }
    Report.line(kind.name, Figures(costs), "us")
    guard Figures(costs).median < mostPerRequest else { throw BenchError("a request costs more: \(kind.name)") }
  }
}

/// One kind of input.
private struct InputKind {
  let name: String
  /// What a connection sends first.
  var greeting: [UInt8] = []
  /// Whether a unit is the connection's last: its answer ends the connection.
  var endsConnection = false
  /// Repeated; the number of a connection's first one is 0.
  let unit: (_ number: Int) -> [UInt8]

  /// The streams of one response, as many as a response may have.
  private static let many = (0..<64).map { "s\($0)" }

  static let streams =
    """
    max_requests_per_user = 1000000
    [streams.b]
    publish = true
    buffer = { events = 1024, bytes = "4MiB" }
    [streams.keyed]
    publish = true
    type = "application/json"
    key = ".id"
    buffer = { events = 1024, bytes = "4MiB" }
    [streams.distinct]
    publish = true
    type = "application/json"
    distinct = ".a.b"
    buffer = { events = 1024, bytes = "4MiB" }

    """
    + many.map { "[streams.\($0)]\npublish = true\nbuffer = { events = 65536, bytes = \"1MiB\" }\n" }.joined()

  static func all() -> [InputKind] {
    frames() + options() + values() + requests() + fields() + webSocket()
  }

  /// A request for many streams, with every option that each stream has to look at, and two of them together.
  static func products() -> [InputKind] {
    func list(_ item: (Int) -> String, _ count: Int) -> String { (0..<count).map(item).joined(separator: ",") }
    func escaped(_ text: String) -> String {
      text.replacing("{", with: "%7B").replacing("}", with: "%7D").replacing("\"", with: "%22")
    }
    let shared = String(repeating: "/a", count: 100)
    // Two options of one sort exclude each other.
    let options = [
      ("where", "a test", "where=" + escaped(#"{"":1}"#)),
      ("where", "pointers", "where=" + escaped("{" + list({ "\"\(shared)/\($0)\":1" }, 14) + "}")),
      ("where", "a list", "where=" + escaped(#"{"/a":{"in":["# + list({ "\($0)" }, 800) + "]}}")),
      ("from", "ids", "from=" + list({ _ in "-1" }, 64)), ("from", "time", "from=-5m"), ("from", "last", "last=1"),
      ("marker", "marker", "marker=1"), ("on_lag", "on_lag", "on_lag=fail"),
      ("lastEventID", "lastEventID", "lastEventID=" + list({ _ in "1" }, 64)),
    ].map { (sort: $0.0, name: $0.1, query: $0.2) }
    func kind(_ name: String, _ query: String, _ format: String) -> InputKind {
      let target = "/streams/\(many.joined(separator: ","))?as=\(format)&follow=0&\(query)"
      return InputKind(name: "HTTP: 64 streams, \(format), \(name)", endsConnection: true) { _ in
        Array("GET \(target) HTTP/1.1\r\nHost:a\r\n\r\n".utf8)
      }
    }
    var kinds = [kind("nothing", "", "sse")]
    for (index, option) in options.enumerated() {
      kinds.append(kind(option.name, option.query, "sse"))
      for other in options[index...] where other.sort != option.sort {
        kinds.append(kind("\(option.name) and \(other.name)", "\(option.query)&\(other.query)", "sse"))
      }
    }
    return kinds + ["ndjson&ids=1", "json-seq&ids=1"].map { kind(options[1].name, options[1].query, $0) }
  }

  private static let setup = StreamdBroker.encoded(StreamdBroker.setup)

  private static func frames() -> [InputKind] {
    func kind(_ name: String, _ frame: @escaping (StreamID) -> [Frame]) -> InputKind {
      InputKind(name: name, greeting: setup) { number in
        frame(StreamID(UInt32(truncatingIfNeeded: number * 2 + 1) & 0x7fff_ffff)).flatMap(StreamdBroker.encoded)
      }
    }
    let composite = StreamdBroker.encoded(
      .setup(Setup(maximumLifetime: .seconds(3600), metadataMIMEType: MetadataFormat.composite.mimeType)))
    return [
      kind("KEEPALIVE") { _ in [.keepalive(respond: true, position: 0, data: [])] },
      kind("REQUEST_N") { [.requestN($0, 1)] },
      kind("CANCEL") { [.cancel($0)] },
      kind("unknown frame") { [.ext($0, type: 7, isIgnorable: true, hasMetadata: false, body: [])] },
      kind("request and CANCEL") { [StreamdBroker.request(.stream, $0, "b", credit: 1), .cancel($0)] },
      kind("request of no stream") { [StreamdBroker.request(.stream, $0, "n", credit: 1)] },
      kind("REQUEST_RESPONSE") { [StreamdBroker.request(.response, $0, "b", credit: 1), .cancel($0)] },
      kind("fragments") {
        let id = $0
        let route = Payload(metadata: [1, UInt8(ascii: "b")], data: [])
        return [.request(id, .stream, initialRequest: 1, route, follows: true, isComplete: false)]
          + (0..<100).map { _ in
            .payload(id, Payload(data: [32]), follows: true, isComplete: false, isNext: true)
          } + [.cancel(id)]
      },
      InputKind(name: "composite metadata", greeting: composite) { number in
        let id = StreamID(UInt32(truncatingIfNeeded: number * 2 + 1) & 0x7fff_ffff)
        let entries = [UInt8]((0..<2000).flatMap { _ in [0x85, 0, 0, 0] as [UInt8] })
        let request = Frame.request(
          id, .stream, initialRequest: 1, Payload(metadata: entries, data: []), follows: false, isComplete: false)
        return StreamdBroker.encoded(request)
      },
    ]
  }

  /// A request's options, of about 8 KiB.
  private static func options() -> [InputKind] {
    func kind(_ name: String, _ text: String) -> InputKind {
      let data = Array(text.utf8)
      return InputKind(name: "options: " + name, greeting: setup) { number in
        let id = StreamID(UInt32(truncatingIfNeeded: number * 2 + 1) & 0x7fff_ffff)
        return StreamdBroker.encoded(StreamdBroker.request(.stream, id, "b", credit: 1, data: data))
          + StreamdBroker.encoded(.cancel(id))
      }
    }
    func list(_ item: (Int) -> String, _ count: Int) -> String { (0..<count).map(item).joined(separator: ",") }
    func wanting(_ list: String) -> String { #"{"where":{"/a":{"in":["# + list + "]}}}" }
    return [
      kind("arrays", String(repeating: "[", count: 8000)),
      kind("arrays of objects", #"{"where":["# + list({ _ in "[[[{}]]]" }, 890) + "]}"),
      kind("objects", #"{"where":"# + String(repeating: #"{"a":"#, count: 1600)),
      kind("numbers", wanting(list({ "\($0)" }, 1600))),
      kind("equal numbers", wanting(list({ _ in "1" }, 4000))),
      kind("numbers, exponents", wanting(list({ _ in "1e999999999" }, 600))),
      kind("a long number", wanting(String(repeating: "9", count: 1000))),
      kind("strings", wanting(list({ "\"\($0)\"" }, 1100))),
      kind("escapes", wanting(list({ _ in "\"" + String(repeating: #"\u0061"#, count: 100) + "\"" }, 13))),
      kind("surrogates", wanting(list({ _ in #""\ud800\udc00""# }, 500))),
      kind("pointers", #"{"where":{"# + list({ "\"/\($0)\":1" }, 900) + "}}"),
      kind("a long pointer", #"{"where":{""# + String(repeating: "/~0", count: 2500) + "\":1}}"),
      kind("equal members", "{" + list({ _ in #""a":1"# }, 1300) + "}"),
      kind("blanks", "{" + String(repeating: " ", count: 8000) + "}"),
      kind("no JSON", String(repeating: "\u{fffd}", count: 2600)),
    ]
  }

  /// Values that are published.
  private static func values() -> [InputKind] {
    func kind(_ name: String, to stream: String, _ data: [UInt8]) -> InputKind {
      InputKind(name: name, greeting: setup) { number in
        let id = StreamID(UInt32(truncatingIfNeeded: number * 2 + 1) & 0x7fff_ffff)
        return StreamdBroker.encoded(StreamdBroker.request(.fireAndForget, id, stream, credit: 0, data: data))
      }
    }
    func json(_ name: String, _ text: String) -> [InputKind] {
      ["keyed", "distinct"].map { kind("\($0): \(name)", to: $0, Array(text.utf8)) }
    }
    return [kind("values", to: "b", [1])]
      + json("small", #"{"id":1,"a":{"b":1}}"#)
      + json("no JSON", "x")
      + json("arrays", #"{"a":"# + String(repeating: "[", count: 60_000))
      + json("numbers", #"{"c":["# + String(repeating: "1,", count: 30_000) + #"1],"id":7,"a":{"b":7}}"#)
      + json("equal members", "{" + String(repeating: #""id":1,"a":{"b":1},"#, count: 3000) + #""id":1}"#)
      + json("escapes", #"{"c":""# + String(repeating: #"\u0061"#, count: 9000) + #"","id":2,"a":{"b":2}}"#)
      + json("an escaped key", #"{"id":""# + String(repeating: #"\u0061"#, count: 9000) + #"","a":{"b":3}}"#)
  }

  /// Whole requests over HTTP, one after the other.
  private static func requests() -> [InputKind] {
    func kind(_ name: String, _ text: String) -> InputKind {
      let bytes = Array(text.replacing("\n", with: "\r\n").utf8)
      return InputKind(name: "HTTP: " + name) { _ in bytes }
    }
    func chunks(_ name: String, _ type: String, _ chunk: String) -> InputKind {
      kind(
        name,
        "POST /streams/b HTTP/1.1\nHost:a\nContent-Type: \(type)\nTransfer-Encoding: chunked\n\n"
          + String(repeating: chunk, count: 5000) + "0\n\n")
    }
    func body(_ name: String, _ path: String, _ type: String, _ body: String) -> InputKind {
      let head =
        "POST \(path) HTTP/1.1\r\nHost:a\r\nContent-Type: \(type)\r\nContent-Length: \(body.utf8.count)\r\n\r\n"
      return InputKind(name: "HTTP: " + name) { _ in Array(head.utf8) + Array(body.utf8) }
    }
    return [
      kind("healthz", "GET /healthz HTTP/1.1\nHost:a\n\n"),
      kind("not found", "GET /x HTTP/1.1\nHost:a\n\n"),
      kind("newest event", "GET /streams/b HTTP/1.1\nHost:a\n\n"),
      kind("not allowed", "OPTIONS /streams/b HTTP/1.1\nHost:a\n\n"),
      chunks("chunks", "text/plain", "1\nx\n"),
      chunks("chunks of lines", "application/x-ndjson", "3\n1\n\n"),
      body("lines", "/streams/b", "application/x-ndjson", String(repeating: "1\n", count: 30_000)),
      body("empty lines", "/streams/b", "application/x-ndjson", String(repeating: "\n", count: 60_000)),
      body("lines, keyed", "/streams/keyed", "application/x-ndjson", String(repeating: "{\"id\":1}\n", count: 7000)),
    ]
  }

  /// Requests with one laborious part of some KiB.
  private static func fields() -> [InputKind] {
    func kind(_ name: String, path: String = "b", query: String = "", _ lines: String = "") -> InputKind {
      let bytes = Array("GET /streams/\(path)?\(query) HTTP/1.1\r\nHost:a\r\n\(lines)\r\n".utf8)
      return InputKind(name: "HTTP: " + name) { _ in bytes }
    }
    func repeated(_ text: String, _ count: Int) -> String { String(repeating: text, count: count) }
    return [
      kind("fields", repeated("a:\r\n", 90)),
      kind("Accept", "Accept: \(repeated("a/b,", 1900))\r\n"),
      kind("Accept, parameters", "Accept: text/plain\(repeated(";q=0", 1900))\r\n"),
      kind("Accept-Encoding", "Accept-Encoding: \(repeated("a,", 3800))\r\n"),
      kind("If-None-Match", "If-None-Match: \(repeated("\"1\",", 1900))\r\n"),
      kind("Connection", "Connection: \(repeated("a,", 3800))\r\n"),
      kind("Cookie", "Cookie: \(repeated("a;", 3800))\r\n"),
      kind("Last-Event-ID", "Last-Event-ID: \(repeated("1,", 3800))\r\n"),
      kind("parameters", query: repeated("a&", 3800)),
      kind("percent signs", query: "key=" + repeated("%61", 2500)),
      kind("where", query: "where=" + repeated("%5B", 2500)),
      kind("from", query: "from=" + repeated("1", 7600)),
      kind("names", path: repeated("b,", 3800)),
    ]
  }

  private static func webSocket() -> [InputKind] {
    let upgrade = Array(
      ("GET /rsocket HTTP/1.1\r\nHost:a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        + "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n").utf8)
    func masked(_ opcode: UInt8, _ bytes: [UInt8] = []) -> [UInt8] {
      precondition(bytes.count < 126)
      return [opcode, 0x80 | UInt8(bytes.count), 0, 0, 0, 0] + bytes
    }
    let keepalive = Array(StreamdBroker.encoded(.keepalive(respond: false, position: 0, data: [])).dropFirst(3))
    let started = upgrade + masked(0x82, Array(setup.dropFirst(3)))
    return [
      InputKind(name: "WebSocket: ping", greeting: started) { _ in masked(0x89) },
      InputKind(name: "WebSocket: KEEPALIVE", greeting: started) { _ in masked(0x82, keepalive) },
      InputKind(name: "WebSocket: parts", greeting: started) { _ in
        masked(0x02) + [UInt8]((0..<100).flatMap { _ in masked(0x00) }) + masked(0x80, keepalive)
      },
    ]
  }
}

/// Sends one kind of input over one connection at a time.
@safe private final class InputFlood {
  private let broker: StreamdBroker
  private let kind: InputKind
  private var socket: CInt = -1
  private var number = 0
  private var unsent: [UInt8] = []
  private let scratch = UnsafeMutableRawBufferPointer.allocate(byteCount: 256 << 10, alignment: 16)

  init(_ broker: StreamdBroker, _ kind: InputKind) { (self.broker, self.kind) = (broker, kind) }

  deinit {
    if socket >= 0 { close(socket) }
    unsafe scratch.deallocate()
  }

  /// - Returns: nanoseconds of the daemon's processor time for each byte that it has taken.
  func cost(over seconds: Double) throws -> Double {
    let (start, before) = (monotonicSeconds(), try broker.process.processorSeconds())
    var byteCount = 0
    while monotonicSeconds() - start < seconds {
      if socket < 0 { try connect() }
      byteCount += send()
      receive()
    }
    guard byteCount > 0 else { throw BenchError("streamd takes no input: \(kind.name)") }
    return (try broker.process.processorSeconds() - before) * 1e9 / Double(byteCount)
  }

  private func connect() throws {
    socket = try Handshake.connect(to: broker.path)
    _ = fcntl(socket, F_SETFL, O_NONBLOCK)
    (number, unsent) = (0, kind.greeting)
  }

  private func send() -> Int {
    if kind.endsConnection {
      if number == 0 { unsent += kind.unit(number) }
      number = 1
      guard !unsent.isEmpty else { return 0 }
    }
    while !kind.endsConnection, unsent.count < 128 << 10 {
      unsent += kind.unit(number)
      number += 1
    }
    let count = unsafe Glibc.send(socket, unsent, unsent.count, CInt(MSG_NOSIGNAL))
    guard count > 0 else {
      if count < 0, errno == EAGAIN { usleep(50) } else { hangUp() }
      return 0
    }
    unsent.removeFirst(count)
    return count
  }

  private func receive() {
    while socket >= 0 {
      let count = unsafe recv(socket, scratch.baseAddress, scratch.count, 0)
      if count == 0 || (count < 0 && errno != EAGAIN) { return hangUp() }
      if count < 0 { return }
    }
  }

  private func hangUp() {
    close(socket)
    socket = -1
  }
}
