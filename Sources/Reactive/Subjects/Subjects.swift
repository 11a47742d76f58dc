/// A subject that passes values to the subscribers with demand and keeps none.
public final class PassthroughSubject<Output, Failure: Error>: Subject {
  @usableFromInline let hub: SubjectHub<Output, Failure>

  /// Creates a subject without subscribers.
  @inlinable public init() { hub = SubjectHub("PassthroughSubject", newest: nil) }

  deinit { hub.upstreams.cancel() }

  /// Delivers the value; a subscriber without demand at that time misses it. While another thread delivers, or if a
  /// subscriber sends from inside `receive`, the delivering thread also delivers this value.
  @inlinable public func send(_ value: Output) { hub.send(value) }
  /// Completes the subject; values sent before are still delivered.
  public func send(completion: Subscribers.Completion<Failure>) { hub.finish(completion) }
  /// Adds an upstream. The first demand of a subscriber requests unlimited values from it.
  public func send(subscription: any Subscription) { hub.upstreams.add(subscription) }

  /// Attaches the subscriber; after the completion it receives only the completion.
  @inlinable public func receive<S: Subscriber<Output, Failure>>(subscriber: S) { hub.attach(subscriber) }
}

extension PassthroughSubject: @unchecked Sendable where Output: Sendable {}  // all state is in the hub

/// A subject with a current value, which each new subscriber receives first.
///
/// A subscriber without demand misses the values that are sent meanwhile. When it requests a value, it receives the
/// current one, unless it already has that.
public final class CurrentValueSubject<Output, Failure: Error>: Subject {
  @usableFromInline let hub: SubjectHub<Output, Failure>

  /// - Parameter value: The initial value.
  @inlinable public init(_ value: Output) { hub = SubjectHub("CurrentValueSubject", newest: value) }

  deinit { hub.upstreams.cancel() }

  /// The current value; setting it sends it. After the completion it can still be read and set, but is no longer sent.
  public var value: Output {
    get { hub.value }
    set { hub.sendAndNote(newValue, isSet: true) }
  }

  /// Makes this the value and delivers it.
  @inlinable public func send(_ value: Output) { hub.sendAndNote(value) }
  /// Completes the subject, also for subscribers that have not requested the last value.
  public func send(completion: Subscribers.Completion<Failure>) { hub.finish(completion) }
  /// Adds an upstream and requests unlimited values from it.
  public func send(subscription: any Subscription) { hub.upstreams.add(subscription) }

  /// Attaches the subscriber, which receives the current value; after the completion it receives only the completion.
  @inlinable public func receive<S: Subscriber<Output, Failure>>(subscriber: S) { hub.attach(subscriber) }
}

extension CurrentValueSubject: @unchecked Sendable where Output: Sendable {}  // all state is in the hub

/// A subject that keeps the last values and delivers them to each new subscriber.
///
/// A value is kept at least until all subscribers with demand have received it, even if one of them sends from inside
/// `receive`: all see the same order. The number of values kept is bounded by the demand of the slowest subscriber;
/// unlimited demand is no bound.
///
/// After the completion a new subscriber receives the values, then the completion.
public final class ReplaySubject<Output, Failure: Error>: Subject {
  /// The largest number of values that a new subscriber receives, and by which a subscriber without demand may fall
  /// behind.
  public let bufferSize: Int
  @usableFromInline let log: SharedLog<MemoryStorage<Output>, Failure>
  private let upstreams = Upstreams(areRequested: true)
  @usableFromInline let onLag: (@Sendable (UInt64) -> Void)?

  /// - Parameters:
  ///   - bufferSize: The number of values to keep; `.max` keeps all.
  ///   - onLag: Called with the number of values that a subscriber has just lost, before its next value.
  ///
  /// - Precondition: `bufferSize` is not negative.
  public init(bufferSize: Int, onLag: (@Sendable (UInt64) -> Void)? = nil) {
    (self.bufferSize, self.onLag) = (bufferSize, onLag)
    log = SharedLog(
      storage: MemoryStorage(capacity: bufferSize), start: .fromFirstSubscriber, demand: .exact, slack: .max)
  }

  deinit { upstreams.cancel() }

  /// Keeps and delivers the value.
  @inlinable public func send(_ value: Output) { log.append(value) }
  /// Completes the subject; each subscriber receives the completion after its unread values.
  public func send(completion: Subscribers.Completion<Failure>) {
    log.finish(completion)
    upstreams.cancel()
  }
  /// Adds an upstream and requests unlimited values from it.
  public func send(subscription: any Subscription) { upstreams.add(subscription) }

  /// Attaches the subscriber, which first receives the stored values.
  @inlinable public func receive<S: Subscriber<Output, Failure>>(subscriber: S) {
    LogCursor(log, subscriber, owner: nil, description: "ReplaySubject", onLag: onLag).begin(replay: bufferSize)
  }
}

extension ReplaySubject: @unchecked Sendable where Output: Sendable {}  // all state is in the log
