/// The request for a WebSocket, the messages to send, and the limits.
public struct WebSocketConfiguration: Sendable, Equatable {
  /// The request that opens it, with an `http` or `https` URL. `maximumBodyBytes` applies to one message.
  public var request: HTTPConfiguration
  /// Texts that are sent after each opening, in order. May be secrets: never printed.
  public var messages: [String] = []
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

  private struct Heartbeat: Equatable {
    var text: String
    var every: Duration
  }

  /// Everything except the request has a default.
  ///
  /// - Parameter request: its URL may begin with `ws:` or `wss:` as well.
  public init(_ request: HTTPConfiguration) {
    self.request = request
    // Both have the same forms, ports and origins as http and https, and are opened by a request over these.
    if request.url.lowercased().hasPrefix("ws") { self.request.url = "http" + request.url.dropFirst(2) }
  }
}
