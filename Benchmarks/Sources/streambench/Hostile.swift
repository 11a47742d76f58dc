import CLinux
import Glibc
import RSocket
import StreamRuntime

// Measures whether hostile clients and upstreams cost well-behaved clients events or time, or end the daemon.

private let subscriberCount = 100
private let eventsPerSecond = 500.0
private let seed: UInt64 = 0xBAD_5EED
/// Maximum wait for an event, for a KEEPALIVE's echo, and for the newest event over HTTP.
private let longestWait: UInt64 = 100_000_000
/// A longer turn of this program's own loop excuses late events in it: the machine was busy.
private let slowTurn: UInt64 = 20_000_000
/// Maximum growth of memory since before the first hostile client: what these clients may use at a time by the daemon's
/// limits, and the allocator's share of it.
private let memoryTolerance = 256 << 20

func measureHostile(_ options: Options) throws {
  let seconds = options.isQuick ? 15.0 : 600.0
  Report.heading(
    "\(counted(HostileClients.count, "hostile client")) and 4 hostile upstreams beside \(subscriberCount) subscribers, \(Int(seconds)) s, seed \(seed)",
    goal: "every event, waits under 100 ms")
  let upstreams = try HostileUpstreams(seed: seed)
  let broker = try StreamdBroker(options.program, stream: Bystanders.streams + upstreams.streams)
  // The folder's mode lets other users reach the socket.
  unsafe chmod(broker.process.folder, 0o711)
  let bystanders = try Bystanders(broker)
  try bystanders.run(for: min(2, seconds / 4))  // warm-up
  let memory = try broker.process.residentBytes()
  let accepted = try bystanders.acceptedConnections()
  bystanders.waits = Waits()
  var peak = memory
  do {
    let hostile = try HostileClients(broker.path, seed: seed)
    defer { withExtendedLifetime(hostile) {} }
    try bystanders.run(for: seconds) { peak = max(peak, try broker.process.residentBytes()) }
  }
  let connections = try bystanders.acceptedConnections() - accepted
  try bystanders.drain()
  Report.line("hostile connections", Int(connections))
  Report.line("events delivered", bystanders.total, "each looked at")
  Report.line("longest wait", Int(bystanders.waits.longestEvent / 1000), "us, of an event")
  Report.line("longest wait", Int(bystanders.waits.longestEcho / 1000), "us, of a KEEPALIVE")
  Report.line("longest wait", Int(bystanders.waits.longestGet / 1000), "us, of a GET")
  Report.line("waits over 100 ms", bystanders.waits.late, "of all")
  Report.line("slowest turn", Int(bystanders.slowestTurn / 1000), "us, of this program's own loop")
  Report.line("memory", peak, "bytes at most; \(counted(memory)) before")
  guard connections > Int(seconds) else { throw BenchError("only \(connections) hostile connections came through") }
  guard bystanders.waits.late == 0 else { throw BenchError("\(bystanders.waits.late) waits over 100 ms") }
  guard peak < memory + memoryTolerance else { throw BenchError("\(peak - memory) bytes held for hostile clients") }
}

/// The waiting times of well-behaved clients.
struct Waits {
  /// Nanoseconds from a publisher's `send` to a subscriber's `recv`.
  var longestEvent: UInt64 = 0
  /// Nanoseconds from a KEEPALIVE to its echo.
  var longestEcho: UInt64 = 0
  /// Nanoseconds from a GET of the newest event to its response.
  var longestGet: UInt64 = 0
  /// Waits over the limit that are not excused by this program's own loop.
  var late = 0
}

/// Well-behaved clients on one loop: subscribers that read every event, a publisher with a steady pace, and two clients on
/// each of the daemon's loops: one repeatedly sends a KEEPALIVE, the other repeatedly requests the newest event by HTTP.
private final class Bystanders {
  /// The first belongs to the well-behaved clients; the others are targets of the attack. Many, so that the catalogue
  /// is large.
  static let streams = """
    mode = "0666"
    [streams.b]
    publish = true
    buffer = { events = 262144, bytes = "64MiB" }
    [streams.small]
    publish = true
    write = ["*"]
    replay = 16
    buffer = { events = 256, bytes = "1MiB" }
    [streams.block]
    publish = true
    write = ["*"]
    replay = 16
    overflow = "block"
    block_timeout = "2s"
    buffer = { events = 1024, bytes = "4MiB" }
    [streams.large]
    publish = true
    write = ["*"]
    type = "application/json"
    buffer = { events = 256, bytes = "16MiB" }
    [streams.keyed]
    publish = true
    write = ["*"]
    type = "application/json"
    key = ".id"
    buffer = { events = 256, bytes = "16MiB" }

    """
    + (0..<300).map {
      "[streams.timer-\($0)]\ntimer = { every = \"100ms\" }\nbuffer = { events = 64, bytes = \"64KiB\" }\n"
    }.joined()

  private let pool: SubscriberPool
  private let feeder: Feeder
  private let broker: StreamdBroker
  private var echoes: [Echo] = []
  var waits = Waits()
  private(set) var slowestTurn: UInt64 = 0
  /// Events sent before this time are excused: this program's loop was late.
  private var excusedUntil: UInt64 = 0

  private struct Echo {
    let socket: CInt
    let longest: WritableKeyPath<Waits, UInt64>
    let question: [UInt8]
    /// The size of each answer.
    let answerByteCount: Int
    /// When the pending question was sent; nil: none is pending.
    var askedAt: UInt64?
    var answerBytes = 0
  }

  init(_ broker: StreamdBroker) throws {
    self.broker = broker
    let sockets = try (0..<subscriberCount).map { _ in try broker.subscribe() }
    pool = try SubscriberPool(broker.name, sockets, shape: broker.shape, firstNumber: 0, verifiesAll: true)
    let feeder = try Feeder(broker)
    self.feeder = feeder
    try pool.watch(publisher: feeder.socket)
    pool.onPublisher = { try feeder.hear() }
    // Assigned four at a time, they cover every loop.
    let keepalive = StreamdBroker.encoded(.keepalive(respond: true, position: 0, data: []))
    for _ in 0..<16 {
      let socket = try Handshake.connect(to: broker.path)
      try Handshake.say(StreamdBroker.greeting(), to: socket)
      try StreamdBroker.awaitEcho(socket)
      echoes.append(
        Echo(socket: socket, longest: \.longestEcho, question: keepalive, answerByteCount: keepalive.count))
    }
    usleep(100_000)  // until the stream has the publisher's first event
    let get = Array("GET /streams/b HTTP/1.1\r\nHost: localhost\r\n\r\n".utf8)
    for _ in 0..<16 {
      let socket = try Handshake.connect(to: broker.path)
      try Handshake.say(get, to: socket)
      // Ids, dates and events have fixed sizes, and so has the response.
      var response = [UInt8](repeating: 0, count: 4096)
      let count = unsafe recv(socket, &response, response.count, 0)
      guard count > 0, response.starts(with: Array("HTTP/1.1 200 ".utf8)) else {
        throw BenchError("streamd does not respond with its newest event")
      }
      echoes.append(Echo(socket: socket, longest: \.longestGet, question: get, answerByteCount: count))
    }
    unsafe pool.onTimes = { [unowned self] bytes, stride, now in
      // The first event of a read has waited longest.
      let sent = unsafe bytes.loadUnaligned(as: UInt64.self)
      note(\.longestEvent, since: sent, now)
    }
  }

  deinit { for echo in echoes { close(echo.socket) } }

  var total: Int { pool.total }

  private func note(_ longest: WritableKeyPath<Waits, UInt64>, since sent: UInt64, _ now: UInt64) {
    guard sent > excusedUntil, now > sent else { return }
    waits[keyPath: longest] = max(waits[keyPath: longest], now - sent)
    if now - sent > longestWait { waits.late += 1 }
  }

  /// - Parameter eachSecond: called about once a second.
  func run(for seconds: Double, eachSecond: () throws -> Void = {}) throws {
    let start = monotonicNanoseconds()
    let first = feeder.sent
    var last = start
    var nextSecond = 1.0
    while true {
      let now = monotonicNanoseconds()
      let elapsed = Double(now - start) / 1e9
      guard elapsed < seconds else { return }
      slowestTurn = max(slowestTurn, now - last)
      if now - last > slowTurn { excusedUntil = now }
      last = now
      try feeder.feed(upTo: first + Int(elapsed * eventsPerSecond))
      try askAndHear(now)
      try pool.read(timeout: 1)
      if elapsed > nextSecond {
        nextSecond += 1
        try eachSecond()
        last = monotonicNanoseconds()
      }
    }
  }

  private func askAndHear(_ now: UInt64) throws {
    for index in echoes.indices {
      let echo = echoes[index]
      if let askedAt = echo.askedAt {
        let count = unsafe withUnsafeTemporaryAllocation(byteCount: 1024, alignment: 1) {
          unsafe recv(echo.socket, $0.baseAddress, $0.count, CInt(MSG_DONTWAIT))
        }
        guard count != 0 else { throw BenchError("a client that only asks was hung up on") }
        echoes[index].answerBytes += max(0, count)
        guard echoes[index].answerBytes >= echo.answerByteCount else { continue }
        note(echo.longest, since: askedAt, monotonicNanoseconds())
        echoes[index].askedAt = nil
      } else {
        echoes[index].askedAt = now
        echoes[index].answerBytes = 0
        try Handshake.say(echo.question, to: echo.socket)
      }
    }
  }

  /// Reads the events in flight: every subscriber must receive every event.
  func drain() throws {
    while pool.least < feeder.sent {
      guard try pool.read(timeout: 10_000) else {
        throw BenchError("\(feeder.sent) events sent, but only \(pool.least) received by one subscriber")
      }
    }
    guard pool.most == feeder.sent else { throw BenchError("more events received than sent") }
  }

  func acceptedConnections() throws -> Int {
    let text = String(decoding: try broker.ask("$stats"), as: UTF8.self)
    guard let found = text.split(separator: "\"accepted\":", omittingEmptySubsequences: false).last,
      let number = Int(found.prefix { $0.isNumber })
    else { throw BenchError("$stats has no count of accepted connections") }
    return number
  }
}
