import Glibc

// Benchmarks of the built daemon, over real sockets, with a fixed amount of work. Started by `deploy/bench`.

signal(SIGPIPE, SIG_IGN)
if CommandLine.arguments.count == 3, CommandLine.arguments[1] == BareServer.argument {
  try BareServer.run(CommandLine.arguments[2])
}
guard CommandLine.arguments.count == 2, !CommandLine.arguments[1].hasPrefix("-") else {
  complain("usage: streambench STREAMD; measures the daemon of that binary; deploy/bench builds and runs both")
  exit(CommandLine.arguments.dropFirst() == ["--help"] ? EX_OK : EX_USAGE)
}
raiseDescriptorLimit()
do {
  try benchmark(CommandLine.arguments[1])
} catch {
  complain("\(error)")
  exit(EX_SOFTWARE)
}

func complain(_ line: String) {
  let text = "streambench: \(line)\n"
  write(STDERR_FILENO, text, text.utf8.count)
}

func benchmark(_ program: String) throws {
  let startUps = try (0..<11).map { _ in try DaemonProcess(program).secondsToReady * 1000 }
  report("start-up to READY", startUps, "ms", goal: "under 30")

  let daemon = try DaemonProcess(program)
  let bare = try BareServer()
  var ratios: [Double] = []
  var rates: [Double] = []
  for _ in 0..<5 {
    let limit = try connectionsPerSecond(bare.path, count: 5000)
    rates.append(try connectionsPerSecond(daemon.path, count: 5000))
    ratios.append(rates[rates.count - 1] / limit)
  }
  report("connections per second", rates, "/s", goal: "")
  report("  of a bare accept and answer", ratios.map { $0 * 100 }, "%", goal: "")

  let idle = try (0..<3).map { _ in try bytesPerIdleSubscriber(program, count: 9000) }
  report("memory per idle subscriber", idle, "bytes", goal: "under 1024 at 9,000")
}

/// Connects, says SETUP and KEEPALIVE, reads the echo, closes; a hundred at a time so that nobody waits for the scheduler.
func connectionsPerSecond(_ path: String, count: Int) throws -> Double {
  let start = monotonicSeconds()
  for _ in 0..<count / 100 {
    let clients = try (0..<100).map { _ in try BenchClient(path) }
    for client in clients { client.greet() }
    for client in clients { try client.awaitEcho() }
  }
  return Double(count) / (monotonicSeconds() - start)
}

/// What a subscriber without events to get adds to the daemon's memory: connected, set up, subscribed, with credit.
func bytesPerIdleSubscriber(_ program: String, count: Int) throws -> Double {
  let daemon = try DaemonProcess(program)
  let before = try daemon.residentBytes()
  var clients: [BenchClient] = []
  for _ in 0..<count {
    let client = try BenchClient(daemon.path)
    client.greet(subscribingTo: "quiet")
    clients.append(client)
  }
  for client in clients { try client.awaitEcho() }
  return Double(try daemon.residentBytes() - before) / Double(count)
}

func report(_ what: String, _ values: [Double], _ unit: String, goal: String) {
  let sorted = values.sorted()
  func text(_ value: Double) -> String {
    let rounded = value < 100 ? (value * 10).rounded() / 10 : value.rounded()
    return value < 100 ? "\(rounded)" : "\(Int(rounded))"
  }
  let columns = [text(sorted[0]), text(sorted[sorted.count / 2]), text(sorted[sorted.count - 1])]
  print(
    what.padded(to: 32), columns.map { $0.padded(to: 9) }.joined(), unit.padded(to: 7),
    goal.isEmpty ? "" : "goal: \(goal)")
}

extension String {
  func padded(to width: Int) -> String { self + String(repeating: " ", count: max(0, width - count)) }
}

func monotonicSeconds() -> Double {
  var time = timespec()
  clock_gettime(CLOCK_MONOTONIC, &time)
  return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
}

func raiseDescriptorLimit() {
  var limit = rlimit()
  let resource = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
  getrlimit(resource, &limit)
  limit.rlim_cur = limit.rlim_max
  setrlimit(resource, &limit)
}
