import StreamProtocol
import StreamRuntime

/// The table of `top`: the streams of the last snapshot, and the rates of their counters since the previous one.
struct TopTable {
  /// The order of the streams.
  enum Order: String, CaseIterable {
    case name, rate, lag, state
  }

  private struct Row {
    let stream: StatisticsSnapshot.Stream
    /// Per second; nil without a previous value.
    let eventsIn: Double?
    let bytesIn: Double?
    let eventsOut: Double?
    let age: UInt64?
    /// The time since the newest event was last known to be the present one.
    let freshAge: UInt64?

    /// The rank of the state: states that need a person come first.
    var urgency: Int {
      if stream.state?.hasPrefix("fail") == true || stream.staleSince != nil { return 0 }
      let others = ["blocked", "waiting", "running", "idle"]
      return 1 + (stream.state.flatMap { others.firstIndex(of: $0) } ?? others.count)
    }

    /// - Parameter hasKeys: whether the number of keys is shown.
    func cells(hasKeys: Bool) -> [String] {
      var cells = [
        stream.name, (stream.state ?? "-") + (stream.staleSince == nil ? "" : ", stale"), Quantity.rate(eventsIn),
        Quantity.byteRate(bytesIn), Quantity.rate(eventsOut), Quantity.count(stream.subscribers),
        Quantity.count(stream.lag),
      ]
      if hasKeys { cells.append(Quantity.count(stream.keys)) }
      return cells + [Quantity.age(microseconds: age), Quantity.age(microseconds: freshAge)]
    }
  }

  private static let header = [
    "NAME", "STATE", "EVENTS/s", "BYTES/s", "SENT/s", "SUBSCRIBERS", "LAG", "KEYS", "AGE", "FRESH",
  ]
  /// Name and state; the other columns are numbers and right-aligned.
  private static let textColumns = 2
  private static let leastNameWidth = 8

  private let headlines: [String]
  private let rows: [Row]

  /// - Parameters:
  ///   - time: the time of the snapshot, on the daemon's clock, in microseconds since the Unix epoch; nil: unknown.
  ///   - previous: an earlier snapshot; ignored if the daemon was restarted since.
  init(_ snapshot: StatisticsSnapshot, at time: UInt64?, after previous: StatisticsSnapshot?, order: Order) {
    let uptime = snapshot.uptimeMicroseconds ?? 0
    let earlier = previous.flatMap { ($0.uptimeMicroseconds ?? .max) < uptime ? $0 : nil }
    let seconds = Double(uptime - (earlier?.uptimeMicroseconds ?? 0)) / 1e6
    /// Counters only rise; a lower value belongs to a stream that was removed and added again.
    func rate(_ now: UInt64?, _ before: UInt64?) -> Double? {
      guard let now, let before, now >= before else { return nil }
      return Double(now - before) / seconds
    }
    let known = Dictionary((earlier?.byStream ?? []).map { ($0.name, $0) }) { first, _ in first }
    func age(_ moment: UInt64?) -> UInt64? {
      moment.flatMap { moment in time.map { $0 > moment ? $0 - moment : 0 } }
    }
    let rows = (snapshot.byStream ?? []).map { stream in
      let before = known[stream.name]
      return Row(
        stream: stream, eventsIn: rate(stream.eventsIn, before?.eventsIn),
        bytesIn: rate(stream.bytesIn, before?.bytesIn),
        eventsOut: rate(stream.eventsOut, before?.eventsOut),
        age: age(stream.newest), freshAge: age(stream.fresh))
    }
    switch order {
    case .name: self.rows = rows.sorted { $0.stream.name < $1.stream.name }
    case .rate:
      func speed(_ row: Row) -> Double { (row.eventsIn ?? 0) + (row.eventsOut ?? 0) }
      self.rows = rows.sorted { (speed($1), $0.stream.name) < (speed($0), $1.stream.name) }
    case .lag:
      func lag(_ row: Row) -> UInt64 { row.stream.lag ?? 0 }
      self.rows = rows.sorted { (lag($1), $0.stream.name) < (lag($0), $1.stream.name) }
    case .state: self.rows = rows.sorted { ($0.urgency, $0.stream.name) < ($1.urgency, $1.stream.name) }
    }
    let eventsOut = rate(snapshot.eventsOut, earlier?.eventsOut)
    let writes = rate(snapshot.writes, earlier?.writes)
    let perWrite = writes.flatMap { writes in eventsOut.map { writes > 0 ? $0 / writes : 0 } }
    headlines = [
      [
        "streamd \(snapshot.version ?? "-")",
        "up \(StatusReport.span(seconds: Int64(clamping: uptime / 1_000_000)))",
        Quantity.counted(snapshot.connections, "connection"), Quantity.counted(snapshot.subscribers, "subscriber"),
        Quantity.counted(UInt64(rows.count), "stream"),
      ].joined(separator: ", "),
      [
        "in \(Quantity.rate(rate(snapshot.eventsIn, earlier?.eventsIn)))/s",
        "\(Quantity.byteRate(rate(snapshot.bytesIn, earlier?.bytesIn)))B/s; out \(Quantity.rate(eventsOut))/s",
        "\(Quantity.byteRate(rate(snapshot.bytesOut, earlier?.bytesOut)))B/s",
        "\(Quantity.rate(perWrite)) per write; loops busy \(Self.busy(snapshot, earlier, seconds: seconds))",
      ].joined(separator: ", "),
    ]
  }

  /// The load of all loops, and of the busiest loop, which reaches its limit first.
  private static func busy(
    _ snapshot: StatisticsSnapshot, _ earlier: StatisticsSnapshot?, seconds: Double
  ) -> String {
    guard let now = snapshot.busyMicroseconds, let before = earlier?.busyMicroseconds, now.count == before.count,
      !now.isEmpty
    else {
      return "-"
    }
    let shares = zip(now, before).map { now, before in
      now > before ? min(1, Double(now - before) / 1e6 / seconds) : 0
    }
    let all = shares.reduce(0, +) / Double(shares.count)
    return shares.count == 1
      ? Quantity.percent(all) : "\(Quantity.percent(all)) (busiest \(Quantity.percent(shares.max() ?? 0)))"
  }

  /// Headlines, a blank line, the header, one line per stream.
  /// - Parameters:
  ///   - width: maximum characters of a line; long names lose their middle first.
  ///   - height: maximum lines; the last one then states how many streams are missing.
  ///   - first: the index of the first stream; a lower index is used if the last streams are then visible.
  func lines(width: Int = .max, height: Int = .max, from first: Int = 0) -> [String] {
    let top = headlines.map(\.escapedForReading) + [""]
    let start = min(first, lastStart(height: height))
    let room = room(height: height)
    let shown = rows.count <= room ? rows[...] : rows.dropFirst(start).prefix(max(0, room - 1))
    let hasKeys = rows.contains { $0.stream.keys != nil }
    let header = Self.header.filter { hasKeys || $0 != "KEYS" }
    let cells = ([header] + shown.map { $0.cells(hasKeys: hasKeys) }).map { $0.map(\.escapedForReading) }
    var widths = header.indices.map { column in cells.map { $0[column].count }.max() ?? 0 }
    let others = widths.dropFirst().reduce(0) { $0 + $1 + 2 }
    if width < .max { widths[0] = min(widths[0], max(Self.leastNameWidth, width - others)) }
    var lines = top + cells.map { Self.line($0, widths) }
    if shown.count < rows.count {
      let above = start > 0 ? "\(start) above, " : ""
      lines.append(above + "and \(rows.count - shown.count - start) more")
    }
    return lines.prefix(height).map { String($0.prefix(width)) }
  }

  private func room(height: Int) -> Int { max(0, height - headlines.count - 2) }

  /// The highest first index: the last streams are then visible.
  func lastStart(height: Int) -> Int {
    rows.count <= room(height: height) ? 0 : rows.count - max(1, room(height: height) - 1)
  }

  /// The index of the header.
  var headerIndex: Int { headlines.count + 1 }

  /// The text without its middle, if it is longer than `width`: names of one kind differ at their ends.
  private static func elided(_ text: String, to width: Int) -> String {
    guard text.count > width else { return text }
    return text.prefix(width / 2) + "…" + text.suffix(width - width / 2 - 1)
  }

  private static func line(_ cells: [String], _ widths: [Int]) -> String {
    zip(cells.indices, cells).map { column, cell in
      let cell = elided(cell, to: widths[column])
      let padding = String(repeating: " ", count: widths[column] - cell.count)
      return column < textColumns ? cell + padding : padding + cell
    }.joined(separator: "  ")
  }
}
