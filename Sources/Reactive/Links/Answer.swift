import Synchronization

/// A subscription that delivers at most one value, which waits for demand, and then the end.
///
/// Value and demand may come in either order, from any thread; whoever comes second delivers.
@usableFromInline class AnswerSubscription<Down: Subscriber>: SubscriptionObject, CustomStringConvertible {
  /// What has happened so far: bits, all but the last of which are only ever set.
  @usableFromInline enum Phase {
    @inlinable static var wanted: UInt8 { 1 }
    @inlinable static var answered: UInt8 { 2 }
    @inlinable static var over: UInt8 { 4 }
    @inlinable static var cancelled: UInt8 { 8 }
    /// The subscriber is being given its subscription.
    @inlinable static var starting: UInt8 { 16 }
  }

  @usableFromInline final let phase = Atomic<UInt8>(Phase.starting)
  /// Taken by the one who sets `over`.
  @usableFromInline @exclusivity(unchecked) final var down: Down?
  @usableFromInline @exclusivity(unchecked) final var answer: Down.Input?

  @usableFromInline final let description: String

  @inlinable init(_ down: Down, _ description: String) { (self.down, self.description) = (down, description) }

  /// Gives the subscriber its subscription, then delivers if it may. To be called once.
  ///
  /// A request that comes meanwhile is answered from here, where the subscriber's type is known: `request` is called
  /// where it is not, and would be slow.
  @inlinable final func start() {
    down?.receive(subscription: self)
    let before = phase.bitwiseAnd(~Phase.starting, ordering: .acquiringAndReleasing).oldValue
    if before & (Phase.wanted | Phase.answered | Phase.over) == Phase.wanted | Phase.answered { deliver() }
  }

  /// The value has come.
  @inlinable final func settle(_ answer: Down.Input) {
    self.answer = answer
    let before = set(Phase.answered)
    if before & Phase.over != 0 { self.answer = nil }
    if before & (Phase.wanted | Phase.starting) == Phase.wanted { deliver() }
  }

  /// The end has come, without a value.
  @inlinable
  final func end(_ completion: Subscribers.Completion<Down.Failure>) { takeDown()?.receive(completion: completion) }

  @inlinable final func deliver() {
    guard let down = takeDown(), let answer else { return }
    self.answer = nil
    _ = down.receive(answer)
    if phase.load(ordering: .acquiring) & Phase.cancelled == 0 { down.receive(completion: .finished) }
  }

  @inlinable final func set(_ bits: UInt8) -> UInt8 { phase.bitwiseOr(bits, ordering: .acquiringAndReleasing).oldValue }

  @inlinable final func takeDown() -> Down? { set(Phase.over) & Phase.over == 0 ? down.take() : nil }

  @inlinable final override func request(_ demand: Subscribers.Demand) {
    guard demand != .none else { return }
    if set(Phase.wanted) & (Phase.wanted | Phase.answered | Phase.starting) == Phase.answered { deliver() }
  }

  @inlinable final override func cancel() {
    let before = set(Phase.over | Phase.cancelled)
    guard before & Phase.over == 0 else { return }
    _ = down.take()
    if before & Phase.answered != 0 { answer = nil }
    didCancel()
  }

  /// Whether the end was delivered or it was cancelled.
  @inlinable final var isOver: Bool { phase.load(ordering: .acquiring) & Phase.over != 0 }

  /// Called once if it is cancelled before the end.
  @usableFromInline func didCancel() {}
}

/// A subscription that delivers what is known already, upon the first demand.
///
/// Not generic: what it delivers, and to whom, is in a closure that is made where the types are known.
@usableFromInline final class OnceSubscription: SubscriptionObject, CustomStringConvertible {
  private let isTaken = Atomic(false)
  private let cancelled = Atomic(false)
  /// Taken by the one who sets `isTaken`.
  private var deliver: ((OnceSubscription) -> Void)?
  @usableFromInline let description: String

  @usableFromInline init(_ description: String, deliver: @escaping (OnceSubscription) -> Void) {
    (self.description, self.deliver) = (description, deliver)
  }

  /// A subscription of this value, then the end.
  @inlinable static func begin<Down: Subscriber>(_ value: Down.Input, _ down: Down, _ description: String) {
    down.receive(
      subscription: OnceSubscription(description) { subscription in
        _ = down.receive(value)
        if !subscription.isCancelled { down.receive(completion: .finished) }
      })
  }

  @usableFromInline var isCancelled: Bool { cancelled.load(ordering: .acquiring) }

  @usableFromInline override func request(_ demand: Subscribers.Demand) { if demand != .none { take()?(self) } }

  @usableFromInline override func cancel() {
    cancelled.store(true, ordering: .releasing)
    _ = take()
  }

  private func take() -> ((OnceSubscription) -> Void)? {
    isTaken.exchange(true, ordering: .acquiringAndReleasing) ? nil : deliver.take()
  }
}
