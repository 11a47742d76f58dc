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
    public func receive<S: Subscriber>(subscriber: S) where S.Input == Output, S.Failure == Failure {
      SequenceSubscription(sequence, .finished, subscriber, name: nil).begin()
    }
  }
}

extension Publishers.Sequence: Sendable where Elements: Sendable {}
extension Publishers.Sequence: Equatable where Elements: Equatable {}

extension Sequence {
  /// Delivers the elements to each subscriber.
  public var publisher: Publishers.Sequence<Self, Never> { Publishers.Sequence(sequence: self) }
}

/// Delivers the elements of a sequence, then an end.
///
/// What it calls itself: `name`, or the sequence.
final class SequenceSubscription<Elements: Sequence, Down: Subscriber>: SubscriptionObject, CustomStringConvertible
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
  private let completion: Subscribers.Completion<Down.Failure>

  var description: String { name ?? "\(sequence)" }

  init(
    _ sequence: Elements, _ completion: Subscribers.Completion<Down.Failure>, _ down: Down, name: String?
  ) {
    self.completion = completion
    self.name = name
    self.sequence = sequence
    var iterator = sequence.makeIterator()
    upcoming = iterator.next()
    self.iterator = iterator
    self.down = down
  }

  /// Gives the subscriber its subscription, then delivers.
  func begin() {
    down?.receive(subscription: self)
    loop.release(deliver)
  }

  override func request(_ demand: Subscribers.Demand) {
    tally.add(demand)
    loop.run(deliver)
  }

  override func cancel() {
    cancelled.store(true, ordering: .releasing)
    loop.run(deliver)
  }

  private func deliver() {
    while let down, !cancelled.load(ordering: .acquiring) {
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

  private func release() {
    down = nil
    upcoming = nil
    iterator = nil
  }
}
