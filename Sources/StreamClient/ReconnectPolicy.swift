import StreamRuntime

/// Makes a remote stream outlive its connection: after a loss it subscribes again and resumes after the last event.
///
/// No event is delivered twice, and the demand of all connections together equals the subscriber's demand. The
/// following failures count as a loss: ``StreamError/disconnected(_:_:)``; ``StreamError/canceled(_:_:)``, unless its
/// reason says that the request would fail again; ``StreamError/cutOff(_:_:)`` because of another request; and, after a
/// first successful connection, ``StreamError/cannotConnect(_:)``. A first connection that is refused, and every other
/// failure, end the stream. A loss after an event without an id also ends it, because there is no position to resume
/// from. Before the first event, a new subscription repeats the original request. A loss within a state, before the
/// first marker, ends a stream that begins with ``SubscribeOptions/Start/state``: keys may have been removed since then.
/// ``RemoteState`` takes the state again.
///
/// A marker is a position to resume from, like an event. A subscription with ids that is filtered or begins with the
/// state receives markers also without ``SubscribeOptions/marker``, and does not deliver them. Therefore events that
/// were left out before a loss are neither examined again nor reported as missing, except those of the last 10 s, or
/// those since the subscriber's demand was met.
///
/// A subscription to a pattern resumes at the newest ``StreamEvent/position``, and leaves out what it has had of each stream.
public struct ReconnectPolicy: Sendable {
  /// A report besides the events. Delivered on the connection's event loop, before the event that it concerns.
  public enum Report: Equatable, Sendable {
    /// The connection was lost, for this reason. Reported once per loss, independent of the number of failed attempts
    /// to reconnect.
    case lost(StreamError)
    /// Events or markers arrive again; the first one follows. `missing`: its ``StreamEvent/gap``, also `nil` if no
    /// event had arrived before the loss. A gap is not a failure, even with ``LagPolicy/fail``: that policy is for a
    /// subscriber that falls behind while it is connected.
    case resumed(missing: EventGap?)
    /// Values are published again, but the stream no longer has the publisher's name: values that were sent and not
    /// confirmed may be in it twice.
    case forgotten
  }

  /// The delay after the first loss. Half of each delay is fixed and half is random, so that the clients of one daemon
  /// do not all reconnect at the same time.
  public let first: Duration
  /// The maximum delay. Each failed attempt doubles the delay up to this.
  public let longest: Duration
  let report: @Sendable (Report) -> Void
  private var isFinal: @Sendable (StreamError) -> Bool = { _ in false }

  /// - Parameters:
  ///   - first: the delay after the first loss.
  ///   - longest: the maximum delay.
  ///   - report: must not block; may cancel.
  /// - Precondition: `first` is positive. A `longest` below it counts as `first`.
  public init(
    first: Duration = .milliseconds(100), longest: Duration = .seconds(10),
    report: @escaping @Sendable (Report) -> Void = { _ in }
  ) {
    precondition(first > .zero, "the first delay must be greater than zero, it is \(first)")
    self.first = first
    self.longest = max(first, longest)
    self.report = report
  }

  /// Returns a policy without another attempt after a failure for which `isFinal` returns true.
  package func ending(if isFinal: @escaping @Sendable (StreamError) -> Bool) -> ReconnectPolicy {
    var policy = self
    policy.isFinal = isFinal
    return policy
  }

  /// Whether a new connection may resolve the failure.
  /// - Parameter isRefused: whether the server refused the connection.
  func retries(after error: StreamError, wasConnected: Bool, isRefused: Bool) -> Bool {
    error.isLoss(wasConnected: wasConnected, isRefused: isRefused) && !isFinal(error)
  }

  /// Returns the delay after this number of losses without an event between them, at least 1.
  /// - Parameter fraction: 0..<1, a new random number for each call.
  func delay(afterLosses count: Int, fraction: Double) -> Duration {
    .backoff(afterFailures: count, first: first, longest: longest, fraction: fraction)
  }
}

/// The state of a subscription that outlives its connection. Handles ids and failures, but holds no connection and no
/// clock.
struct Resumption {
  enum Verdict: Equatable {
    case deliver(ReconnectPolicy.Report?)
    /// The event was delivered before, or is a marker that was not requested.
    case drop
  }

  enum Consequence: Equatable {
    case end
    case retry(after: Duration, ReconnectPolicy.Report?)
  }

  let policy: ReconnectPolicy
  /// Whether markers are requested only for this state, and not delivered.
  private let hidesMarkers: Bool
  /// The events that were left out before hidden markers since the last delivered event.
  private var hiddenLeftOutCount: UInt64 = 0
  /// The gap before these hidden markers.
  private var hiddenGap: EventGap?
  /// The id of the newest event or marker; `nil` before the first.
  private(set) var lastID: UInt64?
  /// The newest id of each stream of a pattern.
  private var lastIDs: [String: UInt64] = [:]
  private var patternPosition: UInt64?
  private var isPattern = false
  /// Where another subscription resumes; `nil`: as the first one began.
  var position: UInt64? { isPattern ? patternPosition : lastID }
  /// The newest id before the loss: later connections skip events up to it.
  private var resumedAfter: UInt64?
  private var hasBareEvents = false
  /// Whether the events may belong to a state: their ids are then not positions.
  private var isInState: Bool
  private var wasConnected: Bool
  /// Whether no event has arrived since a loss.
  private var isInterrupted: Bool
  private var lossCount = 0

  init(
    policy: ReconnectPolicy, hidesMarkers: Bool = false, beginsWithState: Bool = false, wasConnected: Bool = false,
    isInterrupted: Bool = false
  ) {
    (self.policy, self.hidesMarkers, isInState) = (policy, hidesMarkers, beginsWithState)
    (self.wasConnected, self.isInterrupted) = (wasConnected, isInterrupted)
  }

  /// - Parameter event: receives the gap and the left out count of the hidden markers before it.
  mutating func receive(_ event: inout StreamEvent) -> Verdict {
    if let name = event.stream, let id = event.id {
      isPattern = true
      patternPosition = event.position ?? patternPosition
      if event.kind == .event, let last = lastIDs.updateValue(id, forKey: name), last >= id {
        lastIDs[name] = last
        return .drop
      }
    }
    // A marker repeats the id of the event before it.
    if !isPattern, let id = event.id, let resumedAfter, id < resumedAfter || id == resumedAfter && event.kind == .event
    {
      return .drop
    }
    if let id = event.id {
      lastID = id
    } else {
      hasBareEvents = true
    }
    wasConnected = true
    lossCount = 0
    if event.kind == .marker { isInState = false }
    if hiddenGap != nil || hiddenLeftOutCount > 0 {
      event = event.after(hiddenGap, leftOutCount: hiddenLeftOutCount)
    }
    guard event.kind == .event || !hidesMarkers else {
      (hiddenGap, hiddenLeftOutCount) = (event.gap, event.leftOutCount)
      return .drop
    }
    (hiddenGap, hiddenLeftOutCount) = (nil, 0)
    defer { isInterrupted = false }
    return .deliver(isInterrupted ? .resumed(missing: event.gap) : nil)
  }

  /// - Parameters:
  ///   - isRefused: whether the server refused the connection.
  ///   - fraction: as for ``ReconnectPolicy/delay(afterLosses:fraction:)``.
  mutating func fail(_ error: StreamError, isRefused: Bool, fraction: Double) -> Consequence {
    let isLoss = policy.retries(after: error, wasConnected: wasConnected, isRefused: isRefused)
    guard isLoss, !hasBareEvents, !isInState || lastID == nil else { return .end }
    wasConnected = true
    resumedAfter = lastID
    lossCount += 1
    defer { isInterrupted = true }
    return .retry(
      after: policy.delay(afterLosses: lossCount, fraction: fraction), isInterrupted ? nil : .lost(error))
  }
}

extension StreamEvent {
  /// The event with the gap and the left out count of the marker directly before it.
  fileprivate func after(_ gap: EventGap?, leftOutCount count: UInt64) -> StreamEvent {
    let sum: EventGap? =
      switch (gap, self.gap) {
      case (nil, let only), (let only, nil): only
      case (.events(let one), .events(let other)): .events(one.addingSaturated(other))
      case (.unknown, _), (_, .unknown): .unknown
      }
    return with(sum, leftOutCount: leftOutCount.addingSaturated(count))
  }
}

extension UInt64 {
  fileprivate func addingSaturated(_ other: UInt64) -> UInt64 {
    let (sum, overflow) = addingReportingOverflow(other)
    return overflow ? .max : sum
  }
}
