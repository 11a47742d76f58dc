import StreamProtocol
import RSocket
import Reactive
import StreamRuntime

/// One connection to a streamd socket, shared by any number of remote streams.
///
/// It is made when the first request is, and again by the next request after it was lost; a loss fails every stream that
/// is live then and has no ``ReconnectPolicy``. It is closed when it is let go of and its last stream has ended.
public final class StreamConnection: Sendable {
  /// Composite rather than plain routing metadata: every RSocket responder knows it, and what else a request may have to
  /// carry one day fits beside the route. It costs four bytes a request.
  static let metadataFormat = MetadataFormat.composite

  let transport: ClientTransport

  /// - Parameters:
  ///   - socket: path of the Unix socket, at most 107 bytes. Looked at only when the first request is made.
  ///   - loop: where everything happens and every value is delivered; started by its owner. `nil`: one in the background
  ///     that all such connections of the process share.
  ///   - keepaliveInterval: how often the server is asked for a sign of life.
  ///   - maximumLifetime: a server silent for longer is taken for dead; it does the same with this client.
  ///   - maximumEventBytes: of an event, at least 1. A larger one ends its stream with ``StreamError/invalid(_:)``, and
  ///     not the connection. A subscriber's demand times this is what a stream may cost in memory.
  /// - Throws: the call that failed, when the process has no descriptor or thread left for the shared loop.
  public init(
    socket path: String, loop: EventLoop? = nil, keepaliveInterval: Duration = .seconds(20),
    maximumLifetime: Duration = .seconds(90), maximumEventBytes: Int = 64 << 20
  ) throws(SystemError) {
    precondition(maximumEventBytes > 0, "events of at most \(maximumEventBytes) bytes")
    let setup = Setup(
      keepaliveInterval: keepaliveInterval, maximumLifetime: maximumLifetime,
      metadataMIMEType: Self.metadataFormat.mimeType)
    let chosen: EventLoop
    if let loop { chosen = loop } else { chosen = try SharedLoop.get() }
    transport = ClientTransport(path: path, loop: chosen, setup: setup, maximumEventBytes: maximumEventBytes)
  }

  deinit {
    transport.loop.execute { [transport] in transport.close() }
  }

  /// The stream called `name`, 1 to 255 bytes. Nothing is asked of the server before a subscriber has demand.
  ///
  /// - Parameter reconnect: how the stream goes on after its connection is lost; `nil`: it fails.
  public func stream(
    _ name: String, options: SubscribeOptions = SubscribeOptions(), reconnect: ReconnectPolicy? = nil
  ) -> RemoteStream {
    RemoteStream(
      request: RemoteRequest(connection: self, kind: .stream, name: name, options: options, reconnect: reconnect))
  }

  /// The newest value of the stream called `name`, asked for anew by every subscriber.
  public func value(of name: String) -> RemoteValue {
    RemoteValue(request: RemoteRequest(connection: self, kind: .response, name: name))
  }

  /// Closes the connection for good. Streams that are live, and later ones, fail with ``StreamError/disconnected(_:)``.
  /// From any thread; done when the loop comes to it.
  public func close() {
    transport.loop.execute { [transport] in transport.close() }
  }
}

/// The loop of all connections that were given none.
private enum SharedLoop {
  private static let loop = Locked<EventLoop?>(nil)

  static func get() throws(SystemError) -> EventLoop {
    // A failure is not kept: descriptors may be free again next time.
    try loop.withLock { loop throws(SystemError) in
      if let loop { return loop }
      let new = try EventLoop(name: "stream client")
      try new.start()
      loop = new
      return new
    }
  }
}
