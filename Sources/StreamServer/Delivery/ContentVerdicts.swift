import Events
import HTTP
import ReplayLog

/// The verdicts whether events of a stream are what its type says: JSON, or text in UTF-8. A large event is examined once,
/// in slices, for all its pieces, readers and event loops.
final class ContentVerdicts: @unchecked Sendable {  // used under the lock of the stream's log
  /// Events of at least this size are remembered. To examine a smaller one takes about as long as to write it.
  static let leastByteCount = 16 << 10
  /// Bytes of a large event that are examined at a time: 0.1 ms.
  static let sliceByteCount = 64 << 10

  /// At this number of examinations under way, those of evicted events are dropped, and begin anew. A state of 64 MiB
  /// has at most this number of large events.
  private static let mostExaminations = 4096

  private enum Examination {
    case json(JSONSyntax.Examination)
    /// The number of bytes that are text.
    case text(Int)

    /// - Returns: nil before the last slice.
    mutating func advance(in data: Span<UInt8>, by count: Int) -> Bool? {
      switch self {
      case .json(var examination):
        let verdict = examination.advance(in: data, by: count)
        self = .json(examination)
        return verdict
      case .text(let offset):
        let slice = data.extracting(offset..<min(data.count, offset + count))
        let end = offset + slice.validUTF8Count
        self = .text(end)
        if end == data.count { return true }
        // A sequence may continue behind the slice.
        return end + 3 < offset + slice.count || offset + slice.count == data.count ? false : nil
      }
    }
  }

  /// What the events were examined for: the stream's type may have changed since.
  private var content = EventEncoding.Content.json
  private var verdicts: [UInt64: Bool] = [:]
  private var examinations: [UInt64: Examination] = [:]
  /// At this number of verdicts, those on evicted events are dropped.
  private var limit = ContentVerdicts.leastLimit
  private static let leastLimit = 64

  /// The number of verdicts: at most 64, or twice the number of large events in the log.
  var count: Int { verdicts.count }

  /// The remembered verdict on an event; nil: there is none.
  func known(_ id: UInt64, as content: EventEncoding.Content) -> Bool? {
    content == self.content ? verdicts[id] : nil
  }

  /// Whether an event is JSON, or text.
  ///
  /// - Parameters:
  ///   - record: id and time, 8 bytes each, then the data.
  ///   - id: the id of the event, which never has other data.
  ///   - isCopied: whether the record is a copy that is made for each call. It is then examined in at most four slices.
  /// - Returns: nil while a large event is examined: the next call examines more of it.
  func holds(
    _ content: EventEncoding.Content, for record: UnsafeRawBufferPointer, at id: UInt64, in storage: EventLog,
    isCopied: Bool = false
  ) -> Bool? {
    let data = unsafe UnsafeRawBufferPointer(rebasing: record[EventLog.stampBytes...]).bindMemory(to: UInt8.self)
    let isJSON = content == .json
    guard data.count >= Self.leastByteCount else {
      return unsafe isJSON ? JSONSyntax.holds(for: data.span) : data.span.validUTF8Count == data.count
    }
    if content != self.content { (self.content, verdicts, examinations) = (content, [:], [:]) }
    if let known = verdicts[id] { return known }
    var examination = examinations.removeValue(forKey: id) ?? (isJSON ? .json(.init()) : .text(0))
    let slice = max(Self.sliceByteCount, isCopied ? data.count / 4 + 1 : 0)
    guard let verdict = examination.advance(in: unsafe data.span, by: slice) else {
      // Readers of a state may examine several events that the log has evicted. An examination that no reader continues
      // must not stay.
      if examinations.count >= Self.mostExaminations {
        examinations = examinations.filter { $0.key >= storage.firstPosition }
      }
      examinations[id] = examination
      return nil
    }
    if verdicts.count >= limit {
      verdicts = verdicts.filter { $0.key >= storage.firstPosition }
      limit = max(Self.leastLimit, 2 * verdicts.count)
    }
    verdicts[id] = verdict
    return verdict
  }
}
