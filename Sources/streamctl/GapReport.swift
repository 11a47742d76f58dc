import StreamClient

/// The gaps of one subscription in sentences for standard error: the first at once, later ones at most once a second, and
/// all of them together at the end.
struct GapReport {
  /// Gaps that one sentence is about.
  private struct Tally {
    var gapCount = 0
    var lostCount: UInt64 = 0
    var hasUnknown = false
    var lastID: UInt64?

    mutating func add(_ gap: EventGap, before id: UInt64?) {
      gapCount += 1
      lastID = id
      switch gap {
      case .events(let count):
        let (sum, overflow) = lostCount.addingReportingOverflow(count)
        lostCount = overflow ? .max : sum
      case .unknown: hasUnknown = true
      }
    }

    func sentence(isTotal: Bool) -> String {
      let place = isTotal ? "" : lastID.map { " before event \($0)" } ?? ""
      let gaps = gapCount > 1 ? " in \(gapCount) gaps" + (place.isEmpty ? "" : ", the last") : ""
      guard lostCount > 0 else {
        return "events may be lost\(gaps)\(place): the stream's log was lost, and the daemon cannot know how many"
      }
      let count = lostCount == 1 ? "1 event" : "\(lostCount) events"
      return (hasUnknown ? "at least " : "") + "\(count) lost\(gaps)\(place)"
    }
  }

  private var unsaid = Tally()
  private var total = Tally()
  private var sentenceCount = 0
  private var saidAt: UInt64 = 0

  /// Nanoseconds between two sentences.
  private static let interval: UInt64 = 1_000_000_000

  /// Takes note of what is missing before an event.
  /// - Parameter time: monotonic, in nanoseconds.
  /// - Returns: a sentence, when it is time for one.
  mutating func note(_ gap: EventGap, before id: UInt64?, at time: UInt64) -> String? {
    unsaid.add(gap, before: id)
    total.add(gap, before: id)
    guard sentenceCount == 0 || time - saidAt >= Self.interval else { return nil }
    saidAt = time
    return say()
  }

  /// - Returns: the sentences that are left.
  mutating func end() -> [String] {
    let rest = unsaid.gapCount > 0 ? [say()] : []
    return sentenceCount > 1 ? rest + ["in all \(total.sentence(isTotal: true))"] : rest
  }

  /// Whether there was any gap.
  var isEmpty: Bool { total.gapCount == 0 }

  private mutating func say() -> String {
    defer { unsaid = Tally() }
    sentenceCount += 1
    return unsaid.sentence(isTotal: false)
  }
}
