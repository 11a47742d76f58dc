import Locks
import Synchronization

extension Publishers {
  /// Publishes the elements of an asynchronous sequence. Each subscriber has its own iteration.
  ///
  /// The iteration begins with the first demand, in a task of its own with the priority of the caller that requests. `next()`
  /// is called only while there is demand, and not again before the element has been delivered. Cancelling the subscription
  /// cancels the task.
  public struct AsyncElements<Base: AsyncSequence & Sendable>: Publisher where Base.Element: Sendable {
    /// The type of the sequence's elements.
    public typealias Output = Base.Element
    /// The type of the failure that the iteration throws.
    public typealias Failure = Base.Failure
    /// The sequence.
    public let base: Base

    /// `base.publisher`
    @inlinable public init(_ base: Base) { self.base = base }

    /// Sends the subscription; the iteration begins with the first demand.
    @inlinable public func receive<S: Subscriber<Base.Element, Base.Failure>>(subscriber: S) {
      AsyncIteration(base, subscriber).begin()
    }
  }
}

extension Publishers.AsyncElements: Sendable {}

extension AsyncSequence where Self: Sendable, Element: Sendable {
  /// The elements as a publisher, with the sequence's failure.
  ///
  /// Demand: the next element is awaited only while there is demand.
  @inlinable public var publisher: Publishers.AsyncElements<Self> { Publishers.AsyncElements(self) }
}

/// One subscriber's iteration of an asynchronous sequence.
@usableFromInline
final class AsyncIteration<Base: AsyncSequence & Sendable, Down: Subscriber>: SubscriptionObject, @unchecked Sendable,
  CustomStringConvertible
where Base.Element: Sendable, Down.Input == Base.Element, Down.Failure == Base.Failure {
  // Sendable: the subscriber is called by one thread at a time, first by the one that attaches it, then by the task.

  /// The bits of ``phase``.
  @usableFromInline enum Bits {
    /// The subscription is over.
    @inlinable static var over: UInt8 { 1 }
    /// The subscriber is being called. After the end, whoever clears this bit releases the subscriber.
    @inlinable static var busy: UInt8 { 2 }
    /// The subscriber has received the subscription.
    @inlinable static var attached: UInt8 { 4 }
    /// There has been demand. The task begins when the subscriber is attached, too.
    @inlinable static var requested: UInt8 { 8 }
  }

  @usableFromInline let base: Base
  @safe @usableFromInline @exclusivity(unchecked) var down: Down?
  @usableFromInline let phase = Atomic(Bits.busy)
  @usableFromInline let demand = TotalDemand()
  /// Tells the task of demand and of the end.
  @usableFromInline let change = Handoff<Never>()
  @usableFromInline let task = Locked<Task<Void, Never>?>(nil)
  /// `run()`, specialised where the types are known.
  @usableFromInline let makeTask: (AsyncIteration) -> Task<Void, Never>

  @inlinable init(_ base: Base, _ down: Down) {
    (self.base, self.down) = (base, down)
    makeTask = { iteration in
      let body = Unchecked<() async -> Void>(value: iteration.run)  // the subscriber's type need not be Sendable
      return Task { await body.value() }
    }
  }

  @usableFromInline var description: String { "AsyncElements" }

  // MARK: - The subscriber's calls

  /// Sends the subscription. A task that was requested meanwhile begins afterwards, so that signals do not overlap.
  @inlinable func begin() {
    down?.receive(subscription: self)
    leave()
    let before = phase.bitwiseOr(Bits.attached, ordering: .acquiringAndReleasing).oldValue
    if before & (Bits.requested | Bits.over) == Bits.requested { start() }
  }

  @usableFromInline override func request(_ demand: Subscribers.Demand) {
    guard demand != .none else { return }
    self.demand.add(demand)
    if phase.load(ordering: .acquiring) & Bits.requested == 0 {
      let before = phase.bitwiseOr(Bits.requested, ordering: .acquiringAndReleasing).oldValue
      if before == Bits.attached { start() }
    }
    change.alert()
  }

  @usableFromInline override func cancel() {
    let before = phase.bitwiseOr(Bits.over, ordering: .acquiringAndReleasing).oldValue
    guard before & Bits.over == 0 else { return }
    if before & Bits.busy == 0 { down = nil }
    stop()
  }

  @usableFromInline func start() {
    let new = makeTask(self)
    task.withLock { $0 = new }
    if phase.load(ordering: .acquiring) & Bits.over != 0 { stop() }
  }

  private func stop() {
    task.withLock { $0.take() }?.cancel()
    change.alert()
  }

  // MARK: - The task

  @inlinable func run() async {
    var iterator = base.makeAsyncIterator()
    var delivered: UInt64 = 0
    do throws(Base.Failure) {
      while await isRequested(beyond: delivered) {
        guard let element = try await iterator.next(isolation: nil) else { return end(.finished) }
        guard deliver(element) else { return }
        delivered += 1
        // A sequence that never suspends leaves the thread to other tasks now and then.
        if delivered & 63 == 0 { await Task.yield() }
      }
    } catch { end(.failure(error)) }
  }

  /// Waits for demand.
  ///
  /// - Returns: False after the end.
  @inlinable func isRequested(beyond delivered: UInt64) async -> Bool {
    while phase.load(ordering: .acquiring) & Bits.over == 0 {
      if delivered < demand.requested { return true }
      change.settle()
      let isQuiet = delivered >= demand.requested && phase.load(ordering: .acquiring) & Bits.over == 0
      if isQuiet { await change.wait(isolation: nil) }
    }
    return false
  }

  /// - Returns: False after the end.
  @inlinable func deliver(_ element: Base.Element) -> Bool {
    let before = phase.bitwiseOr(Bits.busy, ordering: .acquiringAndReleasing).oldValue
    guard before & Bits.over == 0, let down else { return false }
    demand.add(down.receive(element))
    leave()
    return true
  }

  /// Clears `busy` after a call of the subscriber.
  @inlinable func leave() {
    let now = phase.bitwiseAnd(~Bits.busy, ordering: .acquiringAndReleasing).newValue
    if now & Bits.over != 0 { down = nil }
  }

  @usableFromInline func end(_ completion: Subscribers.Completion<Base.Failure>) {
    let before = phase.bitwiseOr(Bits.over | Bits.busy, ordering: .acquiringAndReleasing).oldValue
    guard before & Bits.over == 0 else { return }
    down?.receive(completion: completion)
    down = nil
    _ = task.withLock { $0.take() }
  }
}
