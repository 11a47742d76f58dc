import StreamClient
import Testing

@testable import streamctl

@Suite struct GapReportTests {
  private static let unknown = "the stream's log was lost, or events of its bases, and the daemon cannot know how many"
  private static let second: UInt64 = 1_000_000_000

  /// The messages for gaps before events 1, 2, … that arrive half a second apart.
  private func sentences(_ gaps: EventGap...) -> [String] {
    var report = GapReport()
    var sentences: [String] = []
    for (index, gap) in gaps.enumerated() {
      let time = 7 * Self.second + UInt64(index) * Self.second / 2
      let id = UInt64(index + 1)
      if let sentence = report.add(gap, after: id - 1, before: id, at: time) { sentences.append(sentence) }
    }
    #expect(report.isEmpty == gaps.isEmpty)
    return sentences + report.end()
  }

  @Test func oneGapIsOneSentence() {
    #expect(sentences() == [])
    #expect(sentences(.events(1)) == ["1 event lost before event 1"])
    #expect(sentences(.events(1_900_000)) == ["1900000 events lost before event 1"])
    #expect(sentences(.unknown) == ["events may be lost before event 1: \(Self.unknown)"])
  }

  /// Whether a log that the client never read lost events is unknown.
  @Test func aGapBeforeTheFirstEventBeginsAtTheRequestedEvent() {
    var report = GapReport(from: 5)
    let range = "the stream's log does not have all events in between, and the daemon cannot know how many"
    #expect(
      report.add(.unknown, after: nil, before: 9, at: 0) == "events may be lost between event 5 and event 9: \(range)")
    #expect(report.add(.events(3), after: nil, before: 9, at: Self.second) == "3 events lost before event 9")
    let later = report.add(.unknown, after: 9, before: 20, at: 3 * Self.second)
    #expect(later == "events may be lost before event 20: \(Self.unknown)")
  }

  @Test func manyGapsAreOneSentenceASecondAndATotal() {
    #expect(
      sentences(.events(1), .events(2), .events(3), .events(4)) == [
        "1 event lost before event 1", "5 events lost in 2 gaps, the last before event 3",
        "4 events lost before event 4", "in all 10 events lost in 4 gaps",
      ])
  }

  @Test func anUnknownNumberOfEventsIsNotCounted() {
    #expect(
      sentences(.events(3), .unknown, .events(4)) == [
        "3 events lost before event 1", "at least 4 events lost in 2 gaps, the last before event 3",
        "in all at least 7 events lost in 3 gaps",
      ])
    #expect(sentences(.events(.max), .events(.max)).last == "in all \(UInt64.max) events lost in 2 gaps")
  }
}
