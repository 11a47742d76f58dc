import Events
import StreamRuntime
import Synchronization

extension ServedStream {
  /// Reads the keys of events before they enter the log, unless the source brings the keys: see
  /// `StreamConfiguration.key`. Counts events that are not JSON. It is a separate object for the same reason as
  /// `EventLimit`.
  final class Keying: Sendable {
    private let isActive: Atomic<Bool>
    private let digest: Atomic<UInt64>
    /// nil: the events bring their keys, or have none. In an object, because most streams have none.
    private let reader: Locked<Reader?>
    private let check: Atomic<StreamConfiguration.JSONCheck>
    let malformed = Atomic<UInt64>(0)

    private final class Reader {
      var reader: EventKeyReader
      init?(_ configuration: StreamConfiguration) {
        guard let key = configuration.key, let reader = EventKeyReader(key) else { return nil }
        self.reader = reader
      }
    }

    init(_ configuration: StreamConfiguration) {
      let reader = Reader(configuration)
      isActive = Atomic(reader != nil)
      check = Atomic(configuration.effectiveJSONCheck)
      digest = Atomic(configuration.limits.state?.keyDigest ?? 0)
      self.reader = Locked(reader)
    }

    func change(to configuration: StreamConfiguration) {
      let new = Reader(configuration)
      let isActive = new != nil
      reader.withLock { $0 = new }
      digest.store(configuration.limits.state?.keyDigest ?? 0, ordering: .releasing)  // set after the reader
      check.store(configuration.effectiveJSONCheck, ordering: .relaxed)
      self.isActive.store(isActive, ordering: .relaxed)
    }

    /// The definition of the keys, as in `EventKeys`.
    var definition: UInt64 { digest.load(ordering: .acquiring) }

    /// Sets the keys of the events, if the stream has keys. Keys by another definition are replaced.
    /// - Parameter isNew: whether events that are not JSON are counted; false: they were counted before.
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
          let before = reader?.reader.malformedCount
          let keys = reader?.reader.keys(of: events, definition: definition)
          count = reader.map { $0.reader.malformedCount &- (before ?? 0) }
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
    /// keys, and for a stream whose keys a jq program computes.
    func partReader() -> (reader: EventKeyReader, definition: UInt64)? {
      guard isActive.load(ordering: .relaxed) else { return nil }
      let definition = definition  // read first, so that the reader is at least as new as this definition
      return reader.withLock { $0?.reader }.map { ($0, definition) }
    }

    /// Counts a value that a `partReader()` has found not to be JSON.
    func countMalformedPart() {
      if check.load(ordering: .relaxed) != .none { malformed.add(1, ordering: .relaxed) }
    }
  }
}
