import Synchronization

extension Publishers {
  /// The elements of a sequence for each subscriber, at the pace of its demand, then the end.
  public struct Sequence<Elements: Swift.Sequence, Failure: Error>: Publisher {
    /// The elements.
    public typealias Output = Elements.Element
    /// What is delivered.
    public let sequence: Elements

    /// Delivers `sequence`, iterated anew for each subscriber.
    public init(sequence: Elements) { self.sequence = sequence }

    /// Attaches the subscriber; one of an empty sequence is ended at once.
    @inlinable public func receive<S: Subscriber<Output, Failure>>(subscriber: S) {
      SequenceSubscription(sequence, .finished, subscriber, name: nil).begin()
    }
  }
}

extension Publishers.Sequence: Sendable where Elements: Sendable {}
extension Publishers.Sequence: Equatable where Elements: Equatable {}

extension Sequence {
  /// Delivers the elements to each subscriber.
  @inlinable public var publisher: Publishers.Sequence<Self, Never> { Publishers.Sequence(sequence: self) }
}

/// Delivers the elements of a sequence, then an end.
///
/// What it calls itself: `name`, or the sequence.
@usableFromInline
final class SequenceSubscription<Elements: Sequence, Down: Subscriber>: SubscriptionObject, CustomStringConvertible
where Down.Input == Elements.Element {
  @usableFromInline let loop: DrainLoop
  @usableFromInline let tally = DemandTally()
  @usableFromInline let cancelled = Atomic(false)
  // Touched by the one who is at work in the loop.
  @usableFromInline @exclusivity(unchecked) var iterator: Elements.Iterator?
  @usableFromInline @exclusivity(unchecked) var upcoming: Elements.Element?
  @usableFromInline @exclusivity(unchecked) var delivered: UInt64 = 0
  @usableFromInline @exclusivity(unchecked) var down: Down?

  @usableFromInline let name: String?
  @usableFromInline let sequence: Elements
  @usableFromInline let completion: Subscribers.Completion<Down.Failure>

  /// `deliver()` as it is compiled where the types are known. An override is called where they are not, and is slow.
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

  /// Gives the subscriber its subscription. What it requests meanwhile is delivered meanwhile; the end of an empty
  /// sequence comes afterwards.
  @inlinable func begin() {
    let isEmpty = upcoming == nil
    down?.receive(subscription: self)
    if isEmpty { loop.release(deliver) }
  }

  @inlinable override func request(_ demand: Subscribers.Demand) {
    tally.add(demand)
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
      guard delivered < tally.requested else { return }
      delivered += 1
      upcoming = iterator?.next()
      tally.add(down.receive(value))
    }
    release()
  }

  @inlinable func release() {
    down = nil
    upcoming = nil
    iterator = nil
  }
}
