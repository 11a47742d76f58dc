import Glibc

// Measures costs without traffic: starting, connecting, and idle subscriptions.

func measureStart(_ options: Options) throws {
  Report.heading("start-up to READY", goal: "under 30 ms")
  let times = try (0..<2 * options.runs + 1).map { _ in
    try StreamdBroker(options.program, stream: StreamdBroker.quiet).secondsToReady * 1000
  }
  Report.line("streamd", Figures(times), "ms")
}

func measureConnections(_ options: Options) throws {
  Report.heading("connections, set up, answered and closed")
  let broker = try StreamdBroker(options.program, stream: StreamdBroker.quiet)
  let bare = try BareServer()
  var limits: [Double] = []
  var rates: [Double] = []
  for _ in 0..<options.runs {
    limits.append(try connectionsPerSecond(bare.path, count: 5000))
    rates.append(try connectionsPerSecond(broker.path, count: 5000))
  }
  Report.line("bare accept and answer", Figures(limits), "/s")
  Report.line(
    "streamd", Figures(rates), "/s", [Report.percent(Figures(rates).median, of: Figures(limits).median, "bare")])
}

/// Connects, sends SETUP and KEEPALIVE, reads the echo, closes; a hundred at a time so that none waits for the
/// scheduler.
private func connectionsPerSecond(_ path: String, count: Int) throws -> Double {
  let start = monotonicSeconds()
  let greeting = StreamdBroker.greeting()
  for _ in 0..<count / 100 {
    let sockets = try (0..<100).map { _ in try Handshake.connect(to: path) }
    for socket in sockets { try Handshake.say(greeting, to: socket) }
    for socket in sockets {
      try StreamdBroker.awaitEcho(socket)
      close(socket)
    }
  }
  return Double(count) / (monotonicSeconds() - start)
}

private let subscriberCount = 9000

func measureMemory(_ options: Options) throws {
  Report.heading("memory per idle subscriber, at \(counted(subscriberCount))", goal: "at most 512 bytes")
  for (name, figures) in try compareMemory(options) { Report.line(name, figures, "bytes") }
}

/// Bytes per idle subscriber of streamd, and then of the peers.
func compareMemory(_ options: Options) throws -> [(name: String, figures: Figures)] {
  var figures: [(name: String, values: [Double])] = []
  for run in 0..<options.runs {
    for (index, broker) in try brokers(options, stream: StreamdBroker.quiet).enumerated() {
      if run == 0 { figures.append((broker.name, [])) }
      figures[index].values.append(try bytesPerSubscriber(broker))
    }
  }
  return figures.map { ($0.name, Figures($0.values)) }
}

/// Bytes of a connected subscription with credit and without events.
func bytesPerSubscriber(_ broker: any Broker) throws -> Double {
  close(try broker.subscribe())  // excludes the one-time cost of the first
  let before = try broker.process.residentBytes()
  let sockets = try (0..<subscriberCount).map { _ in try broker.subscribe() }
  defer { sockets.forEach { close($0) } }
  return Double(try broker.process.residentBytes() - before) / Double(subscriberCount)
}

func measureIdle(_ options: Options) throws {
  let seconds = max(2, Int(options.seconds * 5))
  Report.heading(
    "wake-ups in \(seconds) s with \(counted(subscriberCount)) subscribers on a quiet stream", goal: "the watchdog's")
  let broker = try StreamdBroker(options.program, stream: StreamdBroker.quiet)
  let sockets = try (0..<subscriberCount).map { _ in try broker.subscribe() }
  defer { sockets.forEach { close($0) } }
  sleep(1)
  var switches: [Double] = []
  for _ in 0..<options.runs {
    let before = try broker.process.voluntarySwitches()
    sleep(UInt32(seconds))
    let after = try broker.process.voluntarySwitches()
    switches.append(Double(after.reduce(0) { $0 + $1.value - (before[$1.key] ?? 0) }))
  }
  Report.line("streamd", Figures(switches), "wake-ups", ["of all its threads"])
}
