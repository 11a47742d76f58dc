/// Passes values on to those who have demand at the time, and keeps none.
public final class PassthroughSubject<Output, Failure: Error>: Subject {
  @usableFromInline let core = SubjectCore<MemoryStorage<Output>, Failure>(
    storage: MemoryStorage(capacity: 0), waitsForDemand: true)

  /// A subject that nobody is subscribed to.
  public init() {}

  deinit { core.cancelUpstreams() }

  /// Delivers the value; who has no demand now doesn't get it later.
  @inlinable
  public func send(_ value: Output) { core.log.append(value) }
  /// Ends the subject; what was sent before is still delivered to who is in the middle of it.
  public func send(completion: Subscribers.Completion<Failure>) { core.finish(completion) }
  /// Takes an upstream, which is asked for everything once a subscriber has asked for something.
  public func send(subscription: any Subscription) { core.send(subscription: subscription) }

  /// Attaches the subscriber; after the end it gets only that.
  @inlinable
  public func receive<S: Subscriber>(subscriber: S) where S.Input == Output, S.Failure == Failure {
    core.attach(subscriber, replay: 0, description: "PassthroughSubject")
  }
}

extension PassthroughSubject: @unchecked Sendable where Output: Sendable {}  // all state is in the log

/// Has a value at all times, and gives it to each new subscriber.
///
/// Who has no demand gets, once it has, the value of that time and none of those between.
public final class CurrentValueSubject<Output, Failure: Error>: Subject {
  @usableFromInline let core: SubjectCore<CurrentValueStorage<Output>, Failure>

  /// - Parameter value: The first value.
  public init(_ value: Output) {
    core = SubjectCore(storage: CurrentValueStorage(value), waitsForDemand: false)
  }

  deinit { core.cancelUpstreams() }

  /// The value; setting it sends it. Stays readable, and as it was, after the end.
  public var value: Output {
    get { core.log.read { storage, _ in storage.current } }
    set { send(newValue) }
  }

  /// Makes this the value and delivers it.
  @inlinable
  public func send(_ value: Output) { core.log.append(value) }

  /// Ends the subject, also for those who have not asked for the last value.
  public func send(completion: Subscribers.Completion<Failure>) {
    core.finish(completion)
    core.log.read { storage, completion in
      if completion != nil { storage.values.capacity = 0 }
    }
    core.log.trim()
  }

  /// Takes an upstream and asks it for everything.
  public func send(subscription: any Subscription) { core.send(subscription: subscription) }

  /// Attaches the subscriber, which gets the current value; after the end, only that.
  @inlinable
  public func receive<S: Subscriber>(subscriber: S) where S.Input == Output, S.Failure == Failure {
    core.attach(subscriber, replay: 1, description: "CurrentValueSubject")
  }
}

extension CurrentValueSubject: @unchecked Sendable where Output: Sendable {}  // all state is in the log

/// The newest value, and it once more apart from the log: it outlives the end.
@usableFromInline
struct CurrentValueStorage<Value>: ReplayStorage {
  @usableFromInline var values = MemoryStorage<Value>(capacity: 1)
  @usableFromInline private(set) var current: Value
  @inlinable var firstPosition: UInt64 { values.firstPosition }
  @inlinable var endPosition: UInt64 { values.endPosition }

  init(_ value: Value) {
    current = value
    values.append(value)
  }

  @usableFromInline
  mutating func append(_ value: Value) {
    values.append(value)
    current = value  // ends no life under the lock: `values` holds the old one until it is trimmed
  }

  @inlinable
  func element(at position: UInt64) -> Value { values.element(at: position) }
  @inlinable
  mutating func dropExcess(sparing slack: Int) -> Value? { values.dropExcess(sparing: slack) }
}

/// Keeps the last values, and gives them to each new subscriber.
///
/// After the end a new subscriber gets the values, then the end.
public final class ReplaySubject<Output, Failure: Error>: Subject {
  /// How many values a new subscriber gets at most, and how far one without demand may fall behind.
  public let bufferSize: Int
  @usableFromInline let core: SubjectCore<MemoryStorage<Output>, Failure>
  @usableFromInline let onLag: (@Sendable (UInt64) -> Void)?

  /// - Parameters:
  ///   - bufferSize: How many values are kept; `.max` keeps all.
  ///   - onLag: Called with the number of values that a subscriber has just lost, before its next value.
  public init(bufferSize: Int, onLag: (@Sendable (UInt64) -> Void)? = nil) {
    self.bufferSize = bufferSize
    self.onLag = onLag
    core = SubjectCore(storage: MemoryStorage(capacity: bufferSize), waitsForDemand: false)
  }

  deinit { core.cancelUpstreams() }

  /// Keeps and delivers the value.
  @inlinable
  public func send(_ value: Output) { core.log.append(value) }
  /// Ends the subject; each subscriber is told after the values it has not taken yet.
  public func send(completion: Subscribers.Completion<Failure>) { core.finish(completion) }
  /// Takes an upstream and asks it for everything.
  public func send(subscription: any Subscription) { core.send(subscription: subscription) }

  /// Attaches the subscriber, which first gets the values kept.
  @inlinable
  public func receive<S: Subscriber>(subscriber: S) where S.Input == Output, S.Failure == Failure {
    core.attach(subscriber, replay: bufferSize, description: "ReplaySubject", onLag: onLag)
  }
}

extension ReplaySubject: @unchecked Sendable where Output: Sendable {}  // all state is in the log
