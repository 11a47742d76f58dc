import Events
import StreamRuntime
import Synchronization

extension ServedStream {
  /// Reads the keys of events before they enter the log, unless these bring their keys: see `StreamConfiguration.key`.
  /// Counts those that are not JSON. Separate from the stream, as the limit is.
  final class Keying: Sendable {
    private let isActive: Atomic<Bool>
    private let digest: Atomic<UInt64>
    /// nil: the events bring their keys, or have none.
    private let reader: Locked<EventKeyReader?>
    private let check: Atomic<StreamConfiguration.JSONCheck>
    let malformed = Atomic<UInt64>(0)

    init(_ configuration: StreamConfiguration) {
      let reader = configuration.key.flatMap { EventKeyReader($0) }
      isActive = Atomic(reader != nil)
      check = Atomic(configuration.effectiveJSONCheck)
      digest = Atomic(configuration.limits.state?.keyDigest ?? 0)
      self.reader = Locked(reader)
    }

    func change(to configuration: StreamConfiguration) {
      let new = configuration.key.flatMap { EventKeyReader($0) }
      reader.withLock { $0 = new }
      digest.store(configuration.limits.state?.keyDigest ?? 0, ordering: .releasing)  // after the reader
      check.store(configuration.effectiveJSONCheck, ordering: .relaxed)
      isActive.store(new != nil, ordering: .relaxed)
    }

    /// The definition of the keys, as in `EventKeys`.
    var definition: UInt64 { digest.load(ordering: .acquiring) }

    /// Gives the events their keys, if the stream has any, instead of keys by another definition.
    /// - Parameter isNew: false: the events were counted before.
    func key(_ batch: consuming EventBatch, isNew: Bool = true) -> EventBatch {
      let former = batch.keys?.definition
      let check = isNew ? check.load(ordering: .relaxed) : .none
      let isActive = isActive.load(ordering: .relaxed)
      guard !batch.isEmpty, former != nil || check != .none || isActive else { return batch }
      let definition = definition
      if former == definition, !isActive || batch.keys?.hasUnread != true { return batch }
      var count: UInt64?
      if former != nil || isActive {
        let events = batch
        let keys = reader.withLock { reader -> EventKeys? in
          let before = reader?.malformedCount
          let keys = reader?.keys(of: events, definition: definition)
          count = reader.map { $0.malformedCount &- (before ?? 0) }
          return keys
        }
        batch.setKeys(keys)
      }
      if check != .none { malformed.add(count ?? Self.malformedCount(of: batch, check), ordering: .relaxed) }
      return batch
    }

    private static func malformedCount(of batch: EventBatch, _ check: StreamConfiguration.JSONCheck) -> UInt64 {
      check == .ends
        ? batch.malformedCount { JSONSyntax.hasEnds($0) } : batch.malformedCount { JSONSyntax.holds(for: $0) }
    }

    // MARK: Values that arrive in parts

    /// A reader of the keys of values that arrive in parts, and the definition of these keys; nil for a stream without
    /// keys, and one whose keys a program makes.
    func partReader() -> (reader: EventKeyReader, definition: UInt64)? {
      guard isActive.load(ordering: .relaxed) else { return nil }
      let definition = definition  // before the reader: a reader is never of an older definition than it says
      return reader.withLock { $0 }.map { ($0, definition) }
    }

    /// Counts a value that a `partReader()` has found not to be JSON.
    func countMalformedPart() {
      if check.load(ordering: .relaxed) != .none { malformed.add(1, ordering: .relaxed) }
    }
  }
}
