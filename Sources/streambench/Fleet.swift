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
/// receives the confirmation of each batch before the next one is sent.
private func measureFleetThroughput(_ options: Options, _ program: String) throws {
  Report.heading("fleet, \(eventByteCount)-byte events from one host to another", goal: "60 % of plain NATS")
  let makers: [(String, () throws -> any Broker)] = [
    ("plain NATS", { try NatsBroker(program, dataByteCount: eventByteCount) }),
    ("clients, 1 broker", { try FleetBroker(options, program, brokerCount: 1) }),
    ("clients, 3 brokers", { try FleetBroker(options, program, brokerCount: 3) }),
  ]
  var plain: Figures?
  for (name, make) in makers {  // one after the other: an idle fleet still has heartbeats
    let contender = try Contender(try make(), subscribers: 1, verifies: true)
    let rates = try (0..<options.runs).map { _ in try contender.deliveriesPerSecond(over: options.seconds) }
    let ratios = plain.map { [Report.percent(Figures(rates).median, of: $0.median, "plain NATS")] } ?? []
    plain = plain ?? Figures(rates)
    Report.line(name, Figures(rates), "events/s", ratios)
  }
  for count in [1, 3] {
    let rates = try programRates(options, program, brokerCount: count)
    let ratios = plain.map { [Report.percent(Figures(rates).median, of: $0.median, "plain NATS")] } ?? []
    Report.line("program, \(counted(count, "broker"))", Figures(rates), "events/s", ratios)
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
  private(set) var hosts: [StreamdBroker]

  /// The one of the tests of a fleet is of the version that the manual requires.
  static var brokerProgram: String? {
    let own = ".build/cluster/bin/nats-server"
    return unsafe access(own, X_OK) == 0 ? own : findProgram("nats-server")
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
    let ports = try (0..<brokerCount).map { _ in try Handshake.freePort() }
    let routes = try (0..<brokerCount).map { _ in try Handshake.freePort() }
    let monitorPort = try Handshake.freePort()
    self.monitorPort = monitorPort
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
