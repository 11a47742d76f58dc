import RSocket

/// Measures an upstream for all streams of a template: 1,000 events in a millisecond, of as many values.
func measureTogether(_ options: Options) throws {
  let symbolCount = 1000
  Report.heading(
    "one WebSocket of 1,000,000 events/s of 200 bytes and 1,000 values, for the streams of a template",
    goal: "at least 1,000,000 events/s routed")
  for subscriberCount in [10, symbolCount] {
    let upstream = try PacedUpstream(eventsPerMillisecond: symbolCount, isWebSocket: true, symbolCount: symbolCount)
    let broker = try StreamdBroker(
      options.program,
      stream: """
        [streams."t/{symbol}".websocket]
        url = "ws://127.0.0.1:\(upstream.port)/"
        together = { most = \(symbolCount), route = ".symbol" }
        """, dataByteCount: PacedUpstream.dataByteCount)
    let sockets = try (0..<subscriberCount).map {
      try broker.subscribe(
        to: "t/\(PacedUpstream.symbol($0))", credit: Credit.unlimited, options: #"{"from":"new"}"#)
    }
    let pool = try SubscriberPool("streamd", sockets, shape: broker.shape, firstNumber: nil, verifiesAll: false)
    var (times, rates): ([Double], [Double]) = ([], [])
    try read(pool, for: 0.5)
    for _ in 0..<options.runs {
      let (busy, received, start) = (try broker.process.processorSeconds(), pool.total, monotonicSeconds())
      try read(pool, for: options.seconds)
      let seconds = monotonicSeconds() - start
      // Each subscriber has the events of one value of them.
      let routed = Double(pool.total - received) * Double(symbolCount / subscriberCount)
      times.append((try broker.process.processorSeconds() - busy) * 1e9 / routed)
      rates.append(routed / seconds)
    }
    Report.line("routed, to \(counted(subscriberCount)) streams", Figures(rates), "/s")
    Report.line("processor time of an event", Figures(times), "ns")
  }
}
