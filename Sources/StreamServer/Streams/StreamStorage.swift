/// Where the events of a stream are, and where they are meant to be.
public enum StreamStorage: Equatable, Sendable {
  /// In memory, as configured.
  case memory
  /// On disk, as configured.
  case disk
  /// In memory or in a file without a name, though they are meant to be on disk.
  case notOnDisk(reason: String)

  /// Whether the events are on disk; nil: they are not meant to be.
  var isOnDisk: Bool? {
    switch self {
    case .memory: nil
    case .disk: true
    case .notOnDisk: false
    }
  }

  /// The sentence for the message of the stream's state; nil: the events are where they are meant to be.
  var fault: String? {
    guard case .notOnDisk(let reason) = self else { return nil }
    return "not on disk: \(reason)"
  }
}
