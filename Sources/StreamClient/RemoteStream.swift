import StreamProtocol
import RSocket
import Reactive

/// A stream behind a socket. Every subscriber has a subscription of its own at the server, and its demand is the credit
/// that crosses the socket: nothing is sent that was not asked for, and nothing is kept here.
///
/// Values and the end arrive on the connection's event loop, one after another; a subscriber that blocks there holds up
/// every stream of that loop, keepalives too. The subscription may be used from any thread. The stream ends with
/// `.finished` when it has ended at the server, after its last value, or with a ``StreamError``.
public struct RemoteStream: Publisher, Sendable {
  /// What a subscriber gets.
  public typealias Output = StreamEvent
  /// How it can end early.
  public typealias Failure = StreamError

  let request: RemoteRequest

  /// The first demand opens the connection, where there is none, and subscribes.
  public func receive<Down: Subscriber>(subscriber: Down) where Down.Input == StreamEvent, Down.Failure == StreamError {
    RemoteSubscription(request, subscriber).start(subscriber)
  }
}

/// The newest value of a stream behind a socket: one value, then the end. When the stream has none yet, its first one.
public struct RemoteValue: Publisher, Sendable {
  /// What a subscriber gets, once.
  public typealias Output = StreamEvent
  /// How it can end early.
  public typealias Failure = StreamError

  let request: RemoteRequest

  /// The first demand opens the connection, where there is none, and asks.
  public func receive<Down: Subscriber>(subscriber: Down) where Down.Input == StreamEvent, Down.Failure == StreamError {
    RemoteSubscription(request, subscriber).start(subscriber)
  }
}

/// What is asked of the server.
struct RemoteRequest: Sendable {
  /// Kept alive for as long as somebody may still ask.
  let connection: StreamConnection
  let kind: RequestKind
  let name: String
  var options = SubscribeOptions()
  /// `nil`: a loss ends it.
  var reconnect: ReconnectPolicy?
  /// What a named publisher says of itself.
  var publisher: PublisherEntry?

  /// - Throws: `.invalid` for a name of more than 255 bytes, which no routing tag can carry.
  func payload() throws(StreamError) -> Payload {
    var options = options
    options.gaps = kind == .stream
    do throws(RoutingError) {
      return Payload(
        metadata: try StreamConnection.metadataFormat.metadata(route: name, publisher: publisher),
        data: options.json)
    } catch {
      throw .invalid(error.message)
    }
  }
}
