import Glibc
import RSocket
import StreamRuntime

// A stream with keys, beside the same stream without.

private let keyCount = 100_000

func measureKeys(_ options: Options) throws {
  try measureKeyedIngest(options)
  try measureState(options)
  Report.heading("memory per key beside its event, \(counted(keyCount, "key")) of 8 bytes", goal: "at most 100 bytes")
  Report.line("streamd", Figures(try (0..<options.runs).map { _ in try bytesPerKey(options) }), "bytes")
}

/// Published events per second.
private func measureKeyedIngest(_ options: Options) throws {
  Report.heading("keyed ingest, \(counted(keyCount, "key")), 64 bytes", goal: "70 % of plain ingest")
  let names = ["plain", "keyed"]
  let loads = try [false, true].map { try KeyedLoad(options, isKeyed: $0) }
  let redis = try RedisSets()
  var rates: [[Double]] = [[], []]
  var sets: [Double] = []
  for load in loads { try load.publish(keyCount) }
  for _ in 0..<options.runs {
    for (index, load) in loads.enumerated() { rates[index].append(try load.eventsPerSecond(over: options.seconds)) }
    if let redis { sets.append(try redis.perSecond(over: options.seconds)) }
  }
  let plain = Figures(rates[0]).median
  for (name, values) in zip(names, rates) {
    let figures = Figures(values)
    Report.line(
      name, figures, "events/s", name == "plain" ? [] : [Report.percent(figures.median, of: plain, "plain")])
  }
  guard !sets.isEmpty else { return }
  let (keyed, stored) = (Figures(rates[1]), Figures(sets))
  Report.line("redis, SET", stored, "values/s", ["keyed: " + Report.times(keyed.median, stored.median, "redis")])
}

/// redis, which stores values of 64 bytes by key: redis-benchmark with 50 clients, each of which has 100 requests under way.
private final class RedisSets {
  private let server: RedisBroker
  private let benchmark: String

  /// - Returns: nil if one of the two programs is not installed.
  init?() throws {
    guard let server = findProgram("redis-server"), let benchmark = findProgram("redis-benchmark") else { return nil }
    self.server = try RedisBroker(server)
    self.benchmark = benchmark
    _ = try perSecond(requests: 2 * keyCount)
  }

  func perSecond(over seconds: Double) throws -> Double { try perSecond(requests: Int(1_500_000 * seconds)) }

  private func perSecond(requests: Int) throws -> Double {
    let command =
      "\(benchmark) -s \(server.process.folder)/s -t set -P 100 -d 64 -r \(keyCount) -n \(requests) --csv 2>/dev/null"
    guard let pipe = unsafe popen(command, "re") else { throw SystemError("popen") }
    defer { unsafe pclose(pipe) }
    var text = [CChar](repeating: 0, count: 1024)
    while let line = unsafe fgets(&text, CInt(text.count), pipe) {
      let fields = unsafe String(cString: line).split(separator: ",").map { $0.filter { $0 != "\"" } }
      if fields.first == "SET", fields.count > 1, let rate = Double(fields[1]) { return rate }
    }
    throw BenchError("redis-benchmark reports no rate of SET")
  }
}

/// Events per second of subscriptions from the state, one after the other, with connecting.
private func measureState(_ options: Options) throws {
  Report.heading("state of \(counted(keyCount, "key")) to a new subscriber, 64 bytes", goal: "60 % of the bare limit")
  let load = try KeyedLoad(options, isKeyed: true)
  try load.publish(keyCount)
  let bare = try BareServer()
  var (rates, limits): ([Double], [Double]) = ([], [])
  for _ in 0..<options.runs {
    limits.append(try deliveries(keyCount, over: options.seconds / 2) { try bareReplay(bare, count: keyCount) })
    rates.append(try deliveries(keyCount, over: options.seconds / 2) { try load.readState() })
  }
  Report.line("bare limit", Figures(limits), "events/s")
  Report.line(
    "streamd", Figures(rates), "events/s",
    [Report.percent(Figures(rates).median, of: Figures(limits).median, "bare")])
}

/// - Parameter read: returns a rate.
private func deliveries(_ count: Int, over seconds: Double, _ read: () throws -> Double) throws -> Double {
  var (busy, total) = (0.0, 0)
  while busy < seconds {
    busy += Double(count) / (try read())
    total += count
  }
  return Double(total) / busy
}

/// Measures a daemon whose buffer has few events.
private func bytesPerKey(_ options: Options) throws -> Double {
  let load = try KeyedLoad(options, isKeyed: true, buffer: #"{ events = 1000, bytes = "1MiB" }"#, keys: keyCount + 1000)
  try load.publish(1000)
  let before = try load.broker.process.residentBytes()
  try load.publish(keyCount)
  let bytes = try load.broker.process.residentBytes() - before
  return Double(bytes) / Double(keyCount) - Double(EventShape.dataByteCount)
}

/// A daemon with a publisher of JSON texts.
private final class KeyedLoad {
  let broker: StreamdBroker
  private let publisher: RoundPublisher

  init(_ options: Options, isKeyed: Bool, buffer: String = #"{ events = 65536, bytes = "8MiB" }"#, keys: Int = keyCount)
    throws
  {
    broker = try StreamdBroker(
      options.program,
      stream: """
        [streams.b]
        publish = true
        type = "application/json"
        buffer = \(buffer)
        \(isKeyed ? "key = \".k\"\nmax_keys = 200000" : "")
        """)
    publisher = try RoundPublisher(broker, (0..<keys).map { #"{"k":"\#(String(10_000_000 + $0))","v":187.25,"pad":""# })
  }

  /// Publishes the next events, until they are in the stream.
  func publish(_ count: Int) throws {
    let end = publisher.sent + count
    try publisher.run { $0.sent >= end }
    usleep(100_000)  // for what is in the sockets
  }

  func eventsPerSecond(over seconds: Double) throws -> Double {
    let (start, before) = (monotonicSeconds(), publisher.sent)
    try publisher.run { _ in monotonicSeconds() - start >= seconds }
    return Double(publisher.sent - before) / (monotonicSeconds() - start)
  }

  /// - Returns: events per second of one subscription from the state.
  func readState() throws -> Double {
    let start = monotonicSeconds()
    let pool = try SubscriberPool(
      broker.name, [broker.subscribe(since: "state")], shape: broker.shape, firstNumber: nil, verifiesAll: false)
    while pool.total < keyCount { try pool.read(timeout: 10_000) }
    return Double(pool.total) / (monotonicSeconds() - start)
  }
}
