// `LagPolicy` is part of what a program says of a stream.
@_exported import StreamProtocol
import Reactive
import ReplayLog

/// What happens when a stream's buffer is full and a subscription has unread events.
public enum OverflowPolicy: Sendable, Equatable {
  /// The oldest events are evicted and the source continues; the `LagPolicy` of subscriptions that fall behind applies.
  case drop
  /// Nothing is dropped: the source waits for the slowest subscriber that has the stream open. The time that it keeps the
  /// source waiting adds up, less `pace` for each event that it takes meanwhile, and never below zero: at `timeout` it is
  /// cut off. `nil`: never.
  case block(timeout: Duration?, pace: Duration = .seconds(1))

  var ofLog: LogOverflow { self == .drop ? .dropOldest : .waitForSlowest }
}

/// A stream as its clients know it, and the bounds of its log.
public struct StreamConfiguration: Sendable {
  /// How clients ask for it. Names that begin with `$` are the server's own.
  public var name: String
  /// For people; shown in `$streams`.
  public var description: String
  /// MIME type of its events; shown in `$streams`.
  public var type: String
  /// What feeds it, in one word: `timer`, `http`, `publish`; shown in `$streams`.
  public var source: String
  /// Events that a newcomer gets unless it asks for something else.
  public var replay: Int
  /// The bounds of the log.
  public var limits: EventLog.Limits
  /// When the source runs.
  public var start: ShareStart
  /// A subscriber's default.
  public var onLag: LagPolicy
  /// What happens when the buffer is full.
  public var overflow: OverflowPolicy
  /// Clients that may subscribe.
  public var read: AccessRules
  /// Clients that may publish, where clients publish.
  public var write: AccessRules

  /// The defaults of the daemon's configuration file.
  public init(
    name: String, description: String = "", type: String = "application/json", source: String = "publisher",
    replay: Int = 1, limits: EventLog.Limits = .init(), start: ShareStart = .whileSubscribed(linger: .seconds(30)),
    onLag: LagPolicy = .skip, overflow: OverflowPolicy = .drop, read: AccessRules = .init(),
    write: AccessRules = .owner
  ) {
    self.name = name
    self.description = description
    self.type = type
    self.source = source
    self.replay = replay
    self.limits = limits
    self.start = start
    self.onLag = onLag
    self.overflow = overflow
    self.read = read
    self.write = write
  }
}

/// Why a stream ended for good; clients get the message with APPLICATION_ERROR.
public struct StreamFailure: Error, Equatable {
  /// One sentence.
  public let message: String

  /// - Parameter message: one sentence.
  public init(_ message: String) {
    self.message = message
  }
}
