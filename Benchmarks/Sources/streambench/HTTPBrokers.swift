import Glibc
import StreamRuntime

// streamd over HTTP, beside its own RSocket, nginx with nchan, and nginx with a file. Events are numbered in bytes that
// are no line ends.

/// streamd's events over HTTP. Values are published over RSocket, as in the other rows.
final class HTTPEventsBroker: Broker {
  enum Form {
    /// Server-sent events.
    case events
    /// Messages of a WebSocket.
    case messages
  }

  let name: String
  let streamd: StreamdBroker
  let shape: EventShape
  private let form: Form
  var process: ServerProcess { streamd.process }

  init(_ program: String, _ form: Form = .events, stream: String = StreamdBroker.stream) throws {
    self.form = form
    name = form == .events ? "streamd SSE" : "streamd WebSocket"
    streamd = try StreamdBroker(program, stream: stream)
    // "id: ", 16 digits of an id in microseconds since 1970, "\ndata: ", the data, an empty line; in a chunk.
    let head = 4 + 16 + 7
    let byteCount = head + EventShape.dataByteCount + 2
    let chunkHead = String(byteCount, radix: 16).utf8.count + 2
    // A frame of fewer than 126 bytes has a head of two.
    let isFrame = form == .messages
    shape = EventShape(
      byteCount: isFrame ? 2 + EventShape.dataByteCount : chunkHead + byteCount + 2,
      dataOffset: isFrame ? 2 : chunkHead + head, idOffset: nil, request: streamd.shape.request,
      requestDataOffset: streamd.shape.requestDataOffset, isText: true)
  }

  func subscribe() throws -> CInt {
    let raw = try Handshake.connect(to: streamd.path)
    switch form {
    case .events:
      try Handshake.say(Array("GET /streams/b?as=sse&from=new HTTP/1.1\r\nHost: bench\r\n\r\n".utf8), to: raw)
      try Handshake.hear(Array("retry: 2000\n\n\r\n".utf8), from: raw)
    case .messages:
      // Key and answer are those of RFC 6455, section 1.3.
      let fields = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
      let head = "GET /streams/b?from=new HTTP/1.1\r\nHost: localhost\r\n\(fields)"
      try Handshake.say(Array((head + "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n").utf8), to: raw)
      try Handshake.hear(Array("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n".utf8), from: raw)
    }
    return raw
  }

  var initialCredit: Int { streamd.initialCredit }
  var eventsOnConnecting: Int { streamd.eventsOnConnecting }
  func connectPublisher() throws -> CInt { try streamd.connectPublisher() }
  func credit(from bytes: UnsafeRawBufferPointer) throws -> Int { try unsafe streamd.credit(from: bytes) }
}

/// nginx with a server of its own on a Unix socket.
private final class Nginx {
  let process: ServerProcess
  var path: String { process.folder + "/s" }
  static let program = "/usr/sbin/nginx"
  static var isInstalled: Bool { unsafe access(program, X_OK) == 0 }

  /// - Parameters:
  ///   - modules: paths.
  ///   - files: names and contents, created in the folder.
  ///   - settings: directives outside of the server.
  ///   - locations: receives the folder.
  init(modules: [String] = [], files: [String: String] = [:], settings: String = "", locations: (String) -> String)
    throws
  {
    process = try ServerProcess(Self.program, files: files) { folder in
      let configuration = """
        \(modules.map { "load_module \($0);" }.joined())
        daemon off; user root; worker_processes 2; pid \(folder)/pid; error_log \(folder)/log;
        events { worker_connections 16384; }
        http {
          access_log off; keepalive_requests 1000000000;
          \(settings)
          server {
            listen unix:\(folder)/s backlog=4096;
            \(locations(folder))
          }
        }
        """
      if let file = unsafe fopen("\(folder)/nginx.conf", "w") {
        unsafe fputs(configuration, file)
        unsafe fclose(file)
      }
      return ["-e", "\(folder)/log", "-p", folder, "-c", "\(folder)/nginx.conf"]
    }
    try process.waitUntilItServes { try Handshake.connect(to: path) }
  }

  /// A file as large as an event.
  static func withFile() throws -> Nginx {
    let page = String(repeating: "x", count: EventShape.dataByteCount)
    return try Nginx(files: ["page": page]) { "location = /page { root \($0); default_type text/plain; }" }
  }
}

/// nginx with nchan: values are POSTed on one connection and arrive as server-sent events, whose ids differ in size.
private final class NchanBroker: Broker {
  let name = "nginx with nchan"
  let shape: EventShape
  var process: ServerProcess { nginx.process }
  private let nginx: Nginx
  private static let module = "/usr/lib/nginx/modules/ngx_nchan_module.so"
  static var isInstalled: Bool { unsafe Nginx.isInstalled && access(module, R_OK) == 0 }
  private static let bufferedEvents = 16384

  init() throws {
    nginx = try Nginx(
      modules: [Self.module], settings: "nchan_shared_memory_size 256m; client_header_buffer_size 64k;"
    ) { _ in
      """
      location = /publish {
        nchan_publisher; nchan_channel_id b; nchan_message_buffer_length \(Self.bufferedEvents); nchan_message_timeout 10m;
      }
      location = /events { nchan_subscriber eventsource; nchan_channel_id b; nchan_subscriber_first_message oldest; }
      """
    }
    let head = Array(
      "POST /publish HTTP/1.1\r\nHost: bench\r\nContent-Length: \(EventShape.dataByteCount)\r\n\r\n".utf8)
    // "id: ", the time, a number within its second, "\ndata: ", the data, an empty line.
    shape = EventShape(
      byteCount: 128, dataOffset: 0, idOffset: nil, request: head + EventShape.data, requestDataOffset: head.count,
      isText: true, isDelimited: true)
  }

  func subscribe() throws -> CInt {
    let raw = try Handshake.connect(to: nginx.path)
    try Handshake.say(Array("GET /events HTTP/1.1\r\nHost: bench\r\nAccept: text/event-stream\r\n\r\n".utf8), to: raw)
    try Handshake.hear(Array(": hi\n\n".utf8), from: raw)
    return raw
  }

  func connectPublisher() throws -> CInt { try Handshake.connect(to: nginx.path) }

  /// Requests that may wait for their responses: enough that nginx never waits for the next one.
  let initialCredit = 256
  /// How much of `accepted` the replies end with.
  private var matched = 0
  private static let accepted = Array("HTTP/1.1 2".utf8)

  func credit(from bytes: UnsafeRawBufferPointer) throws -> Int {
    var credit = 0
    for index in bytes.indices {
      let byte = unsafe bytes[index]
      if byte == Self.accepted[matched] {
        matched += 1
      } else {
        guard matched < Self.accepted.count - 1 else { throw BenchError("nginx does not accept an event") }
        matched = byte == Self.accepted[0] ? 1 : 0
      }
      if matched == Self.accepted.count { (matched, credit) = (0, credit + 1) }
    }
    return credit
  }

  func window(subscribers: Int) -> Int { max(64, min(4096, 200_000 / subscribers)) }
  /// An id is a second and a number of 16 bits with a sign: after 32,768 events in one second nothing more arrives.
  let greatestRate = 30_000
}

func measureHTTP(_ options: Options) throws {
  var makers: [() throws -> any Broker] = [
    { try HTTPEventsBroker(options.program) }, { try StreamdBroker(options.program) },
    { try HTTPEventsBroker(options.program, .messages) },
  ]
  if NchanBroker.isInstalled {
    makers.append { try NchanBroker() }
  } else {
    Report.note("nginx with nchan is not measured: the package libnginx-mod-nchan is not installed")
  }
  for subscribers in [1, 100, 1000, 10_000] { try measureEvents(options, makers, subscribers: subscribers) }
  makers.removeSubrange(1...2)
  for subscribers in [1, 100, 1000, 10_000] { try measureEventLatency(options, makers, subscribers: subscribers) }
  Report.heading("memory per idle event stream, at 9,000 clients", goal: "at most 700 bytes")
  let quiet = try HTTPEventsBroker(options.program, stream: StreamdBroker.quiet)
  Report.line(quiet.name, Figures([try bytesPerSubscriber(quiet)]), "bytes")
  try measureNewest(options)
}

/// Deliveries per second of streamd over HTTP, of its RSocket, and of nchan.
private func measureEvents(_ options: Options, _ makers: [() throws -> any Broker], subscribers: Int) throws {
  let exceedsNchan = [100, 1000].contains(subscribers)
  Report.heading(
    "server-sent events, \(counted(subscribers, "client")), 64 bytes",
    goal: "70 % of RSocket's bytes" + (exceedsNchan ? ", 30 x nchan" : ""))
  var byteCounts: [String: Int] = [:]
  let rates = try compareThroughput(
    options,
    makers.map { make in
      {
        let broker = try make()
        byteCounts[broker.name] = broker.shape.byteCount
        return try Contender(broker, subscribers: subscribers, verifies: options.verifies)
      }
    }, subscribers: subscribers)
  func bytes(_ rate: (name: String, figures: Figures)) -> Double {
    rate.figures.median * Double(byteCounts[rate.name] ?? 0)
  }
  for (index, rate) in rates.enumerated() {
    var ratios: [String] = []
    if index == 0 {
      ratios.append(Report.percent(bytes(rate), of: bytes(rates[1]), "RSocket's bytes"))
      ratios.append(Report.percent(rate.figures.median, of: rates[1].figures.median, "its events"))
      if rates.count > 3 { ratios.append(Report.times(rate.figures.median, rates[3].figures.median, "nchan")) }
    }
    Report.line(rate.name, rate.figures, "events/s", ratios)
  }
}

/// The latency of streamd's events and of nchan's, at a rate that nchan sustains.
private func measureEventLatency(_ options: Options, _ makers: [() throws -> any Broker], subscribers: Int) throws {
  let rate = min(200, 50_000 / subscribers)
  Report.heading(
    "latency of server-sent events in ms, \(rate) events/s, \(counted(subscribers, "client"))", goal: "below nchan's")
  // One after the other where the process may not have that many descriptors.
  let groups = subscribers * makers.count < 15_000 ? [makers] : makers.map { [$0] }
  var figures: [(p50: Figures, p99: Figures)] = []
  var names: [String] = []
  for group in groups {
    let contenders = try group.map { try Contender($0(), subscribers: subscribers, verifies: true) }
    figures += try compareLatencies(contenders, options, perSecond: rate)
    names += contenders.map(\.name)
  }
  report(figures, of: names, comparedWith: "nchan's")
}

/// Requests for the newest event per second, beside a file of the same size from nginx: 32 connections that are kept.
private func measureNewest(_ options: Options) throws {
  Report.heading("GET of the newest event, 64 bytes, 32 connections", goal: "as many as nginx serves a file")
  let streamd = try HTTPEventsBroker(options.program)
  let publisher = try streamd.connectPublisher()  // which publishes the first event
  defer { close(publisher) }
  usleep(100_000)
  var contenders = [("streamd", streamd.streamd.path, "/streams/b")]
  let nginx = Nginx.isInstalled ? try Nginx.withFile() : nil
  if let nginx { contenders.append(("nginx", nginx.path, "/page")) }
  var medians: [Double] = []
  for (name, path, target) in contenders.reversed() {
    let values = try (0..<options.runs).map { _ in
      try requestsPerSecond(path, target, over: options.seconds)
    }
    medians.append(Figures(values).median)
    Report.line(
      name, Figures(values), "requests/s", medians.count > 1 ? [Report.times(medians[1], medians[0], "nginx")] : [])
  }
  withExtendedLifetime(nginx) {}
}

private func requestsPerSecond(_ path: String, _ target: String, over seconds: Double) throws -> Double {
  let sockets = try (0..<32).map { _ in try Handshake.connect(to: path) }
  defer { sockets.forEach { close($0) } }
  let request = Array("GET \(target) HTTP/1.1\r\nHost: bench\r\n\r\n".utf8)
  var buffer = [UInt8](repeating: 0, count: 8192)
  var count = 0
  let start = monotonicSeconds()
  while monotonicSeconds() - start < seconds {
    for socket in sockets { try Handshake.say(request, to: socket) }
    for socket in sockets {
      // Head and body of 64 bytes come in one piece, or in two.
      var received = 0
      while received < 64 || !buffer.prefix(received).starts(with: Array("HTTP/1.1 200".utf8))
        || !isWhole(buffer, received)
      {
        let more = unsafe buffer.withUnsafeMutableBytes {
          unsafe recv(socket, $0.baseAddress! + received, $0.count - received, 0)
        }
        guard more > 0 else { throw BenchError("\(target): the server hung up") }
        received += more
      }
      count += 1
    }
  }
  return Double(count) / (monotonicSeconds() - start)
}

/// Whether a response with a body of 64 bytes is complete.
private func isWhole(_ bytes: [UInt8], _ count: Int) -> Bool {
  var index = 3
  while index < count {
    if bytes[index] == 10, bytes[index - 2] == 10 { return count >= index + 1 + EventShape.dataByteCount }
    index += 1
  }
  return false
}
