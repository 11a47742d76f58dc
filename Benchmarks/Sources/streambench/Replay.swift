import Glibc

/// Measures a new subscription that reads a full log.
func measureReplay(_ options: Options) throws {
  Report.heading("replay of a full 64 MiB log to a new subscriber, 64 bytes per event", goal: "60 % of the bare limit")
  let (broker, sent) = try brokerWithFullLog(options)
  let held = try replayed(broker, firstNumber: nil, count: nil, verifies: false).count
  let bare = try BareServer()
  var rates: [Double] = []
  var limits: [Double] = []
  for _ in 0..<options.runs {
    limits.append(try bareReplay(bare, count: held))
    let (count, seconds) = try replayed(
      broker, firstNumber: UInt64(sent - held), count: held, verifies: options.verifies)
    rates.append(Double(count) / seconds)
  }
  Report.line("bare limit", Figures(limits), "events/s")
  Report.line(
    "streamd", Figures(rates), "events/s",
    [Report.percent(Figures(rates).median, of: Figures(limits).median, "bare"), "\(held) events held"])
}

/// A daemon whose stream holds as many events as fit into 64 MiB, and is mapped.
func brokerWithFullLog(_ options: Options) throws -> (broker: StreamdBroker, sent: Int) {
  let broker = try StreamdBroker(
    options.program,
    stream: """
      [streams.b]
      publish = true
      buffer = { events = 2000000, bytes = "64MiB" }
      map = true
      """)
  let filling = try Contender(broker, subscribers: 1, verifies: options.verifies)
  while let feeder = filling.feeder, feeder.sent < 1_000_000 { try filling.run(for: 0.1) }
  try filling.drain()
  return (broker, filling.feeder?.sent ?? 0)
}

/// - Parameter count: the number of stored events; nil: unknown, and determined by the silence that follows them.
func replayed(_ broker: StreamdBroker, firstNumber: UInt64?, count: Int?, verifies: Bool) throws -> (
  count: Int, seconds: Double
) {
  let start = monotonicSeconds()
  let pool = try SubscriberPool(
    broker.name, [broker.subscribe(since: "-1d")], shape: broker.shape, firstNumber: firstNumber, verifiesAll: verifies)
  while pool.total < count ?? .max {
    guard try pool.read(timeout: count == nil ? 500 : 10_000) else { break }
  }
  let seconds = monotonicSeconds() - start
  guard pool.total == count ?? pool.total else {
    throw BenchError("\(pool.total) events replayed instead of \(count ?? 0)")
  }
  return (pool.total, seconds)
}

/// Events per second of one subscription to the bare server.
func bareReplay(_ server: BareServer, count: Int) throws -> Double {
  let start = monotonicSeconds()
  let pool = try SubscriberPool(
    "bare limit", [Handshake.connect(to: server.path)], shape: BareServer.shape, firstNumber: nil, verifiesAll: false)
  pool.say(UInt8(ascii: "g"))
  while pool.total < count { try pool.read(timeout: 10_000) }
  return Double(count) / (monotonicSeconds() - start)
}
