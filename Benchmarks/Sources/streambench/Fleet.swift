import Glibc
import StreamRuntime

// Measures streams that hosts share: brokers and hosts are processes on this machine.

private let hostCount = 3
private let eventByteCount = 256
private let idleShardCount = 16
/// Each of the shards has one of them at least.
private let idleStreamCount = 128

func measureFleet(_ options: Options) throws {
  guard let program = Fleet.brokerProgram else { return Report.note("fleet: skipped, because nats-server is missing") }
  let hasSync = try !Fleet.version(of: program).hasPrefix("v2.9.")
  try measureFleetThroughput(options, program)
  try measureFleetLatency(options, program)
  try measureFailover(options, program)
  try measureIdleFleet(options, program)
  let sync = hasSync ? "sync_interval: always" : "the sync_interval of two minutes that it has"
  Report.note("nats-server \(try Fleet.version(of: program)) with \(sync)")
}

/// Plain NATS: publish and subscribe of single events, through one broker that stores nothing. The fleet's events are in
/// records: of a program on the leading host, whose batches follow each other, and of a client that publishes to a host and
/// receives the confirmation of each batch before the next one is sent. The bare limit is what JetStream accepts of entries
/// that have the bytes of events and nothing else, while as many connections as there are hosts read them.
private func measureFleetThroughput(_ options: Options, _ program: String) throws {
  Report.heading("fleet, \(eventByteCount)-byte events from one host to another", goal: "60 % of plain NATS")
  let makers: [(String, Int, () throws -> any Broker)] = [
    ("plain NATS", 0, { try NatsBroker(program, dataByteCount: eventByteCount) }),
    ("clients, 1 broker", 1, { try FleetBroker(options, program, brokerCount: 1) }),
    ("clients, 3 brokers", 3, { try FleetBroker(options, program, brokerCount: 3) }),
  ]
  var plain: Figures?
  var limits: [Int: Figures] = [:]
  func ratios(_ rates: [Double], _ brokerCount: Int) -> [String] {
    let median = Figures(rates).median
    return [(plain, "plain NATS"), (limits[brokerCount], "JetStream")].compactMap { reference, name in
      reference.map { Report.percent(median, of: $0.median, name) }
    }
  }
  for (name, brokerCount, make) in makers {  // one after the other: an idle fleet still has heartbeats
    let contender = try Contender(try make(), subscribers: 1, verifies: true)
    let rates = try (0..<options.runs).map { _ in try contender.deliveriesPerSecond(over: options.seconds) }
    Report.line(name, Figures(rates), "events/s", ratios(rates, brokerCount))
    guard plain == nil else { continue }
    plain = Figures(rates)
    for count in [1, 3] {
      for entry in BareLog.Entry.allCases {
        let rates = try BareLog.rates(options, program, brokerCount: count, entry)
        let name = "JetStream, \(counted(count, "broker")), \(entry)"
        Report.line(name, Figures(rates), "events/s", ratios(rates, 0))
        if Figures(rates).median > limits[count]?.median ?? 0 { limits[count] = Figures(rates) }
      }
    }
  }
  for count in [1, 3] {
    let rates = try programRates(options, program, brokerCount: count)
    Report.line("program, \(counted(count, "broker"))", Figures(rates), "events/s", ratios(rates, count))
  }
}

/// A log of JetStream to which entries are appended as a shard's leader does: each expects the sequence number of the one
/// before it, and several are under way. As many connections as a fleet has hosts read what is stored, and drop it.
private struct BareLog {
  enum Entry: CaseIterable, CustomStringConvertible {
    case small, large

    var byteCount: Int { self == .small ? 64 << 10 : 1 << 20 - 4096 }
    var windowCount: Int { self == .small ? 32 : 8 }
    var description: String { self == .small ? "64 KiB" : "1 MiB" }
  }

  private let raw: CInt
  private let readers: [CInt]
  /// For each reader, the bytes that it has read.
  private var readByteCounts: [Int]
  /// The bytes of all entries.
  private var wholeByteCount = 0
  private var received: [UInt8] = []
  private var buffer = [UInt8](repeating: 0, count: 256 << 10)

  /// Events per second.
  static func rates(_ options: Options, _ program: String, brokerCount: Int, _ entry: Entry) throws -> [Double] {
    let fleet = try Fleet(options, program, brokerCount: brokerCount, streams: "")
    var log = try BareLog(fleet, replicaCount: brokerCount)
    defer { for raw in [log.raw] + log.readers { close(raw) } }
    var last = 0
    return try (0..<options.runs).map { _ in
      try log.rate(of: entry, after: &last, over: options.seconds) * Double(entry.byteCount / eventByteCount)
    }
  }

  private init(_ fleet: Fleet, replicaCount: Int) throws {
    raw = try fleet.connectToBroker()
    readers = try (0..<hostCount).map { _ in
      let reader = try fleet.connectToBroker()
      try Handshake.say(Array("CONNECT {\"verbose\":false,\"headers\":true}\r\nSUB tail 1\r\n".utf8), to: reader)
      return reader
    }
    readByteCounts = readers.map { _ in 0 }
    try Handshake.say(Array("CONNECT {\"verbose\":false,\"headers\":true}\r\nSUB answers 1\r\n".utf8), to: raw)
    let configuration = """
      {"name":"bare","subjects":["bare"],"num_replicas":\(replicaCount),"storage":"file","discard":"old",
      "max_bytes":\(1 << 30),"duplicate_window":100000000,"republish":{"src":"bare","dest":"tail"}}
      """
    let request = "PUB $JS.API.STREAM.CREATE.bare answers \(configuration.utf8.count)\r\n\(configuration)\r\n"
    for _ in 0..<60 {  // until the brokers have elected their leader, they refuse it or do not answer
      try Handshake.say(Array(request.utf8), to: raw)
      if try answer(within: 1)?.contains("\"config\"") == true { return }
      usleep(500_000)
    }
    throw BenchError("JetStream makes no stream within a minute")
  }

  /// Entries per second.
  private mutating func rate(of entry: Entry, after last: inout Int, over seconds: Double) throws -> Double {
    let start = monotonicSeconds()
    let body = [UInt8](repeating: UInt8(ascii: "x"), count: entry.byteCount) + Array("\r\n".utf8)
    var (sent, stored) = (0, 0)
    while true {
      let isOver = monotonicSeconds() - start >= seconds
      if !isOver, sent - stored < entry.windowCount {
        let header = "NATS/1.0\r\nNats-Expected-Last-Sequence: \(last + sent)\r\n\r\n"
        let count = header.utf8.count
        try Handshake.say(
          Array("HPUB bare answers \(count) \(count + entry.byteCount)\r\n\(header)".utf8) + body, to: raw)
        sent += 1
        continue
      }
      guard stored < sent else { break }
      guard let answer = try answer(within: 60) else { throw BenchError("JetStream has not answered for a minute") }
      guard !answer.contains("\"error\"") else { throw BenchError("JetStream refuses an entry: \(answer)") }
      if answer.contains("\"seq\"") { stored += 1 }  // or it is about the stream, late
    }
    last += sent
    while readByteCounts.contains(where: { $0 < wholeByteCount + sent * entry.byteCount }) {
      guard try hear(within: 60) else { throw BenchError("the readers of JetStream's log lack entries") }
    }
    wholeByteCount += sent * entry.byteCount
    return Double(sent) / (monotonicSeconds() - start)
  }

  /// - Returns: the next message; nil if there is none within so many seconds.
  private mutating func answer(within seconds: Double) throws -> String? {
    let end = monotonicSeconds() + seconds
    while true {
      if let end = received.firstIndex(of: UInt8(ascii: "\n")) {
        let words = String(decoding: received[..<end], as: UTF8.self).split(whereSeparator: \.isWhitespace)
        let isMessage = words.first == "MSG" || words.first == "HMSG"
        let start = end + 1
        let count = isMessage ? words.last.flatMap { Int($0) }.map { $0 + 2 } ?? 0 : 0
        if received.count >= start + count {
          defer { received.removeFirst(start + count) }
          if isMessage { return String(decoding: received[start..<start + count], as: UTF8.self) }
          continue
        }
      }
      guard try hear(within: end - monotonicSeconds()) else { return nil }
    }
  }

  /// Reads what has come, on any of the connections.
  /// - Returns: false if nothing comes within so many seconds.
  private mutating func hear(within seconds: Double) throws -> Bool {
    var ready = ([raw] + readers).map { pollfd(fd: $0, events: Int16(POLLIN), revents: 0) }
    guard unsafe poll(&ready, nfds_t(ready.count), CInt(max(0, seconds) * 1000)) > 0 else { return false }
    for index in ready.indices where ready[index].revents != 0 {
      let count = unsafe recv(ready[index].fd, &buffer, buffer.count, 0)
      guard count > 0 else { throw BenchError("a broker hung up") }
      if index == 0 { received += buffer.prefix(count) } else { readByteCounts[index - 1] += count }
    }
    return true
  }
}

/// Events per second of a program that writes lines without end, at a host that does not lead.
private func programRates(_ options: Options, _ program: String, brokerCount: Int) throws -> [Double] {
  let line = String(repeating: "x", count: eventByteCount)
  let fleet = try Fleet(
    options, program, brokerCount: brokerCount,
    streams: """
      [streams.b]
      exec = { command = ["yes", "\(line)"] }
      type = "text/plain"
      share = "fleet"
      buffer = { events = 262144, bytes = "64MiB" }
      """)
  let host = fleet.hosts[(try fleet.leader() + 1) % hostCount]
  let pool = try SubscriberPool(
    "fleet", [host.subscribe()], shape: host.shape, firstNumber: nil, verifiesAll: false)
  func rate(over seconds: Double) throws -> Double {
    let (start, before) = (monotonicSeconds(), pool.total)
    while monotonicSeconds() - start < seconds { try pool.read(timeout: 100) }
    return Double(pool.total - before) / (monotonicSeconds() - start)
  }
  _ = try rate(over: 1)
  return try (0..<options.runs).map { _ in try rate(over: options.seconds) }
}

private func measureFleetLatency(_ options: Options, _ program: String) throws {
  Report.heading("fleet, latency in ms, 200 events/s, 3 brokers")
  let contenders = [
    try Contender(
      StreamdBroker(options.program, dataByteCount: eventByteCount), subscribers: 1, verifies: true),
    try Contender(FleetBroker(options, program, brokerCount: 3), subscribers: 1, verifies: true),
  ]
  let figures = try compareLatencies(contenders, options, perSecond: 200)
  for (percentile, choose) in [("p50", \(p50: Figures, p99: Figures).p50), ("p99", \.p99)] {
    let (local, shared) = (figures[0][keyPath: choose], figures[1][keyPath: choose])
    Report.line("local stream \(percentile)", local, "ms")
    Report.line("fleet \(percentile)", shared, "ms", ["\(Report.text(shared.median - local.median)) ms more"])
  }
}

private func measureFailover(_ options: Options, _ program: String) throws {
  Report.heading("fleet, time without events after kill -9 of the leader", goal: "under 8 s")
  let fleet = try Fleet(
    options, program, brokerCount: 3, streams: "[streams.b]\ntimer = { every = \"50ms\" }\nshare = \"fleet\"")
  let times = try (0..<max(2, options.runs)).map { _ in
    let leader = try fleet.leader()
    let subscriber = try fleet.hosts[(leader + 1) % hostCount].subscribe()
    defer { close(subscriber) }
    _ = try silence(of: subscriber, longerThan: 0)
    kill(fleet.hosts[leader].process.id, SIGKILL)
    let seconds = try silence(of: subscriber, longerThan: 1)
    try fleet.restart(leader)
    return seconds
  }
  Report.line("3 brokers", Figures(times), "s")
}

/// Reads until nothing has come for so many seconds, and something has come again.
/// - Returns: for how long nothing had come.
private func silence(of subscriber: CInt, longerThan least: Double) throws -> Double {
  var buffer = [UInt8](repeating: 0, count: 64 << 10)
  var last = monotonicSeconds()
  while true {
    var descriptor = pollfd(fd: subscriber, events: Int16(POLLIN), revents: 0)
    guard unsafe poll(&descriptor, 1, 60_000) > 0 else { throw BenchError("no event for a minute") }
    guard unsafe recv(subscriber, &buffer, buffer.count, 0) > 0 else { throw BenchError("a host hung up") }
    let now = monotonicSeconds()
    if now - last > least { return now - last }
    last = now
  }
}

/// With one broker: messages between brokers, of which JetStream has many without any stream's use, do not count.
private func measureIdleFleet(_ options: Options, _ program: String) throws {
  Report.heading("fleet, \(idleShardCount) shards and \(hostCount) hosts without events", goal: "under 20 messages/s")
  let streams = (0..<idleStreamCount).map { "[streams.s\($0)]\ntimer = { every = \"1d\" }\nshare = \"fleet\"\n" }
  let fleet = try Fleet(
    options, program, brokerCount: 1, shardCount: idleShardCount, streams: streams.joined())
  _ = try fleet.leader(of: idleStreamCount)
  sleep(5)  // what follows the takeovers
  let seconds = max(4, Int(options.seconds * 5))
  let rates = try (0..<options.runs).map { _ in
    let (before, start) = (try fleet.messageCount(), monotonicSeconds())
    sleep(UInt32(seconds))
    return Double(try fleet.messageCount() - before) / (monotonicSeconds() - start)
  }
  Report.line("to the broker", Figures(rates), "messages/s")
}

/// Brokers and the hosts that share streams over them.
final class Fleet {
  private let program: String
  private let configuration: String
  private let brokers: [ServerProcess]
  private let monitorPort: UInt16
  private let port: UInt16
  private(set) var hosts: [StreamdBroker]

  /// The one of the tests of a fleet (Tests/environment.py) is of the version that the manual requires.
  static var brokerProgram: String? {
    func variable(_ name: String) -> String? { unsafe getenv(name).map { unsafe String(cString: $0) } }
    let cache = variable("XDG_CACHE_HOME") ?? (variable("HOME") ?? "") + "/.cache"
    var found = unsafe glob_t()
    defer { unsafe globfree(&found) }
    guard unsafe glob(cache + "/streamd-tests/cluster-*/bin/nats-server", 0, nil, &found) == 0,
      let own = unsafe found.gl_pathv[0]
    else { return findProgram("nats-server") }
    return unsafe String(cString: own)
  }

  /// Such as `v2.15.1`.
  static func version(of program: String) throws -> String {
    guard let output = unsafe popen("'\(program)' --version", "r") else { throw SystemError("popen", program) }
    defer { unsafe pclose(output) }
    var line = [CChar](repeating: 0, count: 256)
    unsafe fgets(&line, CInt(line.count), output)
    let text = String(decoding: line.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    return text.split(whereSeparator: \.isWhitespace).last.map(String.init) ?? ""
  }

  /// - Parameter streams: their configuration.
  init(
    _ options: Options, _ broker: String, brokerCount: Int, shardCount: Int = 1, streams: String
  ) throws {
    program = options.program
    let ports = try (0..<brokerCount).map { _ in try Handshake.reservePort() }
    let routes = try (0..<brokerCount).map { _ in try Handshake.reservePort() }
    let monitorPort = try Handshake.reservePort()
    (self.monitorPort, port) = (monitorPort, ports[0])
    let sync = try Self.version(of: broker).hasPrefix("v2.9.") ? "" : "sync_interval: always"
    brokers = try (0..<brokerCount).map { number in
      let cluster = """
        cluster {
          name: bench
          listen: "127.0.0.1:\(routes[number])"
          routes: [\(routes.map { "\"nats-route://127.0.0.1:\($0)\"" }.joined(separator: ", "))]
        }
        """
      return try ServerProcess(broker) { folder in
        let text = """
          server_name: "broker-\(number)"
          listen: "127.0.0.1:\(ports[number])"
          log_file: "\(folder)/log"
          \(number == 0 ? "http: \"127.0.0.1:\(monitorPort)\"" : "")
          jetstream { store_dir: "\(folder)/store", max_file_store: 4GB, \(sync) }
          \(brokerCount > 1 ? cluster : "")
          """
        if let file = unsafe fopen(folder + "/nats.conf", "w") {
          unsafe fputs(text, file)
          unsafe fclose(file)
        }
        return ["-c", folder + "/nats.conf"]
      }
    }
    for (broker, port) in zip(brokers, ports) {
      try broker.waitUntilItServes { try Handshake.connect(toPort: port) }
    }
    configuration = """
      [cluster]
      name = "bench"
      nats = [\(ports.map { "\"nats://127.0.0.1:\($0)\"" }.joined(separator: ", "))]
      replicas = \(brokerCount)
      shards = \(shardCount)
      shard_bytes = "\(shardCount > 1 ? 64 : 1024)MiB"

      \(streams)
      """
    hosts = []
    hosts = try (0..<hostCount).map { _ in try startHost() }
  }

  func connectToBroker() throws -> CInt { try Handshake.connect(toPort: port) }

  private func startHost() throws -> StreamdBroker {
    try StreamdBroker(program, stream: configuration, dataByteCount: eventByteCount)
  }

  /// Starts a host that was killed.
  func restart(_ host: Int) throws { hosts[host] = try startHost() }

  /// Waits until so many streams have a leader.
  /// - Returns: the leader of the last one.
  func leader(of count: Int = 1) throws -> Int {
    let end = monotonicSeconds() + 60
    while monotonicSeconds() < end {
      let counts = try hosts.map { host in
        String(decoding: try host.ask("$streams"), as: UTF8.self).split(separator: "\"role\":\"leader\"").count - 1
      }
      if counts.reduce(0, +) >= count, let leader = counts.lastIndex(where: { $0 > 0 }) { return leader }
      usleep(200_000)
    }
    throw BenchError("no host leads the fleet's streams after a minute")
  }

  /// What the broker has received.
  func messageCount() throws -> Int {
    let raw = try Handshake.connect(toPort: monitorPort)
    defer { close(raw) }
    try Handshake.say(Array("GET /varz HTTP/1.0\r\n\r\n".utf8), to: raw)
    var bytes: [UInt8] = []
    var buffer = [UInt8](repeating: 0, count: 64 << 10)
    while case let count = unsafe recv(raw, &buffer, buffer.count, 0), count > 0 { bytes += buffer.prefix(count) }
    let text = String(decoding: bytes, as: UTF8.self)
    let number = text.split(separator: "\"in_msgs\":").last?.drop { $0 == " " }.prefix { $0.isNumber }
    guard let number, let count = Int(number) else { throw BenchError("/varz has no in_msgs") }
    return count
  }
}

/// A stream of a fleet to which clients of its first host publish, with subscribers of the second one.
private final class FleetBroker: Broker {
  let name: String
  private let fleet: Fleet
  var shape: EventShape { fleet.hosts[0].shape }
  var process: ServerProcess { fleet.hosts[0].process }
  var eventsOnConnecting: Int { fleet.hosts[0].eventsOnConnecting }
  var initialCredit: Int { fleet.hosts[0].initialCredit }

  init(_ options: Options, _ program: String, brokerCount: Int) throws {
    name = "fleet"
    fleet = try Fleet(
      options, program, brokerCount: brokerCount, streams: StreamdBroker.stream + "\nshare = \"fleet\"")
    _ = try fleet.leader()
  }

  func subscribe() throws -> CInt { try fleet.hosts[1].subscribe() }
  func connectPublisher() throws -> CInt { try fleet.hosts[0].connectPublisher() }
  func credit(from bytes: UnsafeRawBufferPointer) throws -> Int { try unsafe fleet.hosts[0].credit(from: bytes) }
}
