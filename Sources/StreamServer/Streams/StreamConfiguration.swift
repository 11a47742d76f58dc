// `LagPolicy` is part of a stream's configuration.
@_exported import StreamProtocol
import Events
import HTTP
import Reactive
import ReplayLog
import Synchronization

/// What happens when a stream's buffer is full and a subscription has unread events.
public enum OverflowPolicy: Sendable, Equatable {
  /// The oldest events are evicted and the source continues; the `LagPolicy` of subscriptions that fall behind applies.
  case drop
  /// Nothing is dropped: the source waits for the slowest connected subscription. The time in which a subscription
  /// stalls the source is its debt, which each event that it reads reduces by `pace`. A subscription whose debt reaches
  /// `timeout` fails; nil: none does.
  case block(timeout: Duration?, pace: Duration = .seconds(1))

}

/// The properties of a stream, and the limits of its log.
///
/// Copies share their ``Properties`` in memory until these are changed: all streams of a template have them once.
@dynamicMemberLookup public struct StreamConfiguration: Sendable {
  /// The properties that streams with different names may share.
  public struct Properties: Sendable {
    /// A text for users; shown in `$streams`.
    public var description: String
    /// MIME type of its events; shown in `$streams`.
    public var type: String
    /// The kind of its source, such as `timer`, `http` or `publish`; shown in `$streams`.
    public var source: String
    /// The number of events that a new subscription receives first, unless it sets a position.
    public var replay: Int
    /// The limits of the log.
    public var limits: EventLog.Limits
    /// When the source is active.
    public var start: ShareStart
    /// The lag policy of a subscription that sets none.
    public var onLag: LagPolicy
    /// What happens when the buffer is full.
    public var overflow: OverflowPolicy
    /// Maximum bytes of one event, if that is less than the log can store; nil: what the log can store.
    public var eventByteLimit: Int?
    /// The maximum time without an event and a successful fetch; beyond it the stream is stale. nil: no limit.
    public var expectEvery: Duration?
    /// The definition of the keys of its events; nil: they have none. If it is more than paths, the source brings the
    /// keys.
    package var key: KeyDefinition?
    /// Whether several hosts share the stream. This host may then have an event later than others.
    package var isOfFleet = false
    /// The text of the name of the template that has made the stream; nil: none has.
    package var template: String?
    /// Whether its events are the answer to a client's request: the source is asked without a subscription, and what
    /// nobody has read is kept with `OverflowPolicy.block`.
    package var isAnswer = false
    /// Whether its events are JSON objects with the names and the data of the events of its upstream.
    package var hasEnvelopes = false
    /// Whether local clients may map its events. Only for a log in memory that drops events.
    package var isMapped = false
    /// Whether published values that are not JSON texts are refused. The source must not deliver such events.
    package var requiresJSON = false
    /// Whether a program reads each value as JSON, whatever the type of its results.
    package var hasProgram = false
    /// How events that are not JSON are found and counted, where JSON is expected.
    package var jsonCheck = StreamConfiguration.JSONCheck.whole
    /// Clients that may subscribe.
    public var read: AccessRules
    /// Clients that may publish, if the stream has a publish source.
    public var write: AccessRules
  }

  /// The name in requests. Names that begin with `$` are reserved for the server.
  public var name: String
  private var shared: Shared

  private final class Shared: Sendable {
    let properties: Properties
    init(_ properties: Properties) { self.properties = properties }
  }

  /// The defaults of the daemon's configuration file.
  public init(
    name: String, description: String = "", type: String = "application/json", source: String = "publisher",
    replay: Int = 1, limits: EventLog.Limits = .init(), start: ShareStart = .whileSubscribed(linger: .seconds(30)),
    onLag: LagPolicy = .skip, overflow: OverflowPolicy = .drop, read: AccessRules = .init(),
    write: AccessRules = .owner
  ) {
    self.name = name
    shared = Shared(
      Properties(
        description: description, type: type, source: source, replay: replay, limits: limits, start: start,
        onLag: onLag, overflow: overflow, read: read, write: write))
  }

  /// The properties. All are set at once at the cost of one.
  public var properties: Properties {
    get { shared.properties }
    set { shared = Shared(newValue) }
  }

  /// A value that is computed from the properties.
  @inline(__always) subscript<Value>(dynamicMember path: KeyPath<Properties, Value>) -> Value {
    shared.properties[keyPath: path]
  }

  /// One of the properties.
  @inline(__always) public subscript<Value>(dynamicMember path: WritableKeyPath<Properties, Value>) -> Value {
    get { shared.properties[keyPath: path] }
    set { properties[keyPath: path] = newValue }
  }
}

extension StreamConfiguration {
  /// How much of an event is examined to find out whether it is JSON.
  package enum JSONCheck: UInt8, AtomicRepresentable {
    /// Nothing: the source has JSON texts only, or others are expected.
    case none
    /// The first and the last byte, a check that is cheap enough for millions of published values per second.
    case ends
    case whole
  }

  /// The largest event that a log of these limits takes, in bytes of data.
  func maximumEventBytes(in limits: EventLog.Limits) -> Int {
    min(limits.maximumEventBytes, self.eventByteLimit ?? .max)
  }
}

extension StreamConfiguration.Properties {
  /// `jsonCheck`; `none` where JSON is not expected, and where it is required.
  var effectiveJSONCheck: StreamConfiguration.JSONCheck {
    !requiresJSON && (key != nil || hasJSONType) ? jsonCheck : .none
  }

  var logOverflow: LogOverflow {
    overflow == .drop ? .dropOldest : isAnswer ? .waitForReader : .waitForSlowest
  }

  /// Whether published values are meant to be JSON.
  var takesJSON: Bool { requiresJSON || hasProgram || hasJSONType }

  var hasJSONType: Bool { type == "application/json" || MediaType(type)?.isJSON == true }
}

/// The reason of a stream's permanent end; clients receive the message with APPLICATION_ERROR.
public struct StreamFailure: Error, Equatable {
  /// One sentence.
  public let message: String
  /// What the upstream has answered in place of events; nil: nothing is known of it.
  package var refusal: Refusal?

  /// A response of an upstream that has no events.
  package struct Refusal: Equatable, Sendable {
    package let status: Int
    /// Empty: it has none.
    package let type: String
    package let body: [UInt8]

    package init(status: Int, type: String, body: [UInt8]) {
      (self.status, self.type, self.body) = (status, type, body)
    }
  }

  /// - Parameter message: one sentence.
  public init(_ message: String) {
    self.message = message
  }
}
