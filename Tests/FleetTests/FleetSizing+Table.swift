/// The figures of a day, for people.
extension FleetSizing {
  var summary: String {
    "\(upCount) hosts up, \(leadingCount) lead, \(listenerCount) listen to \(wantedCount) streams, "
      + "logs \(logByteCount >> 20) MiB, \(totals.counts)"
  }

  /// - Parameter quiet: a part of the day in which nothing happens: the last fifth.
  func table(of quiet: Totals) -> String {
    let seconds = Double(scale.seconds) / 5
    func rate(_ count: FleetTraffic.Count) -> String {
      "\((Double(count.messages) / seconds).rounded())/s, \(Int(Double(count.bytes) / seconds)) B/s"
    }
    let hosts = 0..<scale.hostCount
    var lines = [
      "quiet: \(quiet.counts)",
      "a delivery: \(quiet.counts.deliveryTime / UInt64(max(1, quiet.counts.deliveries))) ns",
    ]
    for kind in FleetTraffic.Kind.allCases {
      let (now, day) = (quiet.traffic, totals.traffic)
      let mostSent = hosts.map { now.sent(kind, by: $0).messages }.max() ?? 0
      let mostReceived = hosts.map { now.received(kind, by: $0).messages }.max() ?? 0
      let most = day.mostInSecond(kind)
      lines.append(
        """
        \(kind)
            quiet: sent \(rate(now.sent(kind))), by one host at most \(Double(mostSent) / seconds)/s
                   received \(rate(now.received(kind))), by one host at most \(Double(mostReceived) / seconds)/s
                   between brokers \(rate(now.between(kind)))
            day: sent \(day.sent(kind)), received \(day.received(kind)), in one second \(most.all), by one host \(most.ofHost)
        """)
    }
    return lines.joined(separator: "\n")
  }
}
