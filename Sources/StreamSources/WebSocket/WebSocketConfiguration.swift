/// The request for a WebSocket, the messages to send, and the limits.
public struct WebSocketConfiguration: Sendable, Equatable {
  /// The request that opens it, with an `http` or `https` URL. `maximumBodyBytes` applies to one message.
  public var request: HTTPConfiguration
  /// Texts that are sent after each opening, in order. May be secrets: never printed.
  public var messages: [String] = []
  /// Whether these and the heartbeat contain no secret. Otherwise no redirect to another origin is followed.
  public var messagesArePublic = false
  /// Tokens, the preferred ones first. If there are any, the server must choose one.
  public var subprotocols: [String] = []
  /// A text of the application that is sent regularly.
  public var heartbeat: (text: String, every: Duration)? {
    get { heart.map { ($0.text, $0.every) } }
    set { heart = newValue.map { Heartbeat(text: $0.text, every: $0.every) } }
  }
  private var heart: Heartbeat?
  /// The time between two pings. After this time without demand the connection is closed.
  public var pingEvery = Duration.seconds(30)
  /// A connection that is being read fails after this time without a message; nil: no limit.
  public var idleTimeout: Duration?

  /// Whether what is sent may be a secret.
  var sendsSecrets: Bool { !messagesArePublic && !(messages.isEmpty && heart == nil) }

  private struct Heartbeat: Equatable {
    var text: String
    var every: Duration
  }

  /// Everything except the request has a default.
  ///
  /// - Parameter request: its URL may begin with `ws:` or `wss:` as well.
  public init(_ request: HTTPConfiguration) {
    self.request = request
    self.request.url = String(decoding: HTTPURL.ofHandshake(Array(request.url.utf8)), as: UTF8.self)
  }
}
