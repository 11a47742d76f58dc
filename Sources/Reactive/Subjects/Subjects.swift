/// Passes values on to those who have demand at the time, and keeps none.
public final class PassthroughSubject<Output, Failure: Error>: Subject {
  @usableFromInline let hub: SubjectHub<Output, Failure>

  /// A subject that nobody is subscribed to.
  @inlinable public init() { hub = SubjectHub("PassthroughSubject", newest: nil) }

  deinit { hub.upstreams.cancel() }

  /// Delivers the value; who has no demand now doesn't get it later. While another thread delivers, or one who
  /// receives sends, the value is left to the one who delivers.
  @inlinable public func send(_ value: Output) { hub.send(value) }
  /// Ends the subject; what was sent before is still delivered.
  public func send(completion: Subscribers.Completion<Failure>) { hub.finish(completion) }
  /// Takes an upstream, which is asked for everything once a subscriber has asked for something.
  public func send(subscription: any Subscription) { hub.upstreams.add(subscription) }

  /// Attaches the subscriber; after the end it gets only that.
  @inlinable public func receive<S: Subscriber<Output, Failure>>(subscriber: S) { hub.attach(subscriber) }
}

extension PassthroughSubject: @unchecked Sendable where Output: Sendable {}  // all state is in the hub

/// Has a value at all times, and gives it to each new subscriber.
///
/// Who has no demand gets, once it has, the value of that time, unless it got that already, and none of those between.
public final class CurrentValueSubject<Output, Failure: Error>: Subject {
  @usableFromInline let hub: SubjectHub<Output, Failure>

  /// - Parameter value: The first value.
  @inlinable public init(_ value: Output) { hub = SubjectHub("CurrentValueSubject", newest: value) }

  deinit { hub.upstreams.cancel() }

  /// The value; setting it sends it. After the end it can still be read and set, and nothing is sent.
  public var value: Output {
    get { hub.value }
    set { hub.sendAndNote(newValue, isSet: true) }
  }

  /// Makes this the value and delivers it.
  @inlinable public func send(_ value: Output) { hub.sendAndNote(value) }
  /// Ends the subject, also for those who have not asked for the last value.
  public func send(completion: Subscribers.Completion<Failure>) { hub.finish(completion) }
  /// Takes an upstream and asks it for everything.
  public func send(subscription: any Subscription) { hub.upstreams.add(subscription) }

  /// Attaches the subscriber, which gets the current value; after the end, only that.
  @inlinable public func receive<S: Subscriber<Output, Failure>>(subscriber: S) { hub.attach(subscriber) }
}

extension CurrentValueSubject: @unchecked Sendable where Output: Sendable {}  // all state is in the hub

/// Keeps the last values, and gives them to each new subscriber.
///
/// A value is kept at least until all subscribers with demand have been given it, also when one of them sends from
/// inside `receive`: all see the same order. What accumulates is bounded by the demand of who is slow, which with
/// unlimited demand is no bound; that is what such a subscriber asked for.
///
/// After the end a new subscriber gets the values, then the end.
public final class ReplaySubject<Output, Failure: Error>: Subject {
  /// How many values a new subscriber gets at most, and how far one without demand may fall behind.
  public let bufferSize: Int
  @usableFromInline let log: SharedLog<MemoryStorage<Output>, Failure>
  private let upstreams = Upstreams(areWanted: true)
  @usableFromInline let onLag: (@Sendable (UInt64) -> Void)?

  /// - Parameters:
  ///   - bufferSize: How many values are kept; `.max` keeps all.
  ///   - onLag: Called with the number of values that a subscriber has just lost, before its next value.
  public init(bufferSize: Int, onLag: (@Sendable (UInt64) -> Void)? = nil) {
    (self.bufferSize, self.onLag) = (bufferSize, onLag)
    log = SharedLog(
      storage: MemoryStorage(capacity: bufferSize), start: .fromFirstSubscriber, demand: .exact, slack: .max)
  }

  deinit { upstreams.cancel() }

  /// Keeps and delivers the value.
  @inlinable public func send(_ value: Output) { log.append(value) }
  /// Ends the subject; each subscriber is told after the values it has not taken yet.
  public func send(completion: Subscribers.Completion<Failure>) {
    log.finish(completion)
    upstreams.cancel()
  }
  /// Takes an upstream and asks it for everything.
  public func send(subscription: any Subscription) { upstreams.add(subscription) }

  /// Attaches the subscriber, which first gets the values kept.
  @inlinable public func receive<S: Subscriber<Output, Failure>>(subscriber: S) {
    LogCursor(log, subscriber, owner: nil, description: "ReplaySubject", onLag: onLag).begin(replay: bufferSize)
  }
}

extension ReplaySubject: @unchecked Sendable where Output: Sendable {}  // all state is in the log
