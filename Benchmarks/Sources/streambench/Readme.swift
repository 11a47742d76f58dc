/// Measures what README tells of performance, and prints it as README has it, with the names of the rows.
func printReadme(_ options: Options) throws {
  let many = try compareThroughput(options, subscribers: 1000).map { ($0.name, $0.figures.median) }
  let one = try compareThroughput(options, subscribers: 1).map { ($0.name, $0.figures.median) }
  var alone = options
  alone.withPeers = false
  let memory = try compareMemory(alone)[0].figures.median
  let polling = try Polling(options)
  print(
    """
    - \(millions(many[1].1)) million events of 64 bytes per second to 1,000 subscribers, \(ratios(many)), \
    \(Report.percent(many[1].1, of: many[0].1, "the bare limit")) [throughput, 1,000 subscribers].
    - \(millions(one[1].1)) million per second to one subscriber, \(ratios(one)) [throughput, 1 subscriber].
    - \(Int(memory.rounded())) bytes of the daemon's memory per idle subscriber [memory].
    - 1,000 HTTP streams, each fetched once a second, take \(Report.text(polling.share.median.rounded())) % of one core, and \
    the daemon \(Int((polling.memory.median / 1e6).rounded())) MB of memory (RSS) [polling].
    """)
}

private func millions(_ rate: Double) -> String { Report.text(rate / 1e6) }

/// - Parameter rates: of the bare limit, of streamd, and of its peers.
private func ratios(_ rates: [(name: String, rate: Double)]) -> String {
  let peers = rates.dropFirst(2).filter { $0.name != "mosquitto" }
  let texts = peers.map { "\(Report.text((rates[1].rate / $0.rate * 10).rounded() / 10)) times \($0.name)" }
  return texts.isEmpty ? "with no peer beside it" : texts.joined(separator: " and ")
}
