import Synchronization

extension Publishers {
  /// Feeds a subject from one upstream subscription; who subscribes gets what the subject delivers.
  ///
  /// A class: all who hold it share the subject.
  public final class Multicast<Upstream: Publisher, SubjectType: Subject>: ConnectablePublisher
  where SubjectType.Output == Upstream.Output, SubjectType.Failure == Upstream.Failure {
    /// The same values.
    public typealias Output = Upstream.Output
    /// The same failures.
    public typealias Failure = Upstream.Failure
    /// What is shared.
    public let upstream: Upstream
    /// Makes the subject, with the first subscriber or connection. When several threads are first, it may be called by
    /// each of them; one of the subjects is used.
    public let createSubject: () -> SubjectType
    @usableFromInline let state = Guarded<SubjectType?>(nil)

    /// The operator behind `upstream`.
    @inlinable public init(upstream: Upstream, createSubject: @escaping () -> SubjectType) {
      (self.upstream, self.createSubject) = (upstream, createSubject)
    }

    /// Attaches the subscriber to the subject. Nothing comes before somebody connects.
    @inlinable public func receive<S: Subscriber<Output, Failure>>(subscriber: S) { subject.subscribe(subscriber) }

    /// Subscribes the subject to upstream.
    ///
    /// - Returns: Ends that subscription; the subject and its subscribers stay.
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

  /// Makes a publisher that starts when told to.
  public typealias MakeConnectable<Upstream: Publisher> =
    Multicast<Upstream, PassthroughSubject<Upstream.Output, Never>> where Upstream.Failure == Never

  /// Connects with the first subscriber, and disconnects when the last one has left.
  ///
  /// A class: all who hold it share.
  public final class Autoconnect<Upstream: ConnectablePublisher>: Operator {
    /// What is connected.
    public let upstream: Upstream
    @usableFromInline let connection = AutomaticConnection()

    /// The operator behind `upstream`.
    @inlinable public init(upstream: Upstream) { self.upstream = upstream }

    /// Attaches the subscriber, then connects if it is the first. So it misses nothing of an upstream that delivers at
    /// once.
    @inlinable public func receive<S: Subscriber<Upstream.Output, Failure>>(subscriber: S) {
      let handle = ConnectionHandle(connection)
      upstream.subscribe(RelayLink(handle, subscriber))
      if let number = connection.join(handle) { connection.set(upstream.connect(), number) }
    }
  }

  /// One upstream subscription for all subscribers, while there are any.
  public typealias Share<Upstream: Publisher> =
    Autoconnect<Multicast<Upstream, PassthroughSubject<Upstream.Output, Upstream.Failure>>>
}

extension Publishers.Multicast where SubjectType == PassthroughSubject<Output, Never>, Failure == Never {
  /// ``Publishers/MakeConnectable``.
  @inlinable public convenience init(upstream: Upstream) { self.init(upstream: upstream) { PassthroughSubject() } }
}

extension Publishers.Autoconnect: Equatable {
  /// ``Publishers/Share``.
  public convenience init<Shared: Publisher>(upstream: Shared)
  where Upstream == Publishers.Multicast<Shared, PassthroughSubject<Shared.Output, Shared.Failure>> {
    self.init(upstream: Publishers.Multicast(upstream: upstream) { PassthroughSubject() })
  }

  /// The same shared connection.
  public static func == (lhs: Publishers.Autoconnect<Upstream>, rhs: Publishers.Autoconnect<Upstream>) -> Bool {
    lhs === rhs
  }
}

// Shared by nature: all state is guarded, and what upstream and the subject do is serial or thread-safe by contract.
extension Publishers.Multicast: @unchecked Sendable where Upstream: Sendable, SubjectType: Sendable {}
extension Publishers.Autoconnect: @unchecked Sendable where Upstream: Sendable {}

/// Counts the subscribers of a connectable publisher, and holds its connection while there are any.
@usableFromInline final class AutomaticConnection {
  @usableFromInline struct State {
    @usableFromInline var subscribers = 0
    /// Raised with each connection.
    @usableFromInline var number: UInt64 = 0
    @usableFromInline var isConnected = false
    /// `nil` until it was made.
    @usableFromInline var connection: (any Cancellable)?
  }
  @usableFromInline let state = Guarded(State())

  /// Counts a subscriber that is attached already, unless it has left again.
  ///
  /// - Returns: The number of the connection that is to be made now, if one is.
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

  /// Holds a connection, or ends it when the last subscriber has left while it was made.
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

/// What a subscriber has of its way through a counted connection.
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

  /// - Returns: False when it is over already.
  @inlinable func markCounted() -> Bool {
    phase.compareExchange(expected: .attached, desired: .counted, ordering: .acquiringAndReleasing).exchanged
  }

  /// Counts it out, if it was counted. Before the end is told, so that who subscribes anew then finds a connection of
  /// its own.
  @usableFromInline override func willEnd() {
    if phase.exchange(.over, ordering: .acquiringAndReleasing) == .counted { connection.leave() }
  }

  @usableFromInline override func cancel() {
    super.cancel()
    willEnd()
  }
}

extension Publisher {
  /// Feeds the subject that the closure makes from one upstream subscription, once somebody connects. Demand: that of
  /// the subject: everything, with those of this library.
  @inlinable public func multicast<S: Subject>(_ createSubject: @escaping () -> S) -> Publishers.Multicast<Self, S>
  where S.Output == Output, S.Failure == Failure {
    Publishers.Multicast(upstream: self, createSubject: createSubject)
  }

  /// Feeds `subject` from one upstream subscription, once somebody connects. Demand: that of the
  /// subject: everything, with those of this library.
  @inlinable public func multicast<S: Subject>(subject: S) -> Publishers.Multicast<Self, S>
  where S.Output == Output, S.Failure == Failure {
    multicast { subject }
  }

  /// Shares one upstream subscription, while there are subscribers. Upstream is asked for everything once one of them
  /// asks for something; who has no demand misses values. Who comes after the end gets only that.
  @inlinable public func share() -> Publishers.Share<Self> { .init(upstream: self) }
}

extension Publisher where Failure == Never {
  /// Makes a publisher that starts when told to. Upstream is asked for everything once somebody asks for something.
  @inlinable public func makeConnectable() -> Publishers.MakeConnectable<Self> { .init(upstream: self) }
}

extension ConnectablePublisher {
  /// Connects with the first subscriber, disconnects when the last one has left, and connects again with the next.
  /// Demand: that of what is connected.
  @inlinable public func autoconnect() -> Publishers.Autoconnect<Self> { Publishers.Autoconnect(upstream: self) }
}
