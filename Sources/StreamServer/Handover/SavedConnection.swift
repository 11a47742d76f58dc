import RSocket
import Reactive
import ReplayLog
import StreamProtocol

/// The saved state of one connection: its protocol machine, partial input and output, and requests.
struct SavedConnection: Equatable, Sendable {
  /// One subscription. Its stream is identified by name, because the next process has its own log.
  struct Subscription: Equatable, Sendable {
    var stream = ""
    var id = StreamID.connection
    var format = EventFormat(ids: false, completes: false)
    var onLag = LagPolicy.skip
    var cursor = Cursor(position: 0)
    var credit = Subscribers.Demand.none
    /// The gap before the cursor; `nil`: the subscription does not have the option `gaps`.
    var gap: Gap?
    var filter: EventFilter?
    /// Events that the filter has left out since the last payload.
    var leftOut: UInt64 = 0
    var markers = Markers.none
    /// The id after which it resumes, which no event has yet; 0: none.
    var awaitedID: UInt64 = 0
    /// The state that it reads: the cursor then is the id of the state's next event. `nil`: it reads the log.
    var state: State?
  }

  /// The state that a subscription reads.
  struct State: Equatable, Sendable {
    /// The state is that of the events with lower ids.
    var end: UInt64 = 0
    var origin = KeyedState.Origin()
    /// The first end of the walk; 0: the walk cannot continue as of a later end.
    var begin: UInt64 = 0
  }

  /// A pattern that is read. Its members are subscriptions with its id.
  struct Pattern: Equatable, Sendable {
    var id = StreamID.connection
    var text = ""
    /// The options of the request as JSON.
    var options: [UInt8] = []
    var credit = Subscribers.Demand.none
    var encoding: UInt8 = 0
    /// Whether members end with the events that exist when they begin.
    var isFinite = false
    /// The time from which a client resumes before the first event.
    var start: UInt64 = 0
    /// Whether it was sent a marker.
    var isMarked = false
  }

  /// The markers of a subscription.
  enum Markers: UInt8 {
    /// The subscription does not have the option.
    case none
    /// The subscription was not sent a marker yet.
    case pending
    /// The subscription was sent a marker.
    case current
  }

  /// One channel of a publisher.
  struct Channel: Equatable, Sendable {
    var id = StreamID.connection
    var stream = ""
    /// The number of values that it may still send.
    var credit = 0
    /// The numbering of a named publisher; nil: the publisher has no name.
    var named: ChannelNumbering?
    /// The received values that the stream has not stored; nil: none.
    var held: HeldValues?
  }

  /// Received values of a channel that its stream has not stored.
  struct HeldValues: Equatable, Sendable {
    /// The values that were not passed to the stream.
    var values: [[UInt8]] = []
    /// The values before these, which wait in the stream for space.
    var unsettled = UnsettledValues()
    /// Whether the publisher has sent COMPLETE.
    var isComplete = false
  }

  var descriptor: CInt = -1
  var number: UInt64 = 0
  /// The token that a client over TCP has sent.
  var token: ClientToken.Saved?
  var machine = ConnectionMachine.Saved()
  /// Nanoseconds since the last input.
  var silence: UInt64 = 0
  /// Unprocessed input.
  var input: [UInt8] = []
  /// Unsent output.
  var unsent: [UInt8] = []
  var subscriptions: [Subscription] = []
  var patterns: [Pattern] = []
  var channels: [Channel] = []
  /// The exchange of a connection that speaks HTTP.
  var http: SavedHTTP?
  /// The WebSocket that carries the RSocket connection.
  var webSocket: SavedWebSocket?

  /// Replaces an inconsistent connection: it ends with an error, and the others are restored.
  static func invalid(number: UInt64) -> SavedConnection {
    var connection = SavedConnection()
    connection.number = number
    Frame.error(.connection, .connectionClose, "the saved state of this connection is not valid")
      .encode(into: &connection.machine.output)
    return connection
  }

  /// Connections are numbered from 1.
  var hasNumber: Bool { (1...Self.numberLimit).contains(number) }

  /// Whether it is consistent.
  var isPossible: Bool {
    let readers = Set(patterns.map(\.id))
    let ids = subscriptions.map(\.id).filter { !readers.contains($0) } + patterns.map(\.id) + channels.map(\.id)
    if let http {
      let limit = http.phase == .streaming ? max(1, http.names.count) : 0
      return webSocket == nil && channels.isEmpty && Set(ids).count == ids.count
        && http.names.count <= SavedHTTP.streamLimit && (http.phase != .streaming || !http.names.isEmpty)
        && ids.allSatisfy { $0.rawValue > 0 && $0.rawValue <= limit } && subscriptions.allSatisfy(\.format.isBody)
        && http.count <= Self.numberLimit && http.unsettled.isPossible && http.count >= http.unsettled.count
    }
    return machine.isPossible && subscriptions.allSatisfy { !$0.format.isBody } && Set(ids).count == ids.count
      && Set(machine.requests.map(\.id)).isSuperset(of: ids)
      && channels.allSatisfy { $0.isPossible && $0.credit <= Self.creditLimit }
  }

  /// Maximum number of a connection.
  private static let numberLimit = UInt64.max / 2
  /// Maximum credit, as on the wire.
  private static let creditLimit = 0x7FFF_FFFF
}

extension SavedConnection.Channel {
  fileprivate var isPossible: Bool {
    let held = held ?? .init()
    guard held.unsettled.isPossible else { return false }
    return named.map { $0.isPossible && $0.next > UInt64(held.values.count + held.unsettled.count) } ?? true
  }
}

extension SavedConnection.Pattern {
  init(_ reader: PatternReader) {
    self.init(
      id: StreamID(reader.request), text: reader.pattern.text, options: reader.options.json, credit: reader.demand,
      encoding: EventFormat(reader.encoding, ids: true, completes: false).savedEncoding, isFinite: !reader.follows,
      start: reader.clock.start, isMarked: reader.marker.sentAt != nil)
  }
}

extension PatternReader {
  /// - Returns: nil for a pattern that no server reads.
  convenience init?(restoring saved: SavedConnection.Pattern, on connection: Connection) {
    guard let pattern = NamePattern(saved.text), let options = try? SubscribeOptions(json: saved.options),
      let format = EventFormat(savedEncoding: saved.encoding, ids: true, completes: false)
    else { return nil }
    self.init(
      pattern, RequestID(saved.id), saved.credit, options, as: format.encoding, follows: !saved.isFinite, on: connection
    )
    clock = PatternClock(start: saved.start)
    if saved.isMarked { marker.resume(at: connection.worker.loop.now) }
  }
}

extension UnsettledValues {
  fileprivate var isPossible: Bool {
    0...PublishWindow.mostValues ~= count && 0...Self.byteLimit ~= byteCount
  }

  /// Maximum bytes of values that wait: more than any buffer has.
  private static let byteLimit = 1 << 40
}

extension ChannelNumbering {
  fileprivate var isPossible: Bool {
    (1...PublisherEntry.maximumNameBytes).contains(name.count) && (1...PublisherEntry.numberLimit).contains(next)
  }
}

extension SavedConnection.Subscription {
  init(_ subscription: StreamSubscription) {
    self.init(
      stream: subscription.lane.stream.name, id: StreamID(subscription.request),
      format: subscription.machine.format, onLag: subscription.machine.onLag, cursor: subscription.cursor,
      credit: subscription.machine.demand,
      gap: subscription.machine.reportsGaps ? subscription.machine.gap : nil)
    let notes = subscription.machine.notes
    (filter, leftOut, awaitedID) = (subscription.extras?.verdicts?.filter, notes.leftOut, notes.awaitedID)
    state = subscription.extras?.reading.map { reading in
      let isWhole = subscription.lane.stream.log.read { storage, _ in
        storage.state.map { $0.origin == reading.origin && $0.canRenew(reading.walk) } ?? false
      }
      return .init(end: reading.walk.end, origin: reading.origin, begin: isWhole ? reading.walk.begin : 0)
    }
    markers = !subscription.machine.hasMarkers ? .none : notes.sentAt == nil ? .pending : .current
  }
}
