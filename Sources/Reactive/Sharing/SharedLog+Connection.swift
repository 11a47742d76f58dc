// The upstream side of a shared log: when it connects, what it asks for, how it lets go.

extension SharedLog {
  /// One subscription to upstream, from the decision to make it until its end.
  @usableFromInline struct Connection {
    /// Raised with each connection and each end of one.
    @usableFromInline var generation: UInt64 = 0
    var isConnected = false
    /// `nil` until upstream has given it.
    var subscription: (any Subscription)?
    /// Exact: upstream has been asked for everything before this position; `.max` for everything.
    var requested: UInt64 = 0
    /// Exact: the most that any reader has wanted during this connection.
    var wanted: UInt64 = 0
    /// One at a time: a value is on its way.
    @usableFromInline var isOutstanding = false
    /// Upstream is inside `receive`: what is wanted meanwhile is asked for by its return value.
    @usableFromInline var isReceiving = false
    /// How often the last subscriber has left during this connection. A linger of an earlier time is void.
    var departures = 0

    /// - Returns: What is to be cancelled.
    mutating func end() -> (any Subscription)? {
      guard isConnected else { return nil }
      defer { self = Connection(generation: generation + 1) }
      return subscription
    }
  }

  /// The moment at which the last subscriber left.
  struct Departure: Equatable {
    private let generation: UInt64
    private let count: Int

    init(_ connection: Connection) {
      generation = connection.generation
      count = connection.departures
    }
  }

  /// How many subscribers there are.
  public var subscriberCount: Int { state.withLock { $0.subscribers } }

  /// Whether there is an upstream subscription, or one in the making.
  public var isConnected: Bool { state.withLock { $0.connection.isConnected } }

  /// Gives the log its upstream: at most one, before the log is used.
  public func setUpstream(_ upstream: AnyPublisher<Storage.Input, Failure>) {
    state.withLock { state in
      precondition(state.upstream == nil, "a log has one upstream")
      state.upstream = upstream
    }
  }

  /// Nothing connects before `resume`: readers come that are to miss nothing. Before the log is used.
  public func suspend() { state.withLock { $0.isSuspended = true } }

  /// Connects if something has wanted that since `suspend`. A second call does nothing.
  public func resume() {
    let isWanted = state.withLock { state in
      defer { state.isSuspended = false }
      return state.isSuspended && (state.start == .always || state.subscribers > 0)
    }
    if isWanted { connect() }
  }

  /// Connects, if that is to be done without any subscriber. A second call does nothing.
  public func start() {
    if state.withLock({ $0.start == .always }) { connect() }
  }

  /// Counts a subscriber. May connect. Its reader is attached and has said what it wants already, so that it misses
  /// nothing of an upstream which delivers at once.
  @inlinable public func subscriberJoined() {
    if countIn() { connect() }
  }

  /// - Returns: whether a subscriber is a reason to connect.
  @usableFromInline func countIn() -> Bool {
    let (linger, isReason) = state.withLock { state in
      state.subscribers += 1
      return (state.linger.take(), state.start != .always)
    }
    linger?.cancel()
    return isReason
  }

  /// Counts a subscriber out. May disconnect, now or after the linger.
  public func subscriberLeft() {
    let (departure, start) = state.withLock { state -> (Departure?, ShareStart) in
      precondition(state.subscribers > 0, "more subscribers left than had joined")
      state.subscribers -= 1
      return (state.depart(), state.start)
    }
    guard let departure else { return retractWhatNobodyWants() }
    linger(departure, start)
  }

  /// Disconnects, now or after the linger, unless somebody comes meanwhile, or the log's start says that it stays.
  func linger(_ departure: Departure, _ start: ShareStart) {
    guard case .whileSubscribed(let linger) = start else { return }
    if linger <= .zero { return disconnect(departure) }
    let expire = Unchecked { [weak self] in self?.disconnect(departure) }  // the log is thread-safe
    let timer = schedule(linger) { expire.value() }
    let unneeded = state.withLock { state -> (any Cancellable)? in
      guard state.subscribers == 0, state.connection.isConnected, departure == Departure(state.connection) else {
        return timer
      }
      state.linger = timer
      return nil
    }
    unneeded?.cancel()
  }

  /// Cancels upstream for good. Subscribers are not told an end; later ones get what is held.
  public func shutDown() {
    let (subscription, linger) = state.withLock { state in
      state.isShutDown = true
      return (state.connection.end(), state.linger.take())
    }
    linger?.cancel()
    subscription?.cancel()
  }

  // MARK: - Connecting

  @inlinable func connect() {
    guard let (upstream, generation) = beginConnection() else { return }
    upstream.subscribe(
      AnySubscriber(
        receiveSubscription: { self.accept($0, generation) }, receiveValue: { self.accept($0, generation) },
        receiveCompletion: { self.finish($0, generation: generation) }))
    tellConnection()
  }

  /// Decides whether to connect; from then on it counts as connected.
  @usableFromInline func beginConnection() -> (upstream: AnyPublisher<Storage.Input, Failure>, generation: UInt64)? {
    state.withLock { state in
      guard let upstream = state.upstream, !state.connection.isConnected, state.completion == nil, !state.isShutDown,
        !state.isSuspended, state.frozen == nil, state.overflow?.completion == nil
      else { return nil }
      state.connection = Connection(
        generation: state.connection.generation + 1, isConnected: true, requested: state.storage.endPosition,
        wanted: state.wants.values.max() ?? 0)
      return (upstream, state.connection.generation)
    }
  }

  /// Ends the connection if nobody has come since then.
  private func disconnect(_ departure: Departure) {
    let (subscription, ended) = state.withLock { state -> ((any Subscription)?, Bool) in
      guard state.subscribers == 0, state.connection.isConnected, departure == Departure(state.connection) else {
        return (nil, false)
      }
      state.linger = nil
      return (state.connection.end(), true)
    }
    subscription?.cancel()
    if ended { tellConnection() }
  }

  @usableFromInline func tellConnection() {
    for reader in state.withLock({ $0.readers }) { reader.tell(nil) }
  }

  /// Asks upstream for what is wanted and not asked for yet.
  func request() {
    let (subscription, demand) = state.withLock { state -> ((any Subscription)?, Subscribers.Demand) in
      guard let subscription = state.connection.subscription, !state.connection.isReceiving else { return (nil, .none) }
      return (subscription, nextDemand(&state))
    }
    if demand != .none { subscription?.request(demand) }
  }

  /// Takes back a value that was asked for, when there are subscribers but none of them wants it any more, and upstream
  /// knows how to.
  @usableFromInline func retractWhatNobodyWants() {
    guard demand == .oneAtATime else { return }
    let (subscription, generation) = state.withLock { state -> ((any RetractableSubscription)?, UInt64) in
      let end = state.storage.endPosition
      guard case .whileSubscribed = state.start, state.connection.isOutstanding, state.subscribers > 0,
        !state.wants.values.contains(where: { $0 > end })
      else { return (nil, 0) }
      return (state.connection.subscription as? any RetractableSubscription, state.connection.generation)
    }
    guard let subscription else { return }
    subscription.retract()
    // Somebody may have asked meanwhile, before it was taken back: ask again, rather twice than not at all.
    state.withLock { state in
      if state.connection.generation == generation { state.connection.isOutstanding = false }
    }
    request()
  }

  /// What is to be asked for now; counted as asked for.
  @usableFromInline func nextDemand(_ state: inout State) -> Subscribers.Demand {
    let wantsAll: Bool
    if case .whileSubscribed = state.start { wantsAll = false } else { wantsAll = true }
    switch demand {
    case .exact:
      let wanted = wantsAll ? .max : state.connection.wanted
      guard wanted > state.connection.requested else { return .none }
      let count = wanted == .max ? nil : Int(exactly: wanted - state.connection.requested)
      state.connection.requested = wanted
      return count.map { .max($0) } ?? .unlimited
    case .oneAtATime:
      let end = state.storage.endPosition
      guard !state.connection.isOutstanding, state.hasRoom,
        wantsAll || state.wants.values.contains(where: { $0 > end })
      else { return .none }
      state.connection.isOutstanding = true
      return .max(1)
    }
  }

  // MARK: - From upstream

  @usableFromInline func accept(_ subscription: any Subscription, _ generation: UInt64) {
    let isTaken = state.withLock { state in
      guard state.connection.generation == generation, state.connection.isConnected,
        state.connection.subscription == nil
      else { return false }
      state.connection.subscription = subscription
      return true
    }
    if isTaken { request() } else { subscription.cancel() }
  }

  @inlinable func accept(_ input: Storage.Input, _ generation: UInt64) -> Subscribers.Demand {
    let (readers, newest, dropped) = state.withLock { state -> ([AttachedReader]?, Newest?, Storage.Element?) in
      guard state.connection.generation == generation else { return (nil, nil, nil) }
      state.connection.isOutstanding = false
      let appended = state.append(input, slack: slack)
      state.connection.isReceiving = appended.readers != nil
      return appended
    }
    _ = dropped
    guard let readers else { return .none }
    tell(readers, newest)
    return state.withLock { state in
      guard state.connection.generation == generation else { return .none }
      state.connection.isReceiving = false
      return nextDemand(&state)
    }
  }
}

extension SharedLog.State {
  /// - Returns: nil when there is nobody to leave, or nothing to let go of.
  mutating func depart() -> SharedLog.Departure? {
    guard subscribers == 0, connection.isConnected else { return nil }
    connection.departures += 1
    return SharedLog.Departure(connection)
  }
}
