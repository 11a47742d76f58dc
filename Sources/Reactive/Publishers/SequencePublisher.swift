import Synchronization

extension Publishers {
  /// Delivers the elements of a sequence to each subscriber, at the pace of its demand, then finishes.
  public struct Sequence<Elements: Swift.Sequence, Failure: Error>: Publisher {
    /// The elements.
    public typealias Output = Elements.Element
    /// The sequence of elements.
    public let sequence: Elements

    /// Creates a publisher of `sequence`, which is iterated for each subscriber.
    public init(sequence: Elements) { self.sequence = sequence }

    /// Attaches the subscriber; if the sequence is empty, it finishes immediately.
    @inlinable public func receive<S: Subscriber<Output, Failure>>(subscriber: S) {
      SequenceSubscription(sequence, .finished, subscriber, name: nil).begin()
    }
  }
}

extension Publishers.Sequence: Sendable where Elements: Sendable {}
extension Publishers.Sequence: Equatable where Elements: Equatable {}

extension Sequence {
  /// A publisher of the elements.
  @inlinable public var publisher: Publishers.Sequence<Self, Never> { Publishers.Sequence(sequence: self) }
}

/// Delivers the elements of a sequence, then a completion.
///
/// Its description is `name`, or that of the sequence.
@usableFromInline
final class SequenceSubscription<Elements: Sequence, Down: Subscriber>: SubscriptionObject, CustomStringConvertible
where Down.Input == Elements.Element {
  @usableFromInline let loop: DrainLoop
  @usableFromInline let total = TotalDemand()
  @usableFromInline let cancelled = Atomic(false)
  // Accessed only by the draining thread.
  @safe @usableFromInline @exclusivity(unchecked) var iterator: Elements.Iterator?
  @safe @usableFromInline @exclusivity(unchecked) var upcoming: Elements.Element?
  @safe @usableFromInline @exclusivity(unchecked) var delivered: UInt64 = 0
  @safe @usableFromInline @exclusivity(unchecked) var down: Down?

  @usableFromInline let name: String?
  @usableFromInline let sequence: Elements
  @usableFromInline let completion: Subscribers.Completion<Down.Failure>

  /// `deliver()`, specialised where the types are known. An override would be called through a type-erased reference
  /// and be slow.
  @usableFromInline let run: (SequenceSubscription) -> Void

  @inlinable var description: String { name ?? "\(sequence)" }

  @inlinable init(
    _ sequence: Elements, _ completion: Subscribers.Completion<Down.Failure>, _ down: Down, name: String?
  ) {
    (self.completion, self.name, self.sequence) = (completion, name, sequence)
    var iterator = sequence.makeIterator()
    upcoming = iterator.next()
    (self.iterator, self.down) = (iterator, down)
    loop = DrainLoop(held: upcoming == nil)
    run = { $0.deliver() }
  }

  /// Sends the subscription to the subscriber. Values that it requests meanwhile are delivered meanwhile; the
  /// completion of an empty sequence follows.
  @inlinable func begin() {
    let isEmpty = upcoming == nil
    down?.receive(subscription: self)
    if isEmpty { loop.release(deliver) }
  }

  @inlinable override func request(_ demand: Subscribers.Demand) {
    total.add(demand)
    loop.run { run(self) }
  }

  @inlinable override func cancel() {
    cancelled.store(true, ordering: .releasing)
    loop.run(deliver)
  }

  @inlinable func deliver() {
    guard let down else { return }
    while !cancelled.load(ordering: .acquiring) {
      guard let value = upcoming else {
        release()
        return down.receive(completion: completion)
      }
      guard delivered < total.requested else { return }
      delivered += 1
      upcoming = iterator?.next()
      total.add(down.receive(value))
    }
    release()
  }

  @inlinable func release() {
    down = nil
    upcoming = nil
    iterator = nil
  }
}
