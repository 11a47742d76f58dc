import RSocket
import Reactive
import StreamProtocol

/// One connection on its way from one process to the next: the terms, what is under way, and where each request stands.
struct SavedConnection: Equatable, Sendable {
  /// One subscription. Its stream is identified by name: the next process has a log of its own for it.
  struct Subscription: Equatable, Sendable {
    var stream = ""
    var id = StreamID.connection
    var frames = EventFormat(ids: false, completes: false)
    var onLag = LagPolicy.skip
    var cursor = Cursor(position: 0)
    var credit = Subscribers.Demand.none
    /// `nil`: it does not ask for gaps.
    var gap: Gap?
  }

  /// One channel on which a client publishes; the stream has everything that came on it.
  struct Channel: Equatable, Sendable {
    var id = StreamID.connection
    var stream = ""
    /// Values that it may still send.
    var credit = 0
    /// Of a named publisher.
    var named: InboundNumbering?
  }

  var descriptor: CInt = -1
  var number: UInt64 = 0
  var machine = ConnectionMachine.Saved()
  /// Nanoseconds since the client was heard of.
  var silence: UInt64 = 0
  /// What was read and not handled.
  var input: [UInt8] = []
  /// The rest of what the socket took only in part.
  var unsent: [UInt8] = []
  var subscriptions: [Subscription] = []
  var channels: [Channel] = []
  /// Of a connection that speaks HTTP.
  var http: SavedHTTP?
  /// Of an RSocket connection in a WebSocket.
  var webSocket: SavedWebSocket?

  /// Takes the place of one that no server can have saved: that connection ends with an error, and the others are restored.
  static func invalid(number: UInt64) -> SavedConnection {
    var connection = SavedConnection()
    connection.number = number
    Frame.error(.connection, .connectionClose, "the saved state of this connection is not valid")
      .encode(into: &connection.machine.output)
    return connection
  }

  /// Connections are counted from 1 on.
  var hasNumber: Bool { (1...Self.numberLimit).contains(number) }

  /// Whether a server can have saved it.
  var isPossible: Bool {
    let ids = subscriptions.map(\.id) + channels.map(\.id)
    if let http {
      return webSocket == nil && channels.isEmpty && Set(ids).count == ids.count && http.names.count <= 64
        && ids.allSatisfy { (1...http.names.count).contains(Int($0.rawValue)) }
        && subscriptions.allSatisfy(\.frames.isBody)
    }
    return machine.isPossible && subscriptions.allSatisfy { !$0.frames.isBody } && Set(ids).count == ids.count
      && Set(machine.requests.map(\.id)).isSuperset(of: ids)
      && channels.allSatisfy { $0.credit <= Self.creditLimit && $0.named?.isPossible ?? true }
  }

  /// A greater number is none.
  private static let numberLimit = UInt64.max / 2
  /// As on the wire: more is granted to no publisher.
  private static let creditLimit = 0x7FFF_FFFF
}

extension InboundNumbering {
  /// The first number of a request is at most 2^62; its values count on from there.
  private static let numberLimit = UInt64.max / 2

  fileprivate var isPossible: Bool {
    (1...PublisherEntry.maximumNameBytes).contains(name.count) && (1...Self.numberLimit).contains(next)
  }
}

extension SavedConnection.Subscription {
  init(_ subscription: StreamSubscription) {
    self.init(
      stream: subscription.lane.stream.name, id: StreamID(subscription.request),
      frames: subscription.machine.format, onLag: subscription.machine.onLag, cursor: subscription.cursor,
      credit: subscription.machine.demand,
      gap: subscription.reportsGaps ? subscription.gap : nil)
  }
}
