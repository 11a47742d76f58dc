import Glibc

// Measures the cost of polling many URLs, and whether URLs that hang delay the others.

private let streamCount = 1000
/// Streams of the upstream that never responds: as many as it has places, and as many again in its queue.
private let stalledCount = 8

func measurePolling(_ options: Options) throws {
  Report.heading("\(counted(streamCount, "HTTP stream")) at every = 1s, \(stalledCount) more on an upstream that hangs")
  let polling = try Polling(options)
  Report.line("of one core", polling.share, "%", ["\(Report.text(polling.rate)) fetches a second"])
  let each = polling.memory.median / Double(streamCount + stalledCount)
  Report.line("memory", polling.memory, "bytes", ["\(Report.text(each)) a stream"])
  Report.line("lateness", polling.lateness, "ms", ["up to 50 ms of it are the poll's own jitter"])
}

struct Polling {
  /// Processor time of the daemon, in per cent of one processor.
  let share: Figures
  /// Memory of the daemon, in bytes.
  let memory: Figures
  /// The delay of each fetch beyond its second, in milliseconds.
  let lateness: Figures
  /// Fetches per second.
  let rate: Double

  /// Measures it.
  init(_ options: Options) throws {
    let upstream = try HTTPUpstream(count: streamCount)
    defer { upstream.stop() }
    let urls =
      (0..<streamCount).map { "http://127.0.0.1:\(upstream.port)/\($0)" }
      + (0..<stalledCount).map { "http://127.0.0.1:\(upstream.stalledPort)/\($0)" }
    let streams = urls.enumerated().map { number, url in
      "[streams.s\(number)]\nhttp = { url = \"\(url)\", every = \"1s\" }\nstart = \"always\"\n"
    }
    let broker = try StreamdBroker(options.program, stream: streams.joined())
    sleep(3)  // first fetches are immediate, later ones at their offset
    let seconds = max(2, Int(options.seconds * 5))
    var (shares, sizes): ([Double], [Double]) = ([], [])
    let start = monotonicNanoseconds()
    for _ in 0..<options.runs {
      let (before, time) = (try broker.process.processorSeconds(), monotonicSeconds())
      sleep(UInt32(seconds))
      shares.append((try broker.process.processorSeconds() - before) / (monotonicSeconds() - time) * 100)
      sizes.append(Double(try broker.process.residentBytes()))
    }
    let elapsed = Double(monotonicNanoseconds() - start) / 1e9
    let arrivals = upstream.takeArrivals().map { $0.filter { $0 >= start } }
    rate = Double(arrivals.reduce(0) { $0 + $1.count }) / elapsed
    (share, memory, lateness) = (Figures(shares), Figures(sizes), Figures(arrivals.flatMap(delays)))
  }
}

/// The delay of each fetch of a stream beyond a second after the previous one, in milliseconds.
///
/// Not relative to a fixed grid of seconds: after a fetch that was late by half an interval the poll starts a new grid.
private func delays(_ arrivals: [UInt64]) -> [Double] {
  guard arrivals.count > 1 else { return [.infinity] }  // never fetched again
  return zip(arrivals, arrivals.dropFirst()).map { max(0, Double($1 - $0) / 1e6 - 1000) }
}
