import Events
import ReplayLog

/// Which events of a stream are JSON texts, as far as that is worth remembering: a large event is examined once, in slices,
/// however many parts, readers and event loops it has.
final class JSONVerdicts: @unchecked Sendable {  // used under the lock of the stream's log
  /// Events of at least this size are remembered. To examine a smaller one takes about as long as to write it.
  static let leastByteCount = 16 << 10
  /// Bytes of a large event that are examined at a time: 0.1 ms.
  static let sliceByteCount = 64 << 10

  /// With so many examinations under way, those of evicted events begin anew: as many large events as a state of 64 MiB has.
  private static let mostExaminations = 4096

  private var verdicts: [UInt64: Bool] = [:]
  private var examinations: [UInt64: JSONSyntax.Examination] = [:]
  /// With so many verdicts, those on evicted events are dropped.
  private var limit = JSONVerdicts.leastLimit
  private static let leastLimit = 64

  /// The number of verdicts: at most twice that of the large events in the log, and 64.
  var count: Int { verdicts.count }

  /// The remembered verdict on an event; nil: none is.
  func known(_ id: UInt64) -> Bool? { verdicts[id] }

  /// - Parameters:
  ///   - record: id and time, 8 bytes each, then the data.
  ///   - id: of the event, which never has other data.
  ///   - isCopied: the record is a copy, which each call costs: it is examined in four parts.
  /// - Returns: nil while a large event is examined: the next call examines more of it.
  func isJSON(
    _ record: UnsafeRawBufferPointer, at id: UInt64, in storage: EventLog, isCopied: Bool = false
  ) -> Bool? {
    let data = unsafe UnsafeRawBufferPointer(rebasing: record[EventLog.stampBytes...]).bindMemory(to: UInt8.self)
    guard data.count >= Self.leastByteCount else { return JSONSyntax.holds(for: unsafe data.span) }
    if let known = verdicts[id] { return known }
    var examination = examinations.removeValue(forKey: id) ?? JSONSyntax.Examination()
    let slice = max(Self.sliceByteCount, isCopied ? data.count / 4 + 1 : 0)
    guard let isJSON = examination.advance(in: unsafe data.span, by: slice) else {
      // Readers of a state may examine several events that the log has lost; of what nobody reads on nothing must stay.
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
    verdicts[id] = isJSON
    return isJSON
  }
}
