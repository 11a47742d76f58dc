import StreamProtocol
import RSocket
import Reactive

/// A stream of a server behind a socket. Each subscriber has its own subscription at the server, and its demand crosses
/// the socket as credit: the server sends only requested events, and none is stored here.
///
/// Values and completion are delivered on the connection's event loop, one after another; a subscriber that blocks
/// there delays every stream of that loop, and its keepalives. The subscription may be used from any thread. The stream
/// completes with `.finished` when it has ended at the server, after its last value, or with a ``StreamError``.
public struct RemoteStream: Publisher, Sendable {
  /// The type of the values.
  public typealias Output = StreamEvent
  /// The type of the failure.
  public typealias Failure = StreamError

  let request: RemoteRequest

  /// Attaches the subscriber. Its first demand connects, if there is no connection, and subscribes.
  public func receive<Down: Subscriber>(subscriber: Down) where Down.Input == StreamEvent, Down.Failure == StreamError {
    RemoteSubscription(request, subscriber).start(subscriber)
  }
}

/// The newest value of a stream behind a socket: delivers one value and finishes. If the stream has no value yet,
/// delivers its first one.
public struct RemoteValue: Publisher, Sendable {
  /// The type of the value.
  public typealias Output = StreamEvent
  /// The type of the failure.
  public typealias Failure = StreamError

  let request: RemoteRequest

  /// Attaches the subscriber. Its first demand connects, if there is no connection, and requests the value.
  public func receive<Down: Subscriber>(subscriber: Down) where Down.Input == StreamEvent, Down.Failure == StreamError {
    RemoteSubscription(request, subscriber).start(subscriber)
  }
}

/// The parameters of a request to the server.
struct RemoteRequest: Sendable {
  /// The connection, kept alive while further requests are possible.
  let connection: StreamConnection
  let kind: RequestKind
  let name: String
  var options = SubscribeOptions()
  /// `nil`: a loss of the connection ends the stream.
  var reconnect: ReconnectPolicy?
  /// Whether an earlier request of the same subscriber had events: a daemon that is away is then a loss.
  var wasConnected = false
  /// Whether a loss ended that request, and was reported.
  var isInterrupted = false
  /// The metadata entry of a named publisher.
  var publisher: PublisherEntry?
  /// The request's data in place of the options.
  var data: [UInt8]?

  /// Whether it is for all streams that a pattern fits.
  var isForPattern: Bool { kind == .stream && options.ids && NamePattern(name) != nil }

  /// - Throws: `.invalid` for a name of more than 255 bytes, which does not fit into a routing tag.
  func payload() throws(StreamError) -> Payload {
    var options = options
    options.gaps = kind == .stream
    options.names = isForPattern
    do throws(RoutingError) {
      return Payload(
        metadata: try StreamConnection.metadataFormat.metadata(route: name, publisher: publisher),
        data: data ?? options.json)
    } catch {
      throw .invalid(error.message)
    }
  }
}
