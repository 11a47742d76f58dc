/// Measures the maximum rate of deliveries.
extension Contender {
  /// - Returns: events delivered per second, to all subscribers together.
  /// - Throws: when an event was lost, duplicated or out of order.
  func deliveriesPerSecond(over seconds: Double) throws -> Double {
    if feeder == nil { pool.say(UInt8(ascii: "g")) }
    try run(for: seconds / 4)
    let (start, before) = (monotonicSeconds(), pool.total)
    try run(for: seconds)
    let rate = Double(pool.total - before) / (monotonicSeconds() - start)
    if feeder == nil { pool.say(UInt8(ascii: "s")) }
    try drain()
    return rate
  }
}

func measureThroughput(_ options: Options) throws {
  for subscribers in [1, 100, 1000] {
    Report.heading(
      "throughput, \(counted(subscribers, "subscriber")), 64 bytes",
      goal: subscribers == 1 ? "2 x redis and nats" : "6 x redis, 60 % of the bare limit")
    report(try compareThroughput(options, subscribers: subscribers))
  }
  for batch in [100, 1000] {
    Report.heading(
      "throughput, 1,000 subscribers, batches of \(counted(batch)), 64 bytes", goal: "6 x redis, 60 % of the bare limit"
    )
    report(try compareThroughput(options, subscribers: 1000, batch: batch))
  }
}

/// - Parameter rates: those of the baseline, of streamd, and of its peers.
func report(_ rates: [(name: String, figures: Figures)]) {
  for (index, rate) in rates.enumerated() {
    var ratios: [String] = []
    if index > 0 { ratios.append(Report.percent(rate.figures.median, of: rates[0].figures.median, "bare")) }
    if index == 1 {
      for peer in rates.dropFirst(2) {
        ratios.append(Report.times(rate.figures.median, peer.figures.median, peer.name))
      }
    }
    Report.line(rate.name, rate.figures, "events/s", ratios)
  }
}

/// Deliveries per second of the baseline, of streamd, and then of the peers.
func compareThroughput(
  _ options: Options, subscribers: Int, batch: Int? = nil
) throws -> [(name: String, figures: Figures)] {
  let bare: () throws -> Contender =
    if let batch {
      { try Contender(BareRelay(), subscribers: subscribers, batch: batch, verifies: options.verifies) }
    } else {
      { try Contender(bare: BareServer(), subscribers: subscribers) }
    }
  let makers =
    [bare]
    + (try brokers(options).map { broker in
      { try Contender(broker, subscribers: subscribers, batch: batch, verifies: options.verifies) }
    })
  return try compareThroughput(options, makers, subscribers: subscribers)
}

func compareThroughput(
  _ options: Options, _ makers: [() throws -> Contender], subscribers: Int
) throws -> [(name: String, figures: Figures)] {
  // Alternates between the contenders, so that a slow moment of the machine affects all of them; one after the other if
  // the process may not have that many descriptors.
  let groups = subscribers * makers.count < 15_000 ? [makers] : makers.map { [$0] }
  return try groups.flatMap { group in
    let contenders = try group.map { try $0() }
    var rates = [[Double]](repeating: [], count: contenders.count)
    for _ in 0..<options.runs {
      for (index, contender) in contenders.enumerated() {
        rates[index].append(try contender.deliveriesPerSecond(over: options.seconds))
      }
    }
    return zip(contenders, rates).map { ($0.name, Figures($1)) }
  }
}
