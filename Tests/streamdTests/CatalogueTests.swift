import FoundationEssentials
import StreamRuntime
import StreamSources
import Systemd
import Testing

@testable import StreamServer
@testable import streamd

/// The message catalogue's fields: `journalctl -x` prints the name of one that an entry does not have.
@Suite struct CatalogueTests {
  private static let entries: [Journal.Entry] = {
    let client = ClientIdentity(number: 1, credentials: nil)
    let server: [ServerReport] = [
      .clientRefused(client, stream: nil, reason: ""), .clientDropped(client, reason: ""),
      .clientLagged(client, stream: "s", lost: 1), .clientHoldsUp(client, stream: "s", unread: 1),
      .clientCutOff(client, stream: "s", unread: 1), .valuesDropped(client, stream: "s", count: 1),
      .acceptingPaused(SystemError("accept", code: 24)), .connectionLimitReached(client, 1),
      .hostConnectionLimitReached(client, 1, left: 1),
      .streamStale(stream: "s", limit: .seconds(1)), .streamNotStale(stream: "s", isIdle: true),
      .stateIncomplete(stream: "s", .init(since: 1, cause: .keys)), .stateComplete(stream: "s"),
      .clientActs(client, stream: nil, what: ""), .eventsTooLarge(stream: "s", count: 1, limit: 1),
      .waitingEventsLost(stream: "s", count: 1), .template("s/{x}", .full(reason: "")),
      .template("s/{x}", .made(stream: "s/a")), .template("s/{x}", .forgotten(stream: "s/a")),
    ]
    let source: [SourceReport] = [
      .failing("", attempt: 1, retryIn: .zero), .recovered(afterFailures: 1), .waiting(""),
      .recovered(afterFailures: 0),
      .limited(""), .said(""),
    ]
    let pipeline: [PipelineReport] = [.failedEvent(""), .passing]
    let derived: [DerivedSource.Report] = [.missed(.known(1), base: "b"), .current]
    var entries = FeedEntries(of: "s")
    return server.map { Journal.Entry($0) } + source.flatMap { entries.take($0, at: .zero) }
      + pipeline.flatMap { entries.take($0, at: .zero) } + derived.flatMap { entries.take($0, at: .zero) }
      + [.stateCutOff, .stateKept].map { Journal.Entry($0, .notice, "", [.stream("s")]) }
  }()

  @Test(arguments: [
    (Duration.zero, "at once"), (.milliseconds(20), "in 20 ms"), (.milliseconds(1040), "in 1 s"),
    (.seconds(300), "in 5 min"),
  ])
  func aFailureNamesTheTimeUntilTheNextTry(time: Duration, text: String) {
    var entries = FeedEntries(of: "s")
    #expect(
      entries.take(SourceReport.failing("x", attempt: 1, retryIn: time), at: .zero).map(\.message)
        == ["source failing: x; next try \(text)"])
  }

  @Test func fieldsOfTheCatalogueAreInEveryEntryOfTheirKind() throws {
    let path =
      #filePath.split(separator: "/").dropLast(3).reduce("") { "\($0)/\($1)" } + "/deploy/systemd/streamd.catalog"
    let catalogue = try String(contentsOfFile: path, encoding: .utf8)
    for text in catalogue.split(separator: "\n-- ").dropFirst() {
      let id = String(text.prefix { $0 != "\n" })
      // Between every other pair of signs.
      let fields = text.split(separator: "@", omittingEmptySubsequences: false).enumerated().filter {
        $0.offset % 2 == 1
      }
      let names = Set(fields.map { String($0.element) })
      let entries = Self.entries.filter { $0.messageID?.description == id }
      #expect(names.isEmpty || !entries.isEmpty, "\(id) has \(names)")
      for entry in entries { #expect(names.isSubset(of: entry.fields.map(\.name)), "\(id): \(entry)") }
    }
  }
}
