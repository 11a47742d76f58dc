import StreamRuntime

/// The state of a stream's source, apart from whether there are subscriptions.
public enum SourceState: Equatable, Sendable {
  /// There is no known problem.
  case healthy
  /// There is demand, but its upstream's host has no free transfer or is rate-limited: the reason.
  case waiting(String)
  /// It fails and is retried: the reason.
  case failing(String)
}

/// The states of a stream's feed, from its source to its log. The server reads it for `$streams`. The feed
/// after a change has its own status, so that late reports of the former feed have no effect.
public final class SourceStatus: Sendable {
  /// The parts of a feed, in the order in which events pass.
  public enum Part: Int, CaseIterable, Sendable {
    /// The poll, stream, program, timer or publish source.
    case source
    /// The pipeline's process.
    case pipeline
    /// The newest event, which the pipeline may have failed on.
    case lastEvent
  }

  private let states = Locked([SourceState](repeating: .healthy, count: Part.allCases.count))

  /// Every part is healthy.
  public init() {}

  /// The first state on an event's path that is not healthy.
  public var state: SourceState { states.withLock { $0.first { $0 != .healthy } ?? .healthy } }

  /// Sets the state of one part. Thread-safe.
  public func set(_ state: SourceState, of part: Part = .source) { states.withLock { $0[part.rawValue] = state } }

  /// Every part is healthy: the source is resubscribed to.
  func reset() { for part in Part.allCases { set(.healthy, of: part) } }
}
