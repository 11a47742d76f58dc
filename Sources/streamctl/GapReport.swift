import StreamClient

/// Reports the gaps of one subscription on standard error: the first at once, later ones at most once a second, and the
/// total at the end.
struct GapReport {
  /// The gaps of one sentence.
  private struct Total {
    var gapCount = 0
    var lostCount: UInt64 = 0
    var hasUnknown = false
    /// The id to resume from, for a gap of unknown size before the first event.
    var startID: UInt64?
    var lastID: UInt64?

    mutating func add(_ gap: EventGap, startID: UInt64?, before id: UInt64?) {
      gapCount += 1
      lastID = id
      switch gap {
      case .events(let count):
        let (sum, overflow) = lostCount.addingReportingOverflow(count)
        lostCount = overflow ? .max : sum
      case .unknown:
        hasUnknown = true
        self.startID = startID
      }
    }

    func sentence(isTotal: Bool) -> String {
      if gapCount == 1, let startID, let lastID {
        return "events may be lost between event \(startID) and event \(lastID): the stream's log does not have all "
          + "events in between, and the daemon cannot know how many"
      }
      let place = isTotal ? "" : lastID.map { " before event \($0)" } ?? ""
      let gaps = gapCount > 1 ? " in \(gapCount) gaps" + (place.isEmpty ? "" : ", the last") : ""
      guard lostCount > 0 else {
        return "events may be lost\(gaps)\(place): the stream's log was lost, or events of its bases, "
          + "and the daemon cannot know how many"
      }
      let count = lostCount == 1 ? "1 event" : "\(lostCount) events"
      return (hasUnknown ? "at least " : "") + "\(count) lost\(gaps)\(place)"
    }
  }

  private let startID: UInt64?
  private var unreported = Total()
  private var total = Total()
  private var sentenceCount = 0
  private var reportedAt: UInt64 = 0

  /// Minimum nanoseconds between two sentences.
  private static let interval: UInt64 = 1_000_000_000

  /// - Parameter startID: the id after which the subscription begins, if known.
  init(from startID: UInt64? = nil) {
    self.startID = startID
  }

  /// Records a gap before an event.
  /// - Parameters:
  ///   - previous: the id of the previous event; `nil` for the first.
  ///   - time: monotonic, in nanoseconds.
  /// - Returns: a sentence, if one is due.
  mutating func add(_ gap: EventGap, after previous: UInt64?, before id: UInt64?, at time: UInt64) -> String? {
    let startID = previous == nil ? startID : nil
    unreported.add(gap, startID: startID, before: id)
    total.add(gap, startID: startID, before: id)
    guard sentenceCount == 0 || time - reportedAt >= Self.interval else { return nil }
    reportedAt = time
    return say()
  }

  /// - Returns: the remaining sentences.
  mutating func end() -> [String] {
    let rest = unreported.gapCount > 0 ? [say()] : []
    return sentenceCount > 1 ? rest + ["in all \(total.sentence(isTotal: true))"] : rest
  }

  /// Whether there was any gap.
  var isEmpty: Bool { total.gapCount == 0 }

  private mutating func say() -> String {
    defer { unreported = Total() }
    sentenceCount += 1
    return unreported.sentence(isTotal: false)
  }
}
