import Locks
import Synchronization

extension Publishers {
  /// Connects a subject to one upstream subscription; subscribers receive the subject's signals.
  ///
  /// A class: all references share the subject.
  public final class Multicast<Upstream: Publisher, SubjectType: Subject>: ConnectablePublisher, Operator
  where SubjectType.Output == Upstream.Output, SubjectType.Failure == Upstream.Failure {
    /// The shared publisher.
    public let upstream: Upstream
    /// Creates the subject for the first subscriber or connection. If several threads are first, each may call it; one
    /// of the subjects is used.
    public let createSubject: @Sendable () -> SubjectType
    @usableFromInline let state = Locked<SubjectType?>(nil)

    /// Creates the operator for `upstream`.
    @preconcurrency @inlinable public init(upstream: Upstream, createSubject: @escaping @Sendable () -> SubjectType) {
      (self.upstream, self.createSubject) = (upstream, createSubject)
    }

    /// Attaches the subscriber to the subject. No value arrives before ``connect()``.
    @inlinable public func receive<S: Subscriber<Upstream.Output, Failure>>(subscriber: S) {
      subject.subscribe(subscriber)
    }

    /// Subscribes the subject to upstream.
    ///
    /// - Returns: A cancellable that ends that subscription; the subject keeps its subscribers.
    @inlinable public func connect() -> any Cancellable { upstream.subscribe(subject) }

    @inlinable var subject: SubjectType {
      if let subject = state.withLock({ $0 }) { return subject }
      let created = createSubject()
      return state.withLock { subject in
        if let subject { return subject }
        subject = created
        return created
      }
    }
  }

  /// Makes a publisher connectable, so that it starts on `connect()`.
  public struct MakeConnectable<Upstream: Publisher>: ConnectablePublisher, CompositePublisher
  where Upstream.Failure == Never {
    /// The implementation.
    public let body: Multicast<Upstream, PassthroughSubject<Upstream.Output, Never>>

    /// `upstream.makeConnectable()`
    @inlinable public init(upstream: Upstream) { body = Multicast(upstream: upstream) { PassthroughSubject() } }

    /// Subscribes to upstream.
    ///
    /// - Returns: A cancellable that ends that subscription.
    @inlinable public func connect() -> any Cancellable { body.connect() }
  }

  /// Connects on the first subscription and disconnects after the last one ends.
  ///
  /// A class: all references share the connection.
  public final class Autoconnect<Upstream: ConnectablePublisher>: Operator, Equatable {
    /// The connectable publisher.
    public let upstream: Upstream
    @usableFromInline let connection = AutomaticConnection()

    /// Creates the operator for `upstream`.
    @inlinable public init(upstream: Upstream) { self.upstream = upstream }

    /// Attaches the subscriber, then connects if it is the first. It therefore misses no value of an upstream that
    /// delivers immediately.
    @inlinable public func receive<S: Subscriber<Upstream.Output, Failure>>(subscriber: S) {
      let handle = ConnectionHandle(connection)
      upstream.subscribe(RelayLink(handle, subscriber))
      if let number = connection.join(handle) { connection.set(upstream.connect(), number) }
    }

    /// Whether both are the same object.
    public static func == (lhs: Autoconnect, rhs: Autoconnect) -> Bool { lhs === rhs }
  }

  /// Shares one upstream subscription while there are subscribers.
  ///
  /// A class: all references share the subscription.
  public final class Share<Upstream: Publisher>: CompositePublisher, Equatable {
    /// The shared publisher.
    public let upstream: Upstream
    /// The implementation.
    public let body: Autoconnect<Multicast<Upstream, PassthroughSubject<Upstream.Output, Upstream.Failure>>>

    /// `upstream.share()`
    @inlinable public init(upstream: Upstream) {
      self.upstream = upstream
      body = upstream.multicast { PassthroughSubject() }.autoconnect()
    }

    /// Whether both are the same object.
    public static func == (lhs: Share, rhs: Share) -> Bool { lhs === rhs }
  }
}

// Sharing is safe: all state is guarded, and the signals of upstream and the calls of the subject are serial or
// thread-safe by contract.
extension Publishers.Multicast: @unchecked Sendable where Upstream: Sendable, SubjectType: Sendable {}
extension Publishers.Autoconnect: @unchecked Sendable where Upstream: Sendable {}
extension Publishers.Share: Sendable where Upstream: Sendable, Upstream.Output: Sendable {}

/// Counts the subscribers of a connectable publisher, and holds its connection while there are any.
@usableFromInline final class AutomaticConnection {
  @usableFromInline struct State {
    @usableFromInline var subscribers = 0
    /// Rises with each connection.
    @usableFromInline var number: UInt64 = 0
    @usableFromInline var isConnected = false
    /// `nil` until the connection exists.
    @usableFromInline var connection: (any Cancellable)?
  }
  @usableFromInline let state = Locked(State())

  /// Counts an attached subscriber, unless it has already left.
  ///
  /// - Returns: The number of the connection that the caller must make now; `nil` if none.
  @inlinable func join(_ handle: ConnectionHandle) -> UInt64? {
    state.withLock { state in
      guard handle.markCounted() else { return nil }
      state.subscribers += 1
      if state.isConnected { return nil }
      state.isConnected = true
      state.number += 1
      return state.number
    }
  }

  /// Stores a connection, or cancels it if the last subscriber left while it was made.
  @inlinable func set(_ connection: any Cancellable, _ number: UInt64) {
    let isCurrent = state.withLock { state in
      guard state.isConnected, state.number == number else { return false }
      state.connection = connection
      return true
    }
    if !isCurrent { connection.cancel() }
  }

  /// Counts a subscriber out. The last one disconnects.
  @inlinable func leave() {
    let connection = state.withLock { state -> (any Cancellable)? in
      state.subscribers -= 1
      guard state.subscribers == 0 else { return nil }
      state.isConnected = false
      return state.connection.take()
    }
    connection?.cancel()
  }
}

/// A subscriber's handle to a counted connection.
@usableFromInline final class ConnectionHandle: UpstreamHandle {
  @usableFromInline enum Phase: UInt8, AtomicRepresentable {
    case attached  // can become: counted, over
    case counted  // can become: over
    case over
  }
  @usableFromInline let phase = Atomic(Phase.attached)
  @usableFromInline let connection: AutomaticConnection

  @inlinable init(_ connection: AutomaticConnection) {
    self.connection = connection
    super.init("Multicast")
  }

  /// - Returns: False if the subscription is over already.
  @inlinable func markCounted() -> Bool {
    phase.compareExchange(expected: .attached, desired: .counted, ordering: .acquiringAndReleasing).exchanged
  }

  /// Counts the subscriber out, if it was counted. This happens before the completion is delivered, so that a
  /// subscription made on completion starts a new connection.
  @usableFromInline override func willEnd() {
    if phase.exchange(.over, ordering: .acquiringAndReleasing) == .counted { connection.leave() }
  }

  @usableFromInline override func cancel() {
    super.cancel()
    willEnd()
  }
}

extension Publisher {
  /// Connects the subject that the closure creates to one upstream subscription, on `connect()`. Demand: the subject's;
  /// the subjects of this library request unlimited values.
  @preconcurrency @inlinable public func multicast<S: Subject>(_ createSubject: @escaping @Sendable () -> S)
    -> Publishers.Multicast<Self, S>
  where S.Output == Output, S.Failure == Failure {
    Publishers.Multicast(upstream: self, createSubject: createSubject)
  }

  /// Connects `subject` to one upstream subscription, on `connect()`. Demand: the subject's; the subjects of this
  /// library request unlimited values.
  @inlinable public func multicast<S: Subject>(subject: S) -> Publishers.Multicast<Self, S>
  where S.Output == Output, S.Failure == Failure {
    multicast(own { subject })
  }

  /// Shares one upstream subscription while there are subscribers. The first demand of any subscriber requests
  /// unlimited values from upstream; a subscriber without demand misses values. A subscriber that attaches after the
  /// completion receives only the completion.
  @inlinable public func share() -> Publishers.Share<Self> { .init(upstream: self) }
}

extension Publisher where Failure == Never {
  /// Makes this publisher connectable, so that it starts on `connect()`. The first demand of any subscriber requests
  /// unlimited values from upstream.
  @inlinable public func makeConnectable() -> Publishers.MakeConnectable<Self> { .init(upstream: self) }
}

extension ConnectablePublisher {
  /// Connects on the first subscription, disconnects after the last one ends, and connects again on the next. Demand:
  /// that of the connectable publisher.
  @inlinable public func autoconnect() -> Publishers.Autoconnect<Self> { Publishers.Autoconnect(upstream: self) }
}
