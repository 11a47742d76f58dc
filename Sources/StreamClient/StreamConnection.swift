import StreamProtocol
import RSocket
import Reactive
import StreamRuntime

/// One connection to a streamd socket, shared by any number of remote streams.
///
/// The first request connects, and so does the next request after a loss. A loss fails every live stream without a
/// ``ReconnectPolicy``. The connection closes when this object is released and its last stream has ended.
public final class StreamConnection: Sendable {
  /// Composite rather than plain routing metadata: every RSocket responder supports it, and further metadata of a
  /// request fits beside the route. It costs four bytes per request.
  static let metadataFormat = MetadataFormat.composite

  let transport: ClientTransport

  /// - Parameters:
  ///   - path: path of the Unix socket, at most 107 bytes, or a host and port of TCP: `127.0.0.1:7878`, `[::1]:7878`,
  ///     `streamd.example.org:7878`. `unix:` or `tcp:` may precede. First used by the first request; a name is looked up for
  ///     each connection, and of its addresses the first one that answers is used.
  ///   - token: returns the token for a server over TCP, if it has one; called on the loop for each connection, so that a
  ///     new token is used after the loss of a connection.
  ///   - loop: the loop that runs the connection and delivers every value; its owner starts it. `nil`: a background
  ///     loop that all such connections of the process share.
  ///   - keepaliveInterval: the interval between KEEPALIVE frames to the server.
  ///   - maximumLifetime: a server that is silent for longer is considered dead; the server applies the same limit to
  ///     this client.
  ///   - maximumEventBytes: the largest event, at least 1. A larger one ends its stream with
  ///     ``StreamError/invalid(_:_:)``, but not the connection. A subscriber's demand times this is the memory that a
  ///     stream may use.
  ///   - onEvent: receives what happens to the connection, for the program's log; called on the loop, must not block.
  /// - Throws: the system call that failed, if the process has no descriptor or thread left for the shared loop.
  public init(
    socket path: String, token: @escaping @Sendable () -> String? = { nil }, loop: EventLoop? = nil,
    keepaliveInterval: Duration = .seconds(20),
    maximumLifetime: Duration = .seconds(90), maximumEventBytes: Int = 64 << 20,
    onEvent: @escaping @Sendable (ConnectionEvent) -> Void = { _ in }
  ) throws(SystemError) {
    precondition(maximumEventBytes > 0, "maximumEventBytes must be at least 1, not \(maximumEventBytes)")
    let setup = Setup(
      keepaliveInterval: keepaliveInterval, maximumLifetime: maximumLifetime,
      metadataMIMEType: Self.metadataFormat.mimeType, payload: Payload(data: FailureReason.announcement))
    let chosen: EventLoop
    if let loop { chosen = loop } else { chosen = try SharedLoop.get() }
    transport = ClientTransport(
      address: ServerAddress(path) ?? .unix(path), token: token, loop: chosen, setup: setup,
      maximumEventBytes: maximumEventBytes, onEvent: onEvent)
  }

  deinit {
    transport.loop.execute { [transport] in transport.close() }
  }

  /// Returns the stream called `name`, 1 to 255 bytes. Nothing is requested from the server before a subscriber has
  /// demand.
  ///
  ///     let apple = try connection.stream("quotes", where: EventFilter(.init("/symbol", .equals("AAPL"))))
  ///
  /// A name with `*` is a pattern, which stands for all streams whose names fit, also later ones: `*` fits any characters, also
  /// slashes. Their events have ``StreamEvent/stream``, and one subscription, with one demand.
  ///
  /// - Parameters:
  ///   - name: as above.
  ///   - options: the start, the lag policy, and what events have besides their data.
  ///   - filter: only events that it fits are delivered; replaces `options.filter`.
  ///   - reconnect: how the stream resumes after a loss of its connection; `nil`: it fails.
  public func stream(
    _ name: String, where filter: EventFilter? = nil, options: SubscribeOptions = SubscribeOptions(),
    reconnect: ReconnectPolicy? = nil
  ) -> RemoteStream {
    var options = options
    options.filter = filter ?? options.filter
    return RemoteStream(
      request: RemoteRequest(connection: self, kind: .stream, name: name, options: options, reconnect: reconnect))
  }

  /// Returns the newest value of the stream called `name`; each subscriber requests it separately.
  ///
  /// - Parameters:
  ///   - name: the name of the stream.
  ///   - key: requests the newest event of one key, for a stream with keys: a string, number or boolean as in JSON, else
  ///     a string. If no event has it, the request fails with ``StreamError/rejected(_:_:)``. `nil`: the newest event.
  public func value(of name: String, key: String? = nil) -> RemoteValue {
    var options = SubscribeOptions()
    options.key = key
    return RemoteValue(request: RemoteRequest(connection: self, kind: .response, name: name, options: options))
  }

  /// Gives the daemon a command; the value has no data.
  package func perform(_ command: ControlCommand) -> RemoteValue {
    RemoteValue(
      request: RemoteRequest(connection: self, kind: .response, name: ControlCommand.route, data: command.json))
  }

  /// Closes the connection for good. Live and later streams fail with ``StreamError/disconnected(_:_:)``. Thread-safe;
  /// takes effect when the loop handles it.
  public func close() {
    transport.loop.execute { [transport] in transport.close() }
  }
}

/// The event loop of all connections without a loop of their own.
private enum SharedLoop {
  private static let loop = Locked<EventLoop?>(nil)

  static func get() throws(SystemError) -> EventLoop {
    // A failure is not stored: descriptors may be available at the next attempt.
    try loop.withLock { loop throws(SystemError) in
      if let loop { return loop }
      let new = try EventLoop(name: "stream client")
      try new.start()
      loop = new
      return new
    }
  }
}
