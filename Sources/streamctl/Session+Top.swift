import StreamProtocol
import StreamClient
import StreamRuntime

extension Session {
  /// Draws the table of streams with every snapshot of the daemon's counters: in place on a terminal, one after the
  /// other on any other output. On a terminal it waits while the daemon restarts.
  func top(_ wanted: Arguments.Top) throws(Stop) {
    screen?.enter()
    defer { screen?.leave() }
    var output = Output()
    var order = wanted.order
    var first = 0
    var snapshots: (last: StatisticsSnapshot, time: UInt64?, before: StatisticsSnapshot?)?
    var left = wanted.count ?? .max
    var notice: String?
    watchStatistics()
    while left > 0 {
      let (events, end) = inbox.takeAll()
      let input = screen?.takeInput()
      let page = max(1, (screen?.size.height ?? 0) - 5)
      for key in Key.keys(input?.keys ?? []) {
        switch key {
        case .letter("q"): return
        case .letter("n"): (order, first) = (.name, 0)
        case .letter("r"): (order, first) = (.rate, 0)
        case .letter("l"): (order, first) = (.lag, 0)
        case .letter("s"): (order, first) = (.state, 0)
        case .up, .letter("k"): first -= 1
        case .down, .letter("j"): first += 1
        case .pageUp: first -= page
        case .pageDown, .letter(" "): first += page
        case .home, .letter("g"): first = 0
        case .end, .letter("G"): first = .max / 2
        case .letter: break
        }
        first = max(0, first)
      }
      if input?.mustSuspend == true { screen?.suspend() }
      for event in events {
        snapshots = (try StatisticsSnapshot(event), event.time, snapshots?.last)
        notice = nil
      }
      if let end {
        guard screen != nil, snapshots != nil, end.isUnavailability, inbox.reuse(after: end) else { throw end }
        notice = end.message
        loop.execute { [self] in _ = loop.schedule(after: Self.retryDelay) { watchStatistics() } }
      }
      if let snapshots {
        let table = TopTable(snapshots.last, at: snapshots.time, after: snapshots.before, order: order)
        if let screen {
          let (width, height) = screen.size
          first = min(first, table.lastStart(height: height))
          var lines = table.lines(width: width, height: height, from: first)
          if lines.count > 2 { lines[2] = String((notice?.escapedForReading ?? Self.keys).prefix(width)) }
          try output.write(Screen.picture(lines, header: table.headerIndex).utf8)
        } else if snapshots.before != nil, !events.isEmpty {
          try output.write((table.lines() + [""]).map { $0 + "\n" }.joined().utf8)
        }
        try output.flush()
        if !events.isEmpty, screen != nil || snapshots.before != nil { left -= 1 }
      }
      if !events.isEmpty, left > 0 { inbox.request(1) }
      if left > 0 { _ = inbox.wait() }
    }
  }

  /// Prints the snapshots as they are, each on a line.
  /// - Parameter count: `nil`: no limit.
  func printSnapshots(count: Int?) throws(Stop) {
    var output = Output()
    var left = count ?? .max
    watchStatistics()
    while left > 0 {
      let (events, end) = inbox.takeAll()
      for event in events {
        try OutputFormat.data.append(event, to: &output)
        left -= 1
      }
      try output.flush()
      if let end, left > 0 { throw end }
      if !events.isEmpty, left > 0 { inbox.request(1) }
      if left > 0 { _ = inbox.wait() }
    }
  }

  private static let keys = "q quit; sort by: n name, r rate, l lag, s state; scroll: arrows, space"
  private static let retryDelay = Duration.seconds(1)

  /// Requests one snapshot at a time, so that none accumulate while the terminal is slow.
  private func watchStatistics() {
    connection.stream("$stats", options: SubscribeOptions(from: .latest, onLag: .latest)).subscribe(inbox)
    inbox.request(1)
  }
}
