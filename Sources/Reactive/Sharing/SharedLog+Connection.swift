import Locks

// The upstream side of a shared log: its calls to upstream, and upstream's signals.

extension SharedLog {
  /// The number of subscribers.
  package var subscriberCount: Int { state.withLock { $0.machine.subscribers } }

  /// Whether there is an upstream subscription, or one is being made.
  package var isConnected: Bool { state.withLock { $0.machine.isConnected } }

  /// Sets the log's upstream: at most one, before the log is used.
  @usableFromInline package func setUpstream(_ upstream: AnyPublisher<Storage.Input, Failure>) {
    state.withLock { state in
      state.machine.setUpstream()
      state.upstream = upstream
    }
  }

  /// Prevents connecting until ``resume()``, so that readers which attach before miss nothing. Must be called before
  /// the log is used.
  package func suspend() { state.withLock { $0.machine.suspend() } }

  /// Connects if there was a reason to since ``suspend()``. A second call has no effect.
  @inlinable package func resume() { step { $0.machine.resume($0.extent) } }

  /// Connects if the log does so without subscribers. A second call has no effect.
  @inlinable package func start() { step { $0.machine.begin($0.extent) } }

  /// Counts a subscriber. May connect. Its reader must already be attached and have sent its request, so that it misses
  /// no value of an upstream that delivers immediately.
  @inlinable package func subscriberJoined() { step { $0.machine.subscriberJoined($0.extent) } }

  /// Counts a subscriber out. May disconnect, immediately or after the linger.
  @usableFromInline package func subscriberLeft() { step { $0.machine.subscriberLeft($0.extent) } }

  /// Cancels upstream for good. Subscribers receive no completion; later ones receive the stored elements.
  @usableFromInline package func shutDown() { step { $0.machine.shutDown() } }

  // MARK: - Performing

  /// Passes the signals of one connection to its log.
  @usableFromInline final class UpstreamLink: Subscriber {
    @usableFromInline let log: SharedLog
    @usableFromInline let generation: UInt64

    @inlinable init(_ log: SharedLog, _ generation: UInt64) { (self.log, self.generation) = (log, generation) }

    @inlinable func receive(subscription: any Subscription) { log.accept(subscription, generation) }
    @inlinable func receive(_ input: Storage.Input) -> Subscribers.Demand { log.accept(input, generation) }
    @inlinable func receive(completion: Subscribers.Completion<Failure>) {
      log.finish(completion, generation: generation)
    }
  }

  @inlinable func connect(to upstream: AnyPublisher<Storage.Input, Failure>, _ generation: UInt64) {
    upstream.subscribe(UpstreamLink(self, generation))
    notifyReaders()
  }

  @usableFromInline func notifyReaders() {
    for reader in state.withLock({ $0.readers }) { reader.notify(nil) }
  }

  @usableFromInline func startLinger(_ linger: SharingMachine.Linger) {
    // Unchecked: the log is thread-safe.
    let end = Unchecked { [weak self] in self?.step { $0.machine.lingerEnded(linger) } }
    let timer = schedule(linger.duration) { end.value() }
    let isNeeded = state.withLock { state in
      guard state.machine.needs(linger) else { return false }
      state.linger = timer
      return true
    }
    if !isNeeded { timer.cancel() }
  }

  @usableFromInline func retract(_ subscription: (any Subscription)?, _ generation: UInt64) {
    guard let subscription = subscription as? any RetractableSubscription else { return }
    subscription.retract()
    step { $0.machine.retracted(generation, $0.extent) }
  }

  // MARK: - From upstream

  @usableFromInline func accept(_ subscription: any Subscription, _ generation: UInt64) {
    let canRetract = subscription is any RetractableSubscription
    var isTaken = false
    step { state in
      let actions = state.machine.subscriptionArrived(generation, canRetract: canRetract, state.extent)
      isTaken = actions != nil
      if isTaken { state.subscription = subscription }
      return actions ?? .init()
    }
    if !isTaken { subscription.cancel() }
  }

  @inlinable func accept(_ input: Storage.Input, _ generation: UInt64) -> Subscribers.Demand {
    let (appended, isStored) = state.withLock { state in
      let appended = state.append(input, from: generation, slack: slack)
      return (appended, appended != nil && state.waiting.isEmpty)
    }
    if let appended { notify(of: appended) }
    return state.withLock { $0.machine.valueReceived(generation, isStored: isStored, $0.extent) }
  }
}
