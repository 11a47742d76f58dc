import StreamProtocol
import Testing

@testable import streamctl

@Suite struct TopTableTests {
  private func stream(
    _ name: String, state: String = "running", subscribers: UInt64 = 1, in eventsIn: UInt64 = 0, bytes: UInt64 = 0,
    out: UInt64 = 0, lag: UInt64? = 0, newest: UInt64? = nil, fresh: UInt64? = nil, stale: UInt64? = nil
  ) -> StatisticsSnapshot.Stream {
    var stream = StatisticsSnapshot.Stream(name: name)
    (stream.state, stream.subscribers, stream.lag, stream.newest) = (state, subscribers, lag, newest)
    (stream.fresh, stream.staleSince) = (fresh, stale)
    (stream.eventsIn, stream.bytesIn, stream.eventsOut) = (eventsIn, bytes, out)
    return stream
  }

  private func snapshot(
    at seconds: Double, eventsIn: UInt64 = 0, busy: [UInt64] = [0, 0], _ streams: StatisticsSnapshot.Stream...
  ) -> StatisticsSnapshot {
    var snapshot = StatisticsSnapshot()
    (snapshot.version, snapshot.uptimeMicroseconds) = ("1.2.3", UInt64(seconds * 1e6))
    (snapshot.connections, snapshot.subscribers, snapshot.busyMicroseconds) = (3, 4, busy)
    (snapshot.eventsIn, snapshot.bytesIn, snapshot.writes) = (eventsIn, eventsIn * 2048, eventsIn * 8)
    (snapshot.eventsOut, snapshot.bytesOut, snapshot.byStream) = (eventsIn * 100, eventsIn * 5000, streams)
    return snapshot
  }

  /// The table of a snapshot that the daemon made at the time of its uptime.
  private func table(
    _ snapshot: StatisticsSnapshot, after previous: StatisticsSnapshot?, order: TopTable.Order
  ) -> TopTable {
    TopTable(
      snapshot, at: 1_000_000_000 + (snapshot.uptimeMicroseconds ?? 0), after: previous, order: order)
  }

  @Test func ratesAreDifferencesOverTheTimeBetweenSnapshots() {
    let before = snapshot(at: 100, busy: [0, 5_000_000], stream("clock", in: 10, bytes: 100, out: 1000))
    let now = snapshot(
      at: 102, eventsIn: 2000, busy: [500_000, 6_500_000],
      stream("clock", in: 34, bytes: 4196, out: 7000, lag: 12, newest: 1_098_700_000, fresh: 1_101_500_000),
      stream("new", lag: nil))
    #expect(
      table(now, after: before, order: .name).lines() == [
        "streamd 1.2.3, up 1m 42s, 3 connections, 4 subscribers, 2 streams",
        "in 1.0k/s, 2.0MB/s; out 100k/s, 4.8MB/s, 13 per write; loops busy 50% (busiest 75%)",
        "",
        "NAME   STATE    EVENTS/s  BYTES/s  SENT/s  SUBSCRIBERS  LAG   AGE  FRESH",
        "clock  running        12     2.0K    3.0k            1   12  3.3s   0.5s",
        "new    running         -        -       -            1    -     -      -",
      ])
  }

  @Test func theFirstSnapshotHasNoRates() {
    let lines = table(snapshot(at: 1, stream("a", in: 5)), after: nil, order: .name).lines()
    #expect(lines[1] == "in -/s, -B/s; out -/s, -B/s, - per write; loops busy -")
    #expect(lines[4] == "a     running         -        -       -            1    0    -      -")
  }

  @Test func aRestartedDaemonOrARecreatedStreamHasNoNegativeRate() {
    let before = snapshot(at: 500, eventsIn: 9, stream("a", in: 900, bytes: 900, out: 900))
    let restarted = table(snapshot(at: 3, eventsIn: 10, stream("a", in: 950)), after: before, order: .name).lines()
    #expect(restarted[1].hasPrefix("in -/s"))
    #expect(restarted[4] == "a     running         -        -       -            1    0    -      -")
    let replaced = table(
      snapshot(at: 501, eventsIn: 10, stream("a", in: 5, bytes: 1900, out: 900)), after: before, order: .name
    ).lines()
    #expect(replaced[1].hasPrefix("in 1.0/s"))
    #expect(replaced[4] == "a     running         -     1000       0            1    0    -      -")
  }

  @Test func aStaleStreamIsShownAsSuch() {
    let lines = table(snapshot(at: 1, stream("a", stale: 1)), after: nil, order: .name).lines()
    #expect(lines[4].hasPrefix("a     running, stale "))
  }

  @Test func linesFitTheTerminalAndCountTheHiddenStreams() {
    let streams = (1...9).map { stream("a-stream-with-a-long-name-\($0)") }
    var crowd = snapshot(at: 1)
    crowd.byStream = streams
    let lines = table(crowd, after: nil, order: .name).lines(width: 77, height: 8)
    #expect(lines.count == 8 && lines.allSatisfy { $0.count <= 77 })
    #expect(lines[4].hasPrefix("a-str…ame-1  running"))
    #expect(lines[7] == "and 6 more")
    #expect(table(crowd, after: nil, order: .name).lines(width: 77, height: 13).count == 13)
    let scrolled = table(crowd, after: nil, order: .name)
    #expect(scrolled.lines(height: 8, from: 2)[7] == "2 above, and 4 more")
    #expect(scrolled.lastStart(height: 8) == 6 && scrolled.lines(height: 8, from: 99)[7] == "6 above, and 0 more")
    #expect(scrolled.lines(height: 13, from: 99).count == 13 && scrolled.lastStart(height: 13) == 0)
    for (width, height) in [(1, 1), (0, 0), (5, 3), (20, 4), (30, 5)] {
      let lines = table(crowd, after: nil, order: .name).lines(width: width, height: height)
      #expect(lines.count <= height && lines.allSatisfy { $0.count <= width })
    }
  }

  @Test func theOrderIsByRateOnRequestAndThenByName() {
    let before = snapshot(at: 1, stream("a"), stream("b"), stream("c"), stream("d"))
    let now = snapshot(at: 2, stream("d"), stream("c", in: 5), stream("b", out: 9), stream("a"))
    func names(_ order: TopTable.Order) -> [Character?] {
      table(now, after: before, order: order).lines().dropFirst(4).map(\.first)
    }
    #expect(names(.rate) == ["b", "c", "a", "d"])
    #expect(names(.name) == ["a", "b", "c", "d"])
    var failing = stream("d", lag: 9)
    failing.state = "failing"
    let other = snapshot(at: 3, stream("a"), stream("c", stale: 1), failing, stream("b", lag: 3))
    func otherNames(_ order: TopTable.Order) -> [Character?] {
      table(other, after: nil, order: order).lines().dropFirst(4).map(\.first)
    }
    #expect(otherNames(.lag) == ["d", "b", "a", "c"] && otherNames(.state) == ["c", "d", "a", "b"])
  }

  @Test func namesCannotMoveTheCursor() {
    let lines = table(snapshot(at: 1, stream("a\u{1b}[2Jb\n\u{9b}c")), after: nil, order: .name).lines()
    #expect(lines[4].hasPrefix(#"a\u{1B}[2Jb\n\u{009B}c  running"#))
  }

  @Test(
    arguments: [
      (0, "0"), (0.04, "0.0"), (0.96, "1.0"), (9.94, "9.9"), (9.96, "10"), (17.4, "17"), (999.4, "999"),
      (999.6, "1.0k"),
      (12_345, "12k"), (999_900, "1.0M"), (5.2e9, "5.2G"), (3e15, "3000T"),
    ] as [(Double, String)]) func ratesAreTwoOrThreeDigitsAndAUnit(value: Double, text: String)
  {
    #expect(Quantity.rate(value) == text)
  }

  @Test(
    arguments: [
      (0, "0.0s"), (1_250_000, "1.2s"), (42_900_000, "42s"), (200_000_000, "3m"), (18_000_000_000, "5h"),
      (200_000_000_000, "2d"),
    ] as [(UInt64, String)]) func agesUseTheLargestUnitThatFits(age: UInt64, text: String)
  {
    #expect(Quantity.age(microseconds: age) == text)
  }

  @Test func smallCountsKeepAllDigits() {
    #expect([nil, 7, 99_999, 100_000].map(Quantity.count) == ["-", "7", "99999", "100k"])
  }
}
