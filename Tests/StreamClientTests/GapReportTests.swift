import StreamClient
import Testing

@testable import streamctl

@Suite struct GapReportTests {
  private static let unknown = "the stream's log was lost, and the daemon cannot know how many"
  private static let second: UInt64 = 1_000_000_000

  /// What is said of gaps before events 1, 2, … that come half a second apart.
  private func sentences(_ gaps: EventGap...) -> [String] {
    var report = GapReport()
    var sentences: [String] = []
    for (index, gap) in gaps.enumerated() {
      let time = 7 * Self.second + UInt64(index) * Self.second / 2
      if let sentence = report.note(gap, before: UInt64(index + 1), at: time) { sentences.append(sentence) }
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

  @Test func manyGapsAreASentenceASecondAndTheirSum() {
    #expect(
      sentences(.events(1), .events(2), .events(3), .events(4)) == [
        "1 event lost before event 1", "5 events lost in 2 gaps, the last before event 3",
        "4 events lost before event 4", "in all 10 events lost in 4 gaps",
      ])
  }

  @Test func whatCannotBeKnownIsNotCounted() {
    #expect(
      sentences(.events(3), .unknown, .events(4)) == [
        "3 events lost before event 1", "at least 4 events lost in 2 gaps, the last before event 3",
        "in all at least 7 events lost in 3 gaps",
      ])
    #expect(sentences(.events(.max), .events(.max)).last == "in all \(UInt64.max) events lost in 2 gaps")
  }
}
