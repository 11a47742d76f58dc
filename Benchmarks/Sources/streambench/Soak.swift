import CLinux
import Glibc
import RSocket
import StreamRuntime

// Simulates hours of use in minutes: checks that every client receives exact events, and that the daemon returns to its
// initial state.

private let clientCount = 5000
/// Arbitrary; the same seed gives every client the same choices.
private let seed: UInt64 = 0x5EED
private let eventsPerSecond = 25.0
/// Maximum growth of resident memory since the first round: the allocator's arenas keep fragments, some hundred KiB
/// more of them after 60,000 connections. A leak of 100 bytes from each of these would be 6 MB.
private let memoryTolerance = 1 << 20

func measureSoak(_ options: Options) throws {
  let seconds = options.isQuick ? 10.0 : 300.0
  Report.heading(
    "soak, \(counted(clientCount, "client")) for \(Int(seconds)) s, seed \(seed)",
    goal: "no violation, nothing left over")
  let broker = try StreamdBroker(options.program, stream: Soak.streams)
  // The first client: the daemon then creates what serves timers, and keeps it.
  _ = try broker.ask("$stats", events: 2)
  let descriptors = try descriptorCount(broker)
  let (memory, counts) = try soaked(broker, seconds)
  let (memoryAfter, descriptorsAfter) = (try broker.process.residentBytes(), try descriptorCount(broker))
  Report.line("connections", counts.connections, "by \(counted(clientCount, "client"))")
  Report.line("events delivered", counts.deliveries, "each looked at")
  Report.line("values confirmed", counts.confirmed, "published by the clients")
  Report.line("lags", counts.lags, "of clients that stalled or had no credit")
  Report.line("violations", 0)
  Report.line("slowest turn", counts.slowestTurn, "ms, of the clients' own loop")
  Report.line("memory", memoryAfter, "bytes; \(counted(memory)) after round one")
  Report.line("descriptors", descriptorsAfter, "open; \(descriptors) before")
  guard descriptorsAfter == descriptors else {
    throw BenchError("\(descriptorsAfter - descriptors) descriptors leaked")
  }
  guard memoryAfter < memory + memoryTolerance else { throw BenchError("\(memoryAfter - memory) bytes leaked") }
}

/// - Returns: the daemon's memory after the first of two rounds, which is only a warm-up, and the counts.
private func soaked(_ broker: StreamdBroker, _ seconds: Double) throws -> (memory: Int, Soak.Counts) {
  let soak = try Soak(broker)
  try soak.run(for: max(5, seconds / 10))
  let memory = try broker.process.residentBytes()
  try soak.run(for: seconds)
  return (memory, soak.counts)
}

/// The daemon's descriptors, once it has noticed the closed connections.
private func descriptorCount(_ broker: StreamdBroker) throws -> Int {
  usleep(500_000)
  return try broker.process.descriptorCount()
}

/// The clients on one epoll set with the feeder, and their shared state.
@safe final class Soak {
  /// One stream that is never full during the test, one that is always full and from which stalled subscribers lose
  /// events, and one that waits for the slowest.
  static let streams = """
    [streams.b]
    publish = true
    replay = 16
    buffer = { events = 65536, bytes = "8MiB" }
    [streams.small]
    publish = true
    replay = 16
    buffer = { events = 256, bytes = "256KiB" }
    [streams.block]
    publish = true
    replay = 16
    overflow = "block"
    buffer = { events = 1024, bytes = "1MiB" }
    """
  let ledgers = [
    SoakLedger("b", depth: 4000, drops: false), SoakLedger("small", depth: 200, drops: true),
    SoakLedger("block", depth: 200, drops: false),
  ]

  var path: String { broker.path }
  private let broker: StreamdBroker
  private let feeder: Feeder
  private let epoll: CInt
  private let events = UnsafeMutableBufferPointer<epoll_event>.allocate(capacity: clientCount + 1)
  /// A client's input; empty between two clients.
  let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 256 << 10, alignment: 64)
  private var clients: [SoakClient] = []
  /// The time of each client's next action.
  private var times: [UInt64] = []

  struct Counts {
    var connections = 0
    var deliveries = 0
    /// Values of channels.
    var confirmed = 0
    /// Gaps, and subscriptions that had requested to fail instead.
    var lags = 0
    /// The longest time from one turn to the next, in milliseconds.
    var slowestTurn = 0
  }

  var counts = Counts()
  /// The start of the turn, on the clock of the events' times, in microseconds.
  private(set) var now = wallClock()
  /// The end of the last turn that was long enough to cause losses that clients did not cause.
  private(set) var slowTurnAt: UInt64 = 0

  private static let slowTurn = 250
  private static let feederToken = UInt64.max

  init(_ broker: StreamdBroker) throws {
    self.broker = broker
    feeder = try Feeder(broker)
    epoll = epoll_create1(CInt(EPOLL_CLOEXEC))
    guard epoll >= 0 else { throw SystemError("epoll_create1") }
    try watch(feeder.socket, EPOLL_CTL_ADD, EPOLLIN.rawValue | EPOLLOUT.rawValue | EPOLLET.rawValue, Self.feederToken)
    clients = (0..<clientCount).map { index in
      SoakClient(index, index == 0 ? .witness : index % 50 == 0 ? .keeper : .wanderer, soak: self, seed: seed)
    }
    try fill()
  }

  deinit {
    Glibc.close(epoll)
    unsafe events.deallocate()
    unsafe buffer.deallocate()
  }

  func watch(_ client: SoakClient, _ operation: CInt, _ wanted: UInt32) throws {
    try watch(client.socket, operation, wanted, UInt64(client.index))
  }

  private func watch(_ socket: CInt, _ operation: CInt, _ wanted: UInt32, _ token: UInt64) throws {
    var event = unsafe epoll_event()
    unsafe event.events = wanted
    unsafe event.data.u64 = token
    guard unsafe epoll_ctl(epoll, operation, socket, &event) == 0 else { throw SystemError("epoll_ctl") }
  }

  /// Fills the buffers, so that their memory is allocated before the first comparison.
  private func fill() throws {
    while feeder.sent < 150_000 {
      try feeder.hear()
      try feeder.feed(upTo: 150_000)
      usleep(100)
    }
    for ledger in ledgers.dropFirst() { try fill(ledger.stream) }
  }

  private func fill(_ stream: String) throws {
    let socket = try Handshake.connect(to: path)
    defer { Glibc.close(socket) }
    try Handshake.say(StreamdBroker.greeting(), to: socket)
    try StreamdBroker.awaitEcho(socket)
    for index in 0..<5000 {
      let value = SoakValue(publication: SoakValue.filling, index: index).bytes
      let request = StreamdBroker.request(
        .fireAndForget, StreamID(UInt32(2 * index + 1)), stream, credit: 0, data: value)
      try Handshake.say(
        StreamdBroker.encoded(request) + StreamdBroker.encoded(.keepalive(respond: true, position: 0, data: [])),
        to: socket)
      try StreamdBroker.awaitEcho(socket)
    }
  }

  /// Lets all clients connect, act and leave; none is left at the end.
  func run(for seconds: Double) throws {
    let start = monotonicNanoseconds()
    let first = feeder.sent
    now = Self.wallClock()
    times = clients.indices.map { start + UInt64($0) * 400_000 }
    var elapsed = 0.0
    while elapsed < seconds {
      let now = monotonicNanoseconds()
      elapsed = Double(now - start) / 1e9
      try feeder.feed(upTo: first + Int(elapsed * eventsPerSecond))
      for index in clients.indices where times[index] <= now { times[index] = now + (try clients[index].act()) }
      try read(timeout: 5)
    }
    try settle()
    try leave()
    for ledger in ledgers { try ledger.close(wasSeenWhole: !ledger.drops) }
  }

  /// Reads the events in flight.
  private func settle() throws {
    for client in clients { client.readOn() }
    var quietReads = 0
    while quietReads < 10 { quietReads = try read(timeout: 100) ? 0 : quietReads + 1 }
    for client in clients { try client.settle() }
  }

  private func leave() throws {
    for client in clients { if client.index % 2 == 0 { client.leavePolitely() } else { client.leave() } }
    let deadline = monotonicSeconds() + 10
    while let client = clients.first(where: { !$0.isAway }) {
      guard monotonicSeconds() < deadline else { throw BenchError("client \(client.index) was not disconnected") }
      try read(timeout: 10)
    }
    try awaitNobody()
  }

  /// - Returns: whether there was any input.
  @discardableResult private func read(timeout: CInt) throws -> Bool {
    guard let start = unsafe events.baseAddress else { return false }
    let ready = unsafe epoll_wait(epoll, start, CInt(events.count), timeout)
    let now = Self.wallClock()
    let turn = Int(now - self.now) / 1000
    counts.slowestTurn = max(counts.slowestTurn, turn)
    if turn > Self.slowTurn { slowTurnAt = now }
    self.now = now
    for index in 0..<max(0, Int(ready)) {
      let event = unsafe events[index]
      let token = unsafe event.data.u64
      if token == Self.feederToken { try feeder.hear() } else { try clients[Int(token)].isReady() }
    }
    return ready > 0
  }

  private static func wallClock() -> UInt64 {
    var time = timespec()
    unsafe clock_gettime(CLOCK_REALTIME, &time)
    return UInt64(time.tv_sec) * 1_000_000 + UInt64(time.tv_nsec) / 1000
  }

  /// Waits until the daemon reports no subscribers, and no connections except the feeder's and the querying one.
  private func awaitNobody() throws {
    let deadline = monotonicSeconds() + 10
    while true {
      let text = String(decoding: try broker.ask("$stats"), as: UTF8.self)
      let (connections, subscribers) = (Self.number("connections", in: text), Self.number("subscribers", in: text))
      if connections == 2, subscribers == 0 { return }
      guard monotonicSeconds() < deadline else {
        throw BenchError("\(connections ?? -1) connections and \(subscribers ?? -1) subscribers left: \(text)")
      }
      usleep(100_000)
    }
  }

  /// The last member of that name; streams, which have some of the same names, precede it.
  private static func number(_ name: String, in text: String) -> Int? {
    guard let value = text.split(separator: "\"\(name)\":", omittingEmptySubsequences: false).last else { return nil }
    return Int(value.prefix { $0.isNumber })
  }
}
