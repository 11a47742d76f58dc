import Events
import HTTP
import StreamProtocol
import ReplayLog
import StreamServer
import StreamSources

extension Configuration {
  /// `[streams.NAME]`: one source and its options.
  struct Stream: Sendable, Equatable {
    /// Letters, digits, `.`, `_`, `-` and `/`; 1 to 255 bytes.
    var name: String
    /// One line for the catalogue, at most 1024 bytes.
    var description = ""
    /// MIME type of the events, ASCII, at most 255 bytes (RSocket gives its length one byte).
    var type = "application/json"
    var source = Source.initial
    /// A jq program for each event; `nil`: events stay unchanged.
    var jq: String?
    var distinct = Distinct.no
    /// The interval in which at most one event passes, which is the newest; 1 ms to 365 days.
    var throttle: Duration?
    /// The definition of the keys of its events; `nil`: they have none.
    var key: KeyDefinition?
    /// Maximum number of keys, and bytes of their newest events with the keys.
    var maxKeys = 100_000
    var stateBytes = 64 << 20
    /// The number of events that a new subscription receives first, `0...buffer.events`, or `everything`.
    var replay = 1
    static let everything = Int.max
    var buffer = Buffer()
    var start = Start.subscribed
    /// How long the source outlives its last subscription; applies to `Start.subscribed`.
    var linger = Duration.seconds(30)
    var onLag = LagPolicy.skip
    var overflow = Overflow.drop
    /// How long in total a subscription may stall the source of a stream with `Overflow.block`; `nil`: no limit.
    var blockTimeout: Duration? = .seconds(60)
    /// The part of `blockTimeout` that each event read by the subscription restores.
    var blockPace = Duration.seconds(1)
    var validate = Validation.no
    /// The maximum time without an event and a successful fetch, beyond which the stream is stale; `nil`: no limit.
    var expectEvery: Duration?
    var retry = Backoff()
    var keep = Keep.memory
    /// Whether local clients may map the events; not with `Keep.disk` and `Overflow.block`.
    var map = false
    var share = Share.host
    /// Whether this host may fetch the stream, with `Share.fleet`. If not, the stream's secrets are not read.
    var lead = true
    /// The rules for subscriptions: a client is admitted if any rule admits it. Never empty.
    var read = [AccessRules.Rule.anyone]
    /// The rules for publishing, if clients publish: a client is admitted if any rule admits it. Never empty; `nil`: the
    /// daemon's own user and root.
    var write: [AccessRules.Rule]?

    /// The names of tokens that admit clients for subscriptions, and for publishing, in addition.
    var readers: [String] = []
    var writers: [String] = []

    /// The values of the variables that its programs use, by name.
    var variables: [String: String] = [:]
    var origin = Origin()

    /// What makes the stream. Streams are equal whatever makes them.
    struct Origin: Sendable, Equatable {
      /// The name of a template, as written; `nil`: the configuration names the stream.
      var template: String?
      /// Who has made the stream of a template, if its rules depend on that.
      var owner: StreamOwner?

      static func == (one: Self, other: Self) -> Bool { true }
    }

    /// The name of the template that makes the stream, as written; `nil`: none does.
    var template: String? {
      get { origin.template }
      set { origin.template = newValue }
    }

    /// Whether the type of its events is a JSON type.
    var hasJSONType: Bool { type == "application/json" || MediaType(type)?.isJSON == true }

    /// The definition of its keys if that is more than paths, so that the jq process computes them; `nil` otherwise.
    var programKey: KeyDefinition? { key.flatMap { EventKeyReader($0) == nil ? $0 : nil } }
  }

  /// Which events are dropped as equal to the previous one, after `jq`.
  enum Distinct: Sendable, Equatable {
    case no
    /// Events that are equal byte for byte.
    case whole
    /// Events for which this jq program has equal results.
    case by(String)
  }

  /// The limits of the stored events; whichever is reached first applies.
  struct Buffer: Sendable, Equatable {
    var events = 65536
    var bytes = 8 << 20
    /// `nil`: no limit.
    var age: Duration?
  }

  /// When a stream's source is active.
  enum Start: String, CaseIterable, Sendable {
    /// While there is a subscription, plus `linger`.
    case subscribed
    /// From the first subscription on.
    case first
    /// From the daemon's start on.
    case always
  }

  /// What happens when the buffer is full.
  enum Overflow: String, CaseIterable, Sendable {
    /// Evicts the oldest events.
    case drop
    /// Blocks the source until the slowest subscription has read them.
    case block
  }

  /// The form that events must have.
  enum Validation: String, CaseIterable, Sendable {
    /// Anything.
    case no
    /// JSON texts: other published values are refused, and other events of a source are dropped.
    case json
  }

  /// Where a stream's events are stored, and so how durable they are.
  enum Keep: String, CaseIterable, Sendable {
    /// In the daemon's memory: until the daemon ends.
    case no
    /// In memory held by the service manager: until the service is stopped.
    case memory
    /// In a file: survives everything, except the last moments before a power failure.
    case disk
  }
}

extension Configuration.Stream {
  /// The size limit of a page, or of a program's output, that is one event.
  /// - Parameter limit: the configured limit.
  func maxPageBytes(_ limit: Int?) -> Int {
    let limit = limit ?? 8 << 20
    return jq == nil ? min(limit, EventLog.Limits(buffer).maximumEventBytes) : limit
  }

  /// The source's size limit if it exceeds the buffer's, as key and size; nil with jq, which may make smaller events.
  var sizeOverBuffer: (key: String, bytes: Int)? {
    guard let limit = source.section.eventLimit, limit.bytes > buffer.bytes, jq == nil else { return nil }
    return limit
  }
}
