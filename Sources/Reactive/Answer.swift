import Synchronization

/// A subscription that delivers at most one value, which waits for demand, and then the end.
///
/// Value and demand may come in either order, from any thread; whoever comes second delivers.
@usableFromInline
class AnswerSubscription<Down: Subscriber>: SubscriptionObject, CustomStringConvertible {
  /// What has happened so far: bits that are only ever set.
  private enum Phase {
    static var wanted: UInt8 { 1 }
    static var answered: UInt8 { 2 }
    static var over: UInt8 { 4 }
    static var cancelled: UInt8 { 8 }
  }

  private let phase = Atomic<UInt8>(0)
  /// Taken by the one who sets `over`.
  private var down: Down?
  private var answer: Down.Input?

  @usableFromInline let description: String

  @usableFromInline
  init(_ down: Down, _ description: String) {
    self.down = down
    self.description = description
  }

  /// With the answer.
  @usableFromInline
  convenience init(_ down: Down, _ answer: Down.Input, _ description: String) {
    self.init(down, description)
    settle(answer)
  }

  /// Gives the subscriber its subscription. To be called once, first of all or right after the answer.
  @usableFromInline
  final func start() { down?.receive(subscription: self) }

  /// The value has come.
  @usableFromInline
  final func settle(_ answer: Down.Input) {
    self.answer = answer
    let before = set(Phase.answered)
    if before & Phase.over != 0 { self.answer = nil }
    if before & Phase.wanted != 0 { deliver() }
  }

  /// The end has come, without a value.
  @usableFromInline
  final func end(_ completion: Subscribers.Completion<Down.Failure>) { takeDown()?.receive(completion: completion) }

  private func deliver() {
    guard let down = takeDown(), let answer else { return }
    self.answer = nil
    _ = down.receive(answer)
    if phase.load(ordering: .acquiring) & Phase.cancelled == 0 { down.receive(completion: .finished) }
  }

  private func set(_ bits: UInt8) -> UInt8 { phase.bitwiseOr(bits, ordering: .acquiringAndReleasing).oldValue }

  private func takeDown() -> Down? { set(Phase.over) & Phase.over == 0 ? down.take() : nil }

  @usableFromInline
  final override func request(_ demand: Subscribers.Demand) {
    guard demand != .none else { return }
    if set(Phase.wanted) & (Phase.wanted | Phase.answered) == Phase.answered { deliver() }
  }

  @usableFromInline
  final override func cancel() {
    let before = set(Phase.over | Phase.cancelled)
    guard before & Phase.over == 0 else { return }
    _ = down.take()
    if before & Phase.answered != 0 { answer = nil }
    didCancel()
  }

  /// Whether the end was delivered or it was cancelled.
  final var isOver: Bool { phase.load(ordering: .acquiring) & Phase.over != 0 }

  /// Called once if it is cancelled before the end.
  @usableFromInline
  func didCancel() {}
}
