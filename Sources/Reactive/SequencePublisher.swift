import Synchronization

extension Publishers {
  /// The elements of a sequence for each subscriber, at the pace of its demand, then the end.
  public struct Sequence<Elements: Swift.Sequence, Failure: Error>: Publisher {
    /// The elements.
    public typealias Output = Elements.Element
    /// What is delivered.
    public let sequence: Elements
    /// What the subscription calls itself; `nil`: the sequence.
    var name: String?

    /// Delivers `sequence`, iterated anew for each subscriber.
    public init(sequence: Elements) { self.sequence = sequence }

    /// Attaches the subscriber; one of an empty sequence is ended at once.
    public func receive<S: Subscriber>(subscriber: S) where S.Input == Output, S.Failure == Failure {
      let subscription = SequenceSubscription(sequence, subscriber, name: name)
      subscriber.receive(subscription: subscription)
      subscription.begin()
    }
  }
}

extension Publishers.Sequence: Sendable where Elements: Sendable {}
extension Publishers.Sequence: Equatable where Elements: Equatable {}

extension Sequence {
  /// Delivers the elements to each subscriber.
  public var publisher: Publishers.Sequence<Self, Never> { Publishers.Sequence(sequence: self) }
}

private final class SequenceSubscription<Elements: Sequence, Down: Subscriber>: Subscription, CustomStringConvertible
where Down.Input == Elements.Element {
  private let loop = DrainLoop(held: true)
  private let tally = DemandTally()
  private let cancelled = Atomic(false)
  // Touched by the one who is at work in the loop.
  private var iterator: Elements.Iterator?
  private var upcoming: Elements.Element?
  private var delivered: UInt64 = 0
  private var down: Down?

  private let name: String?
  private let sequence: Elements

  var description: String { name ?? "\(sequence)" }

  init(_ sequence: Elements, _ down: Down, name: String?) {
    self.name = name
    self.sequence = sequence
    var iterator = sequence.makeIterator()
    upcoming = iterator.next()
    self.iterator = iterator
    self.down = down
  }

  /// Starts delivery, once the subscriber has its subscription.
  func begin() { loop.release(deliver) }

  func request(_ demand: Subscribers.Demand) {
    tally.add(demand)
    loop.run(deliver)
  }

  func cancel() {
    cancelled.store(true, ordering: .releasing)
    loop.run(deliver)
  }

  private func deliver() {
    while let down, !cancelled.load(ordering: .acquiring) {
      guard let value = upcoming else {
        release()
        return down.receive(completion: .finished)
      }
      guard delivered < tally.requested else { return }
      delivered += 1
      upcoming = iterator?.next()
      tally.add(down.receive(value))
    }
    release()
  }

  private func release() {
    down = nil
    upcoming = nil
    iterator = nil
  }
}
