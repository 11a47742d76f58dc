import StreamSources
import Testing

@testable import streamd

private let aMatch = #".match: expected a match such as "_SYSTEMD_UNIT=nginx.service" or "PRIORITY=0..4", got "#
private let aPriority =
  #".match: expected PRIORITY= with a number from 0 to 7, or a range such as "PRIORITY=0..4", got "#
private let aTime = #".since: expected a time such as "-1h" or 2026-01-02T03:04:05Z"#

/// `journal`.
struct ConfigurationJournalTests {
  @Test func itHasMatchesABeginningAndAPlace() throws {
    let configuration = try parse(
      """
      [streams.all]
      journal = {}
      [streams.nginx.journal]
      match = ["_SYSTEMD_UNIT=nginx.service", "PRIORITY=2..4", "PRIORITY=6", "MESSAGE=a..b=c"]
      since = "-1h"
      directory = "/var/log/journal/remote"
      max_body = "64KiB"
      [streams.later.journal]
      since = 2026-01-02T03:04:05+01:00
      [streams.text.journal]
      since = "2026-01-02T03:04:05.5Z"
      """)
    var nginx = Configuration.JournalEntries()
    nginx.matches = [
      "_SYSTEMD_UNIT=nginx.service", "PRIORITY=2", "PRIORITY=3", "PRIORITY=4", "PRIORITY=6", "MESSAGE=a..b=c",
    ]
    (nginx.since, nginx.directory, nginx.maxBodyBytes) = (.before(.seconds(3600)), "/var/log/journal/remote", 64 << 10)
    var (later, text) = (Configuration.JournalEntries(), Configuration.JournalEntries())
    later.since = .at(1_767_319_445_000_000)
    text.since = .at(1_767_323_045_500_000)
    #expect(
      configuration.streams.map(\.source) == [.journal(.init()), .journal(nginx), .journal(later), .journal(text)])
    #expect(configuration.streams.map(\.source.kind) == Array(repeating: "journal", count: 4))
    #expect(
      configuration.streams.allSatisfy { $0.source.section.hasUpstream && $0.source.section.fleetKind == .continuous })
    #expect(configuration.streams[1].source.section.eventLimit?.key == "journal.max_body")
    // A batch is stored as a whole, with the position.
    var stream = configuration.streams[1]
    stream.buffer = .init(events: 100, bytes: 4096)
    let small = JournalConfiguration(nginx, of: stream)
    #expect(small.batchEvents == 25 && small.batchBytes == 1024 && small.maximumEventBytes < 4096)
    stream.jq = "."
    #expect(JournalConfiguration(nginx, of: stream).batchEvents == 1)
    let change = ConfigurationDifference.Change(former: configuration.streams[1], stream: stream)
    #expect(change.hasOtherFeed)
  }

  @Test(arguments: [
    (#"match = "A=b""#, #".match: expected a list of one or more, got a string"#),
    (#"match = []"#, #".match: expected a list of one or more, got an empty array"#),
    (#"match = ["nginx"]"#, aMatch + #""nginx""#),
    (#"match = ["message=x"]"#, aMatch + "a string"),
    (#"match = ["__CURSOR=x"]"#, aMatch + "a string"),
    (#"match = ["=x"]"#, aMatch + "a string"),
    (#"match = [5]"#, aMatch + #"5"#),
    (#"match = ["PRIORITY=8"]"#, aPriority + "a string"),
    (#"match = ["PRIORITY=4..1"]"#, aPriority + "a string"),
    (#"match = ["PRIORITY=err"]"#, aPriority + "a string"),
    (#"match = ["PRIORITY=0..1..2"]"#, aPriority + "a string"),
    (#"since = "1h""#, aTime + #", which has the offset to UTC, got "1h""#),
    (#"since = "-1x""#, aTime + #"; a duration such as "-1h", got "-1x""#),
    (#"since = 2026-01-02"#, aTime + #", which has the offset to UTC, got a date or time"#),
    (#"since = 2026-01-02T03:04:05"#, aTime + #", which has the offset to UTC, got a date or time"#),
    (#"since = 5"#, aTime + #", got 5"#),
    (#"directory = "journal""#, #".directory: expected an absolute path of at most 1024 bytes, got "journal""#),
    (#"max_body = "2GiB""#, #".max_body: expected a size from 1B to 1GiB, got "2GiB""#),
    (#"unit = "nginx""#, #".unit: unknown key; expected one of: directory, match, max_body, since"#),
  ])
  func mistakesAreNamed(key: String, sentence: String) {
    #expect(errors("[streams.s.journal]\n\(key)") == ["test.toml:2: streams.s.journal\(sentence)"])
  }

  @Test func aListIsBounded() {
    let matches = (0..<100).map { _ in #""PRIORITY=0..2""# }.joined(separator: ", ")
    #expect(
      errors("[streams.s.journal]\nmatch = [\(matches)]") == [
        "test.toml:2: streams.s.journal.match: expected at most 256 matches"
      ])
  }
}
