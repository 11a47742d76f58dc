import Glibc
import StreamRuntime

// streamd over HTTP, beside its own RSocket, and nginx with a file. Events are numbered in bytes that are no line ends.

/// streamd's server-sent events. Values are published over RSocket, as in the other rows.
final class ServerSentEventsBroker: Broker {
  let name = "streamd SSE"
  let streamd: StreamdBroker
  let shape: EventShape
  var process: ServerProcess { streamd.process }

  init(_ program: String, stream: String = StreamdBroker.stream) throws {
    streamd = try StreamdBroker(program, stream: stream)
    // "id: ", 16 digits of an id in microseconds since 1970, "\ndata: ", the data, an empty line; in a chunk.
    let head = 4 + 16 + 7
    let byteCount = head + EventShape.dataByteCount + 2
    let chunkHead = String(byteCount, radix: 16).utf8.count + 2
    shape = EventShape(
      byteCount: chunkHead + byteCount + 2, dataOffset: chunkHead + head, idOffset: nil,
      request: streamd.shape.request, requestDataOffset: streamd.shape.requestDataOffset, isText: true)
  }

  func subscribe() throws -> CInt {
    let raw = try Handshake.connect(to: streamd.path)
    try Handshake.say(Array("GET /streams/b?as=sse&from=new HTTP/1.1\r\nHost: bench\r\n\r\n".utf8), to: raw)
    try Handshake.hear(Array("retry: 2000\n\n\r\n".utf8), from: raw)
    return raw
  }

  var initialCredit: Int { streamd.initialCredit }
  var eventsOnConnecting: Int { streamd.eventsOnConnecting }
  func connectPublisher() throws -> CInt { try streamd.connectPublisher() }
  func credit(from bytes: UnsafeRawBufferPointer) throws -> Int { try unsafe streamd.credit(from: bytes) }
}

/// nginx with a file as large as an event.
private final class NginxFile {
  let process: ServerProcess
  var path: String { process.folder + "/s" }
  static let program = "/usr/sbin/nginx"

  init() throws {
    let page = String(repeating: "x", count: EventShape.dataByteCount)
    process = try ServerProcess(Self.program, files: ["page": page]) { folder in
      let configuration = """
        daemon off; user root; worker_processes 2; pid \(folder)/pid; error_log \(folder)/log;
        events { worker_connections 1024; }
        http {
          access_log off; keepalive_requests 1000000000;
          server {
            listen unix:\(folder)/s backlog=4096;
            location = /page { root \(folder); default_type text/plain; }
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
}

func measureHTTP(_ options: Options) throws {
  for subscribers in [1, 100, 1000, 10_000] {
    Report.heading(
      "server-sent events, \(counted(subscribers, "client")), 64 bytes",
      goal: "70 % of RSocket's bytes")
    var rates: [(name: String, bytes: Int, figures: Figures)] = []
    let brokers: [any Broker] = [try ServerSentEventsBroker(options.program), try StreamdBroker(options.program)]
    for broker in brokers {
      let contender = try Contender(broker, subscribers: subscribers, verifies: options.verifies)
      let values = try (0..<options.runs).map { _ in try contender.deliveriesPerSecond(over: options.seconds) }
      rates.append((broker.name, broker.shape.byteCount, Figures(values)))
    }
    for (index, rate) in rates.enumerated() {
      var ratios: [String] = []
      if index == 0 {
        let own = rate.figures.median * Double(rate.bytes)
        ratios.append(Report.percent(own, of: rates[1].figures.median * Double(rates[1].bytes), "RSocket's bytes"))
      }
      Report.line(rate.name, rate.figures, "events/s", ratios)
    }
  }
  Report.heading("memory per idle event stream, at 9,000 clients", goal: "at most 700 bytes")
  let quiet = try ServerSentEventsBroker(options.program, stream: StreamdBroker.quiet)
  Report.line(quiet.name, Figures([try bytesPerSubscriber(quiet)]), "bytes")
  try measureNewest(options)
}

/// Requests for the newest event per second, beside a file of the same size from nginx: 32 connections that are kept.
private func measureNewest(_ options: Options) throws {
  Report.heading("GET of the newest event, 64 bytes, 32 connections", goal: "as many as nginx serves a file")
  let streamd = try ServerSentEventsBroker(options.program)
  let publisher = try streamd.connectPublisher()  // which publishes the first event
  defer { close(publisher) }
  usleep(100_000)
  var contenders = [("streamd", streamd.streamd.path, "/streams/b")]
  let nginx = unsafe access(NginxFile.program, X_OK) == 0 ? try NginxFile() : nil
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
