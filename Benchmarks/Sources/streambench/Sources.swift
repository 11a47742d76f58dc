import Glibc
import RSocket
import StreamRuntime

/// Measures sources that receive, and streams made of streams.
func measureSources(_ options: Options) throws {
  try measureIntake(options)
  try measureDerivedFilter(options)
  try measureDerivedNeighbours(options)
}

private func measureIntake(_ options: Options) throws {
  Report.heading(
    "a source of 100,000 events/s of 200 bytes, one subscriber", goal: "a WebSocket: at most 50 % of a core")
  for isWebSocket in [true, false] {
    let upstream = try PacedUpstream(eventsPerMillisecond: 100, isWebSocket: isWebSocket)
    let source =
      isWebSocket
      ? #"websocket.url = "ws://127.0.0.1:\#(upstream.port)/""# : #"socket.address = "tcp:127.0.0.1:\#(upstream.port)""#
    let broker = try StreamdBroker(
      options.program, stream: "[streams.b]\ntype = \"text/plain\"\n\(source)\n",
      dataByteCount: PacedUpstream.dataByteCount)
    let pool = try SubscriberPool(
      "streamd", [try broker.subscribe()], shape: broker.shape, firstNumber: nil, verifiesAll: false)
    var (shares, rates): ([Double], [Double]) = ([], [])
    try read(pool, for: 0.5)
    for _ in 0..<options.runs {
      let (busy, received, start) = (try broker.process.processorSeconds(), pool.total, monotonicSeconds())
      try read(pool, for: options.seconds)
      let seconds = monotonicSeconds() - start
      shares.append((try broker.process.processorSeconds() - busy) / seconds * 100)
      rates.append(Double(pool.total - received) / seconds)
    }
    Report.line(
      isWebSocket ? "WebSocket, of one core" : "lines over TCP, of one core", Figures(shares), "%",
      ["\(Report.text(Figures(rates).median)) events/s"])
  }
}

func read(_ pool: SubscriberPool, for seconds: Double) throws {
  let end = monotonicSeconds() + seconds
  while monotonicSeconds() < end { try pool.read(timeout: 10) }
}

private func measureDerivedFilter(_ options: Options) throws {
  Report.heading(
    "processor time per published event, an event in ten fits", goal: "derived: at most 1.5 x a filtered subscription")
  let loads = [try DerivedLoad(options, isDerived: false), try DerivedLoad(options, isDerived: true)]
  var times: [[Double]] = [[], []]
  for _ in 0..<options.runs {
    for (index, load) in loads.enumerated() { times[index].append(try load.nanosecondsPerEvent(over: options.seconds)) }
  }
  let (filtered, derived) = (Figures(times[0]), Figures(times[1]))
  Report.line("filtered subscription", filtered, "ns")
  Report.line("derived stream", derived, "ns", [Report.times(derived.median, filtered.median, "filtered")])
}

/// A daemon with one publisher of JSON, and a subscriber to one event in ten.
private final class DerivedLoad {
  private static let symbolCount = 10
  private static let streams = """
    [streams.b]
    publish = true
    type = "application/json"
    overflow = "block"
    [streams.f]
    of = ["b"]
    where = { "/symbol" = "S3" }
    overflow = "block"
    """
  private let broker: StreamdBroker
  private let pool: SubscriberPool
  private let publisher: RoundPublisher

  init(_ options: Options, isDerived: Bool) throws {
    broker = try StreamdBroker(options.program, stream: Self.streams)
    let socket = try broker.subscribe(
      to: isDerived ? "f" : "b", credit: Credit.unlimited,
      options: isDerived ? #"{"from":"new"}"# : #"{"from":"new","where":{"/symbol":"S3"}}"#)
    var shape = broker.shape
    if !isDerived { shape.byteCount += 8 }  // the number of events left out
    pool = try SubscriberPool("streamd", [socket], shape: shape, firstNumber: nil, verifiesAll: false)
    publisher = try RoundPublisher(
      broker, (0..<Self.symbolCount).map { #"{"symbol":"S\#($0)","n":187.25,"pad":""# })
    try pool.watch(publisher: publisher.socket)
    pool.onPublisher = { [publisher] in try publisher.hear() }
  }

  func nanosecondsPerEvent(over seconds: Double) throws -> Double {
    try run(for: seconds / 4)
    let (busy, before) = (try broker.process.processorSeconds(), publisher.sent)
    try run(for: seconds)
    return (try broker.process.processorSeconds() - busy) * 1e9 / Double(publisher.sent - before)
  }

  private func run(for seconds: Double) throws {
    let (end, before) = (monotonicSeconds() + seconds, pool.total)
    while monotonicSeconds() < end {
      try publisher.feed()
      try pool.read(timeout: 10)
    }
    guard pool.total > before else { throw BenchError("the subscriber got no event") }
  }
}

private func measureDerivedNeighbours(_ options: Options) throws {
  let count = 1000
  Report.heading(
    "latency in ms beside \(counted(count)) derived streams, 1,000 events/s", goal: "at most 100 ms")
  let derived = (0..<count).map { "[streams.d\($0)]\nof = [\"b\"]\nstart = \"always\"\n" }.joined()
  let buffer = "buffer = { events = 1000, bytes = \"128KiB\" }\n"
  let broker = try StreamdBroker(
    options.program,
    stream: "[streams.b]\npublish = true\n" + derived.replacing("start =", with: buffer + "start ="))
  let bystander = try Contender(broker, subscribers: 1, verifies: true)
  var (p50, p99, greatest): ([Double], [Double], [Double]) = ([], [], [])
  for _ in 0..<options.runs {
    let latencies = try bystander.latencies(over: options.seconds, perSecond: 1000)
    let figures = try latencies.percentiles()
    p50.append(figures.p50)
    p99.append(figures.p99)
    greatest.append(latencies.greatest)
  }
  Report.line("p50", Figures(p50), "ms")
  Report.line("p99", Figures(p99), "ms")
  Report.line("greatest", Figures(greatest), "ms")
}
