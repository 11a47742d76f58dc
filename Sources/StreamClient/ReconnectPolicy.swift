/// That a remote stream outlives its connection: after a loss it is asked for again, from the last event on.
///
/// No event comes twice, and the demand of all connections together is what the subscriber asked for. What is taken for a
/// loss: ``StreamError/disconnected(_:)``, ``StreamError/canceled(_:)``, and, once there was a connection,
/// ``StreamError/cannotConnect(_:)``; a first connection that is turned away, and every other failure, end the stream. So
/// does a loss after an event without an id, from which nobody could go on. Until the first event the stream is asked for
/// as it was at first.
public struct ReconnectPolicy: Sendable {
  /// What a subscriber may want to know beside the events. On the connection's event loop, before the event it is about.
  public enum Report: Equatable, Sendable {
    /// The connection is lost: why. Once, however often it cannot be made.
    case lost(StreamError)
    /// Events arrive again; the first one follows. `missing`: its ``StreamEvent/gap``, `nil` also when no event had come
    /// before the loss. A gap is no failure with ``SubscribeOptions/LagPolicy/fail`` either: that is for a subscriber that
    /// falls behind while it is connected.
    case resumed(missing: EventGap?)
    /// Values are published again, and the stream no longer knows the publisher's name: those that were sent and not
    /// confirmed may be in it twice.
    case forgotten
  }

  /// The wait after the first loss. Half of each wait is fixed and half is drawn, so that those who lost a daemon together
  /// do not come back together.
  public let first: Duration
  /// Each attempt in vain doubles the wait up to this.
  public let longest: Duration
  let report: @Sendable (Report) -> Void

  /// - Parameter report: must not block; may cancel.
  /// - Precondition: `first` is more than nothing. A `longest` under it counts as `first`.
  public init(
    first: Duration = .milliseconds(100), longest: Duration = .seconds(10),
    report: @escaping @Sendable (Report) -> Void = { _ in }
  ) {
    precondition(first > .zero, "reconnecting after \(first) would not wait")
    self.first = first
    self.longest = max(first, longest)
    self.report = report
  }

  /// The wait after so many losses without an event between, at least 1.
  /// - Parameter fraction: 0..<1, drawn anew each time.
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

/// Where a subscription that outlives its connection stands. Knows ids and failures; never a connection or a clock.
struct Resumption {
  enum Verdict: Equatable {
    case deliver(ReconnectPolicy.Report?)
    /// It came before.
    case drop
  }

  enum Consequence: Equatable {
    case end
    case retry(after: Duration, ReconnectPolicy.Report?)
  }

  let policy: ReconnectPolicy
  /// The newest event's; `nil` before the first.
  private(set) var lastID: UInt64?
  /// The newest id before the loss: later connections have nothing to say up to it.
  private var resumedAfter: UInt64?
  private var hasBareEvents = false
  private var wasConnected = false
  /// From a loss to the next event.
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
  ///   - isTurnedAway: the server wanted no connection.
  ///   - fraction: as for ``ReconnectPolicy/delay(afterLosses:fraction:)``.
  mutating func fail(_ error: StreamError, isTurnedAway: Bool, fraction: Double) -> Consequence {
    let isLoss = error.isLoss(wasConnected: wasConnected, isTurnedAway: isTurnedAway)
    guard isLoss, !hasBareEvents else { return .end }
    wasConnected = true
    resumedAfter = lastID
    lossCount += 1
    defer { isInterrupted = true }
    return .retry(
      after: policy.delay(afterLosses: lossCount, fraction: fraction), isInterrupted ? nil : .lost(error))
  }
}
