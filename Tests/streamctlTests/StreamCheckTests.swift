import StreamProtocol
import Testing

@testable import streamctl

@Suite struct StreamCheckTests {
  private func check(
    _ state: String, fresh: UInt64? = nil, stale: UInt64? = nil, fleetStale: UInt64? = nil, maxAge: Duration? = nil,
    message: String? = nil, onDisk: Bool? = nil
  ) -> StreamCheck {
    var counts = StatisticsSnapshot.Stream(name: "s")
    counts.fresh = fresh
    let entry = CatalogueEntry(
      name: "s", state: state, message: message, staleSince: stale,
      fleet: fleetStale.map { .init(role: "follower", staleSince: $0) }, onDisk: onDisk)
    return StreamCheck(entry, counts, at: 100_000_000, maxAge: maxAge)
  }

  @Test func theVerdictFollowsStateStalenessAndAge() {
    #expect(check("running").verdict == .ok)
    #expect(check("running", fresh: 70_000_000, maxAge: .seconds(30)).verdict == .ok)
    #expect(check("running", fresh: 69_999_999, maxAge: .seconds(30)).verdict == .critical)
    #expect(check("running", maxAge: .seconds(30)).verdict == .critical)
    #expect(check("idle").verdict == .ok)
    #expect(check("idle", fresh: 1, maxAge: .seconds(30)).verdict == .warning)
    #expect(check("finished", fresh: 1, maxAge: .seconds(30)).verdict == .critical)
    #expect(check("running", fresh: 99_000_000, stale: 98_000_000).verdict == .critical)
    #expect(check("idle", fleetStale: 98_000_000).verdict == .critical)
    #expect(check("failing", fresh: 99_000_000, maxAge: .seconds(30)).verdict == .critical)
    #expect(check("failed").verdict == .critical)
    #expect(check("waiting").verdict == .warning)
    #expect(check("a later state").verdict == .unknown)
    #expect(check("blocked", fresh: 1, maxAge: .seconds(30)).verdict == .critical)
    // A clock that was set back, or an event of the next moment.
    #expect(check("running", fresh: 200_000_000, maxAge: .seconds(30)).age == 0)
  }

  @Test func eventsThatAreNotOnDiskAreAWarning() {
    #expect(check("running", onDisk: true).verdict == .ok)
    #expect(check("running", onDisk: false).verdict == .warning)
    #expect(check("idle", onDisk: false).verdict == .warning)
    #expect(check("finished", onDisk: false).verdict == .warning)
    #expect(check("failing", onDisk: false).verdict == .critical)
    #expect(check("running", stale: 98_000_000, onDisk: false).verdict == .critical)
    let json = check("running", message: "not on disk: it is full", onDisk: false).json
    #expect(json.contains(#""verdict":"warning""#) && json.contains(#""on_disk":false"#), "\(json)")
  }

  @Test func theLineHasTheReasonAndTheAgeForMonitoring() {
    #expect(
      check("running", fresh: 98_765_000, maxAge: .milliseconds(30_500)).text
        == "OK: s is running, fresh 1.2s ago | age=1.235s;;30.5\n")
    #expect(
      check("failing", fresh: 98_000_000, message: "a|b\u{1b}\n").text
        == "CRITICAL: s is failing, fresh 2.0s ago: a/b\\u{1B}\\n | age=2s\n")
    #expect(StreamCheck(of: "s", unknown: "no daemon").text == "UNKNOWN: no daemon\n")
  }

  @Test func theObjectHasTheSame() {
    #expect(
      check("running", fresh: 98_765_000, stale: 7, maxAge: .seconds(30)).json
        == #"{"name":"s","verdict":"critical","reason":"s is running, fresh 1.2s ago","state":"running","#
        + #""age":1.235,"max_age":30,"stale_since":7}"# + "\n")
  }

  @Test func theObjectIsPrintableAsALine() {
    let json = check("failing", message: "\u{9B}\u{202E}\u{E0001}\u{2028}é").json
    #expect(json.contains(#"\u009b\u202e\udb40\udc01\u2028é"#), "\(json)")
  }

  @Test func theOptionsAreThoseOfACheck() throws {
    #expect(
      try Arguments(["check", "s", "--max-age", "30s", "--timeout=5s", "--json"], environment: [:]).command
        == .check(name: "s", .init(maxAge: .seconds(30), timeout: .seconds(5), isJSON: true)))
    #expect(try Arguments(["check", "s"], environment: [:]).command == .check(name: "s", .init()))
    for words in [
      ["check"], ["check", "s", "--max-age", "0s"], ["check", "s", "--count", "1"], ["sub", "s", "--max-age", "1s"],
    ] {
      #expect(throws: Stop.self) { try Arguments(words, environment: [:]) }
    }
  }
}
