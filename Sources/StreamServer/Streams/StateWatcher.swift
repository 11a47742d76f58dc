import Reactive
import ReplayLog
import Synchronization

/// The state of a stream's keys, as others see it.
public struct KeyedStateStatus: Equatable, Sendable {
  /// The number of keys.
  public let keys: Int
  /// Bytes of their newest events, as `KeyedState.Settings.bytes` counts them.
  public let bytes: Int
  /// Why the state is not served; nil: it is complete.
  public let incompleteness: KeyedState.Incompleteness?
}

extension KeyedState.Incompleteness {
  /// The sentence for clients and operators.
  public var sentence: String {
    let reason =
      switch cause {
      case .keys: "there are more keys than max_keys"
      case .bytes: "the events of its keys exceed state_bytes"
      case .damage: "events were lost"
      }
    return "the state is incomplete since event \(since): \(reason)"
  }
}

/// Reports once when the state of a stream becomes incomplete, and once when it is complete again.
final class StateWatcher: LogReader {
  private weak let stream: ServedStream?
  private let report: @Sendable (ServerReport) -> Void
  private let isIncomplete = Atomic(false)

  init(_ stream: ServedStream, _ report: @escaping @Sendable (ServerReport) -> Void) {
    (self.stream, self.report) = (stream, report)
  }

  func logDidChange() {
    guard let stream else { return }
    let (state, lack) = stream.log.read { storage, _ in (storage.state != nil, storage.state?.incompleteness) }
    guard isIncomplete.exchange(lack != nil, ordering: .relaxed) != (lack != nil) else { return }
    if let lack {
      report(.stateIncomplete(stream: stream.name, lack))
    } else if state {
      report(.stateComplete(stream: stream.name))
    }
  }
}
