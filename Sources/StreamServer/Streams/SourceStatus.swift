import StreamRuntime

/// The state of a stream's source, apart from whether there are subscriptions.
public enum SourceState: Equatable, Sendable {
  /// Nothing is known to be wrong.
  case healthy
  /// There is demand, but its upstream's host has no free transfer or is rate-limited: the reason.
  case waiting(String)
  /// It fails, is being retried, and this is why.
  case failing(String)
}

/// The states of what feeds a stream, from its source to its log. The server reads it when it shows the stream; what feeds
/// the stream after a change has a status of its own, so that late reports of the former feed change nothing.
public final class SourceStatus: Sendable {
  /// The parts of a feed, in the order in which events pass.
  public enum Part: Int, CaseIterable, Sendable {
    /// What fetches, runs or takes in.
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

  /// Every part is healthy: the source is subscribed to anew.
  func reset() { for part in Part.allCases { set(.healthy, of: part) } }
}
