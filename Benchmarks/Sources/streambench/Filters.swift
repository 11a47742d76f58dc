import Glibc
import RSocket
import StreamRuntime

/// Measures subscriptions with filters: as many as there are subscribers, and few that they share. Each event fits the
/// filters of one subscriber in ten.
func measureFilters(_ options: Options) throws {
  let subscribers = 1000
  Report.heading(
    "filters, \(counted(subscribers, "subscriber")), an event fits one in ten", goal: "10 filters: 5 x one each")
  var rates: [[Double]] = [[], []]
  let loads = try [10, subscribers].map { try FilterLoad(options, subscribers: subscribers, filters: $0) }
  for _ in 0..<options.runs {
    for (index, load) in loads.enumerated() { rates[index].append(try load.eventsPerSecond(over: options.seconds)) }
  }
  let (few, many) = (Figures(rates[0]), Figures(rates[1]))
  Report.line("10 filters", few, "events/s", [Report.times(few.median, many.median, "a filter each")])
  Report.line("1,000 filters", many, "events/s")
}

/// A daemon with one publisher of JSON, and subscribers with filters.
@safe private final class FilterLoad {
  private static let symbolCount = 10
  private static let stream = """
    [streams.b]
    publish = true
    type = "application/json"
    overflow = "block"
    """
  private let broker: StreamdBroker
  private let pool: SubscriberPool
  private let publisher: RoundPublisher

  init(_ options: Options, subscribers: Int, filters: Int) throws {
    broker = try StreamdBroker(options.program, stream: Self.stream)
    let broker = broker
    let sockets = try (0..<subscribers).map { subscriber in
      let filter = subscriber % filters
      return try broker.subscribe(
        credit: Credit.unlimited,
        options: #"{"from":"new","where":{"/symbol":"S\#(filter % Self.symbolCount)","/n":{"gt":-\#(filter + 1)}}}"#)
    }
    var shape = broker.shape
    shape.byteCount += 8  // the number of events left out
    pool = try SubscriberPool("streamd", sockets, shape: shape, firstNumber: nil, verifiesAll: false)
    publisher = try RoundPublisher(
      broker,
      (0..<Self.symbolCount).map { #"{"symbol":"S\#($0)","n":187.25,"pad":""# })
    try pool.watch(publisher: publisher.socket)
    pool.onPublisher = { [publisher] in try publisher.hear() }
  }

  /// - Returns: published events per second that all subscribers have been sent as far as they fit.
  func eventsPerSecond(over seconds: Double) throws -> Double {
    try run(for: seconds / 4)
    let (start, before) = (monotonicSeconds(), pool.least)
    try run(for: seconds)
    return Double((pool.least - before) * Self.symbolCount) / (monotonicSeconds() - start)
  }

  private func run(for seconds: Double) throws {
    let end = monotonicSeconds() + seconds
    while monotonicSeconds() < end {
      try publisher.feed()
      try pool.read(timeout: 100)
    }
    guard pool.most <= publisher.sent / Self.symbolCount + 1 else {
      throw BenchError("more events than fit were received")
    }
  }
}
