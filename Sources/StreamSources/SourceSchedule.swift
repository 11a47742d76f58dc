/// When a source may send its next request. Times are `EventLoop.monotonicTime`.
public struct SourceSchedule: Equatable, Sendable {
  /// The next slot of a poll; nil: unknown.
  public var slot: Duration?
  /// The server has asked for no request before this time (Retry-After); nil: it has not asked.
  public var rest: Duration?

  /// A schedule of these times.
  public init(slot: Duration? = nil, rest: Duration? = nil) { (self.slot, self.rest) = (slot, rest) }
}

/// Passes a source's schedule on to another process that continues the source.
public struct SourceHandover: Sendable {
  /// The schedule that another process had. Called on the source thread, at a subscription's first demand.
  let former: @Sendable () -> SourceSchedule
  /// Called on the source thread with each new schedule, before the events of the response.
  let changed: @Sendable (SourceSchedule) -> Void

  /// Both closures are called on the source thread.
  public init(
    former: @escaping @Sendable () -> SourceSchedule, changed: @escaping @Sendable (SourceSchedule) -> Void
  ) {
    (self.former, self.changed) = (former, changed)
  }
}
