import RSocket
import Reactive
import StreamProtocol

extension StreamConnection {
  /// Returns the stream called `name` as it is in shared memory, for a stream with `map = true` of a daemon on this machine. Its
  /// events are read in place: the daemon copies none and makes no system call for one, and the thousandth reader costs it
  /// no more than the second.
  ///
  ///     for try await event in connection.mapped("quotes", reconnect: ReconnectPolicy()).values { … }
  ///
  /// - Parameters:
  ///   - name: 1 to 255 bytes.
  ///   - start: where to begin; ``SubscribeOptions/Start/state`` fails.
  ///   - onLag: what a reader does whose next event was overwritten; by default it continues with the oldest one.
  ///   - reconnect: how the map continues after a loss of its connection; `nil`: it fails, after the events that are there.
  public func mapped(
    _ name: String, from start: SubscribeOptions.Start = .replay, onLag: LagPolicy? = nil,
    reconnect: ReconnectPolicy? = nil
  ) -> MappedStream {
    var options = SubscribeOptions(from: start, onLag: onLag)
    options.map = true
    return MappedStream(
      request: RemoteRequest(
        connection: self, kind: .response, name: name, options: options, reconnect: reconnect))
  }
}

/// A stream in shared memory. Each subscriber has a thread of its own, which reads, waits and delivers, one event after
/// another; the subscription may be used from any thread. A subscriber that is slow delays no other, and when its next event is
/// overwritten it continues as told, with an exact ``StreamEvent/gap``.
///
/// A subscriber's demand is demand on the stream's source, as that of a ``RemoteStream``. Events have ids and times. A reload or
/// a restart of the daemon may replace the memory: the subscriber continues in the next one.
///
/// The stream completes with `.finished` when it has ended at the server, after its last event, or with a ``StreamError``.
public struct MappedStream: Publisher, Sendable {
  /// The type of the values.
  public typealias Output = StreamEvent
  /// The type of the failure.
  public typealias Failure = StreamError

  let request: RemoteRequest

  /// Attaches the subscriber. Its first demand connects, if there is no connection, and maps the stream.
  public func receive<Down: Subscriber>(subscriber: Down)
  where Down.Input == StreamEvent, Down.Failure == StreamError {
    MapSubscription(request, subscriber).start(subscriber)
  }

  /// The stream's events for `for try await`. The awaited event and up to 1,024 more are requested from the source; at most
  /// those 1,024 wait here.
  ///
  /// Each iterator has its own subscription, made when it awaits its first value. The subscription is cancelled when the
  /// iterator is released, or when its task is cancelled, which ends the loop.
  public var values: Values { Values(request: request) }

  /// The events of one mapped stream; see ``MappedStream/values``.
  public struct Values: AsyncSequence, Sendable {
    /// One event.
    public typealias Element = StreamEvent
    /// The failure, thrown after the events that precede it.
    public typealias Failure = StreamError

    let request: RemoteRequest

    /// Creates an iterator with its own subscription, made by the first `next()`.
    public func makeAsyncIterator() -> AsyncIterator {
      AsyncIterator(intake: EventIntake(capacity: 1024) { MapSubscription(request, $0) })
    }

    /// The position of one consumer in the stream; must not be shared between tasks.
    public typealias AsyncIterator = RemoteStream.Values.AsyncIterator
  }
}
