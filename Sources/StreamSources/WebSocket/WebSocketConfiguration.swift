/// A text that is sent after the opening of a WebSocket.
public struct WebSocketMessage: Sendable, Equatable, ExpressibleByStringLiteral {
  /// May be a secret: never printed.
  public var text: String
  /// A jq program without error. The text, and those after it, are sent once a message has come for which an output of the
  /// program is true; if none comes within the request's timeout, the connection has failed. nil: it waits for nothing.
  public var after: String?

  /// By default waits for nothing.
  public init(_ text: String, after: String? = nil) { (self.text, self.after) = (text, after) }

  /// Waits for nothing.
  public init(stringLiteral text: String) { self.init(text) }
}

/// An answer to messages of an upstream.
public struct WebSocketAnswer: Sendable, Equatable {
  /// A jq program without error: an output is true for messages that are answered.
  public var to: String
  /// A jq program without error. Its first output is sent: a string as it is, another value as JSON. Without an output
  /// nothing is sent.
  public var with: String

  /// An answer to messages for which `to` is true.
  public init(to: String, with: String) { (self.to, self.with) = (to, with) }
}

/// How an upstream encodes its binary messages, besides the protocol's own compression.
public enum WebSocketCoding: String, Sendable, CaseIterable {
  /// Messages are what they are.
  case none
  /// Each binary message that begins as gzip does is decoded; others are what they are.
  case gzip
  /// Each binary message is decoded, with zlib's head or without.
  case deflate

  var content: ContentCoding? {
    switch self {
    case .none: nil
    case .gzip: .gzip
    case .deflate: .deflate
    }
  }
}

/// The request for a WebSocket, the messages to send, and the limits.
public struct WebSocketConfiguration: Sendable, Equatable {
  /// The request that opens it, with an `http` or `https` URL. `maximumBodyBytes` applies to one message.
  public var request: HTTPConfiguration
  /// What is sent after each opening, in order.
  public var messages: [WebSocketMessage] = []
  /// What is sent when a message comes that fits; the first one that fits applies. Such a message is no event.
  public var answers: [WebSocketAnswer] = []
  /// The values of the variables that `after`, `to` and `with` use.
  package var variables: [String: String] = [:]
  /// Messages that are no events, byte for byte.
  public var ignored: Set<String> = []
  /// Whether these and the heartbeat contain no secret. Otherwise no redirect to another origin is followed.
  public var messagesArePublic = false
  /// How binary messages are encoded. A message that is damaged ends the connection with a failure.
  public var decode = WebSocketCoding.none
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
