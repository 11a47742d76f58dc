/// Makes a remote stream outlive its connection: after a loss it subscribes again and resumes after the last event.
///
/// No event is delivered twice, and the demand of all connections together equals the subscriber's demand. The
/// following failures count as a loss: ``StreamError/disconnected(_:)``, ``StreamError/canceled(_:)``, and, after a
/// first successful connection, ``StreamError/cannotConnect(_:)``. A first connection that is refused, and every other
/// failure, end the stream. A loss after an event without an id also ends it, because there is no position to resume
/// from. Before the first event, a new subscription repeats the original request.
public struct ReconnectPolicy: Sendable {
  /// A report besides the events. Delivered on the connection's event loop, before the event that it concerns.
  public enum Report: Equatable, Sendable {
    /// The connection was lost, for this reason. Reported once per loss, independent of the number of failed attempts
    /// to reconnect.
    case lost(StreamError)
    /// Events arrive again; the first one follows. `missing`: its ``StreamEvent/gap``, also `nil` if no event had
    /// arrived before the loss. With ``SubscribeOptions/LagPolicy/fail``, too, a gap is not a failure: that policy
    /// concerns a subscriber that falls behind while it is connected.
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

  /// - Parameter report: must not block; may cancel.
  /// - Precondition: `first` is positive. A `longest` below it counts as `first`.
  public init(
    first: Duration = .milliseconds(100), longest: Duration = .seconds(10),
    report: @escaping @Sendable (Report) -> Void = { _ in }
  ) {
    precondition(first > .zero, "reconnecting after \(first) would not wait")
    self.first = first
    self.longest = max(first, longest)
    self.report = report
  }

  /// Returns the delay after this number of losses without an event between them, at least 1.
  /// - Parameter fraction: 0..<1, a new random number for each call.
  func delay(afterLosses count: Int, fraction: Double) -> Duration {
    var delay = first
    var left = count - 1
    while left > 0, delay < longest {
      delay = delay * 2
      left -= 1
    }
    return min(delay, longest) * (0.5 + fraction / 2)
  }
}

/// The state of a subscription that outlives its connection. Handles ids and failures, but holds no connection and no
/// clock.
struct Resumption {
  enum Verdict: Equatable {
    case deliver(ReconnectPolicy.Report?)
    /// The event was delivered before.
    case drop
  }

  enum Consequence: Equatable {
    case end
    case retry(after: Duration, ReconnectPolicy.Report?)
  }

  let policy: ReconnectPolicy
  /// The id of the newest event; `nil` before the first.
  private(set) var lastID: UInt64?
  /// The newest id before the loss: later connections skip events up to it.
  private var resumedAfter: UInt64?
  private var hasBareEvents = false
  private var wasConnected = false
  /// Whether no event has arrived since a loss.
  private var isInterrupted = false
  private var lossCount = 0

  init(policy: ReconnectPolicy) { self.policy = policy }

  mutating func receive(_ event: StreamEvent) -> Verdict {
    if let id = event.id, let resumedAfter, id <= resumedAfter { return .drop }
    if let id = event.id {
      lastID = id
    } else {
      hasBareEvents = true
    }
    defer { isInterrupted = false }
    wasConnected = true
    lossCount = 0
    return .deliver(isInterrupted ? .resumed(missing: event.gap) : nil)
  }

  /// - Parameters:
  ///   - isRefused: whether the server refused the connection.
  ///   - fraction: as for ``ReconnectPolicy/delay(afterLosses:fraction:)``.
  mutating func fail(_ error: StreamError, isRefused: Bool, fraction: Double) -> Consequence {
    let isLoss = error.isLoss(wasConnected: wasConnected, isRefused: isRefused)
    guard isLoss, !hasBareEvents else { return .end }
    wasConnected = true
    resumedAfter = lastID
    lossCount += 1
    defer { isInterrupted = true }
    return .retry(
      after: policy.delay(afterLosses: lossCount, fraction: fraction), isInterrupted ? nil : .lost(error))
  }
}
