import Glibc
import RSocket
import StreamRuntime

// Streams of a template, beside the streams of valkey or redis.

private let eventBytes = 256
private let event = [UInt8](repeating: UInt8(ascii: "x"), count: eventBytes)

func measureNames(_ options: Options) throws {
  let count = options.isQuick ? 10_000 : 100_000
  Report.heading(
    "\(counted(count, "stream")) made by one publisher, an event of \(eventBytes) bytes each",
    goal: "100,000/s, 2 KB beside the event")
  var (rates, bytes, descriptors): ([Double], [Double], [Double]) = ([], [], [])
  for _ in 0..<options.runs {
    let load = try NamesLoad(options, streams: count)
    let (memory, files) = (try load.broker.process.residentBytes(), try load.broker.process.descriptorCount())
    rates.append(Double(count) / (try load.makeAll()))
    bytes.append(Double(try load.broker.process.residentBytes() - memory) / Double(count) - Double(eventBytes))
    descriptors.append(Double(try load.broker.process.descriptorCount() - files))
  }
  Report.line("made", Figures(rates), "/s")
  Report.line("memory of each beside its event", Figures(bytes), "bytes")
  Report.line("descriptors of all", Figures(descriptors), "")
  try measureTurns(options)
  try measureVisits(options)
  try measureManyConfigured(options)
}

/// Values to 10,000 streams in turn by 64 publishers.
private func measureTurns(_ options: Options) throws {
  let (streams, publishers) = (10_000, 64)
  Report.heading(
    "\(publishers) publishers to \(counted(streams, "stream")) in turn, \(eventBytes) bytes",
    goal: "1 M/s, 3 times XADD")
  let load = try NamesLoad(options, streams: streams)
  _ = try load.makeAll()
  let sockets = try (0..<publishers).map { _ in try load.connect() }
  var batches = (0..<publishers).map { first in
    FrameBatch(stride(from: first, to: streams, by: publishers).map { "s/\($0)" })
  }
  var rates: [Double] = []
  for _ in 0..<options.runs {
    let start = monotonicSeconds()
    var sent = 0
    while monotonicSeconds() - start < options.seconds {
      for (index, socket) in sockets.enumerated() { sent += try batches[index].send(to: socket) }
    }
    for socket in sockets { try load.awaitAll(of: socket) }
    rates.append(Double(sent) / (monotonicSeconds() - start))
  }
  sockets.forEach { close($0) }
  let figures = Figures(rates)
  Report.line("streamd", figures, "values/s")
  guard let valkey = try StreamsOfValkey() else { return }
  let peer = Figures(try (0..<options.runs).map { _ in try valkey.perSecond(over: options.seconds) })
  Report.line(
    "\(valkey.name), XADD", peer, "values/s", ["streamd: " + Report.times(figures.median, peer.median, valkey.name)])
}

/// A stream is made, read by one subscriber, and forgotten for the next one.
private func measureVisits(_ options: Options) throws {
  Report.heading("a stream that is made, read by one subscriber and forgotten", goal: "50 µs of a processor")
  let load = try NamesLoad(options, streams: 64)
  let count = options.isQuick ? 2000 : 20_000
  let socket = try load.connect()
  defer { close(socket) }
  var costs: [Double] = []
  var number: UInt32 = 1
  for run in 0..<options.runs {
    let before = try load.broker.process.processorSeconds()
    for index in 0..<count {
      let name = "v/\(run)-\(index)"
      let id = StreamID(number)
      let (value, reading) = (StreamID(number + 2), StreamdBroker.request(.stream, id, name, credit: 1))
      number += 4
      try Handshake.say(
        StreamdBroker.encoded(reading)
          + StreamdBroker.encoded(StreamdBroker.request(.fireAndForget, value, name, credit: 0, data: event))
          + StreamdBroker.encoded(.cancel(id)), to: socket)
      if index % 16 == 15 { try load.awaitAll(of: socket) }
    }
    costs.append((try load.broker.process.processorSeconds() - before) / Double(count) * 1e6)
  }
  Report.line("streamd", Figures(costs), "µs")
}

private func measureManyConfigured(_ options: Options) throws {
  Report.heading("start-up to READY with 10,000 streams", goal: "under 300 ms")
  let streams = (0..<10_000).map {
    "[streams.\"c/\($0)\"]\npublish = true\nbuffer = { events = 256, bytes = \"256KiB\" }"
  }
  let times = try (0..<options.runs).map { _ in
    try StreamdBroker(options.program, stream: streams.joined(separator: "\n")).secondsToReady * 1000
  }
  Report.line("streamd", Figures(times), "ms")
}

/// Values to streams, each a request without an answer.
private struct FrameBatch {
  private var bytes: [UInt8] = []
  /// Where the id of each request is.
  private var places: [Int] = []
  private var id: UInt32 = 1

  init(_ names: [String]) {
    for name in names {
      places.append(bytes.count + 3)
      bytes += StreamdBroker.encoded(
        StreamdBroker.request(.fireAndForget, StreamID(1), name, credit: 0, data: event))
    }
  }

  /// - Returns: the number of values.
  mutating func send(to socket: CInt) throws -> Int {
    for place in places {
      for (index, byte) in unsafe withUnsafeBytes(of: id.bigEndian, { unsafe Array($0) }).enumerated() {
        bytes[place + index] = byte
      }
      id += 2
    }
    try Handshake.say(bytes, to: socket)
    return places.count
  }
}

/// A daemon with templates.
private final class NamesLoad {
  let broker: StreamdBroker
  private let streams: Int

  init(_ options: Options, streams: Int) throws {
    self.streams = streams
    broker = try StreamdBroker(
      options.program,
      stream: """
        [streams."s/{number}"]
        publish = true
        streams = \(streams)
        forget = "never"
        [streams."v/{number}"]
        publish = true
        streams = 64
        forget = "1ms"
        """)
  }

  func connect() throws -> CInt {
    let socket = try Handshake.connect(to: broker.path)
    try Handshake.say(StreamdBroker.encoded(StreamdBroker.setup), to: socket)
    return socket
  }

  /// Returns when the daemon has processed what was sent. Reads all that comes before the answer.
  func awaitAll(of socket: CInt) throws {
    try Handshake.say(StreamdBroker.encoded(.keepalive(respond: true, position: 0, data: [])), to: socket)
    while true {
      let head = try Handshake.hear(3, from: socket)
      let body = try Handshake.hear(Int(head[0]) << 16 | Int(head[1]) << 8 | Int(head[2]), from: socket)
      switch try unsafe body.withUnsafeBytes({ try unsafe Frame.decode($0) }) {
      case .keepalive: return
      case .error(_, _, let message): throw BenchError("streamd refuses a value: \(message)")
      default: break
      }
    }
  }

  /// One publisher makes all streams.
  /// - Returns: seconds.
  func makeAll() throws -> Double {
    let socket = try connect()
    defer { close(socket) }
    var batches = stride(from: 0, to: streams, by: 200).map { first in
      FrameBatch((first..<min(first + 200, streams)).map { "s/\($0)" })
    }
    for index in batches.indices { batches[index].begin(at: UInt32(index) * 400 + 1) }
    let start = monotonicSeconds()
    for index in batches.indices { _ = try batches[index].send(to: socket) }
    try awaitAll(of: socket)
    return monotonicSeconds() - start
  }
}

extension FrameBatch {
  /// Sets the id of the next request.
  mutating fileprivate func begin(at id: UInt32) { self.id = id }
}

/// valkey, or redis without it: redis-benchmark adds values to streams of at most 256 entries.
private final class StreamsOfValkey {
  let name: String
  private let server: RedisBroker
  private let benchmark: String

  /// - Returns: nil if no server or benchmark is installed.
  init?() throws {
    let valkey = findProgram("valkey-server")
    guard let server = valkey ?? findProgram("redis-server"), let benchmark = findProgram("redis-benchmark") else {
      return nil
    }
    (name, self.benchmark) = (valkey == nil ? "redis" : "valkey", benchmark)
    self.server = try RedisBroker(server)
  }

  func perSecond(over seconds: Double) throws -> Double {
    let value = String(repeating: "x", count: eventBytes)
    let command =
      "\(benchmark) -s \(server.process.folder)/s -P 100 -c 64 -r 10000 -n \(Int(200_000 * seconds)) --csv "
      + "XADD key:__rand_int__ MAXLEN 256 '*' d \(value) 2>/dev/null"
    guard let pipe = unsafe popen(command, "re") else { throw SystemError("popen") }
    defer { unsafe pclose(pipe) }
    var text = [CChar](repeating: 0, count: 4096)
    while let line = unsafe fgets(&text, CInt(text.count), pipe) {
      let fields = unsafe String(cString: line).split(separator: ",").map { $0.filter { $0 != "\"" } }
      if fields.first?.hasPrefix("XADD") == true, fields.count > 1, let rate = Double(fields[1]) { return rate }
    }
    throw BenchError("\(benchmark) reports no rate of XADD")
  }
}
