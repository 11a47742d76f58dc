/// The elements of a ``SharedSequence`` that wait for a consumer which is behind.
public enum SharedBuffering: Sendable, Equatable {
  /// Up to this number of elements, at least 1. None is lost: the slowest consumer decides when the base is read on.
  case bounded(Int)
  /// For each consumer the newest elements, up to this number, at least 1. The fastest consumer decides when the base is read
  /// on.
  case newest(Int)
  /// For each consumer the oldest elements, up to this number, at least 1. The fastest consumer decides when the base is read
  /// on.
  case oldest(Int)
  /// All elements. The fastest consumer decides when the base is read on.
  case unbounded
}

/// Shares one iteration of an asynchronous sequence among any number of consumers.
///
/// - The base is iterated once, from the first `next()` of any consumer, in a task of the sequence's own with the priority of
///   that consumer. A cancelled consumer leaves alone; the others go on.
/// - Each consumer counts from its `makeAsyncIterator()`, and has its own position. It first receives the last elements before
///   that, up to `capacity`, then the later ones at its own pace.
/// - The base is read ahead of its consumers by the number of elements in ``SharedBuffering/bounded(_:)``, otherwise by one
///   element. ``Iterator/missed`` counts the elements that a consumer has lost.
/// - After the base's end, or its failure, each consumer receives what it has not read, then the end. Later consumers receive
///   the last elements, up to `capacity`, and then the same.
/// - When the last consumer has left, the iteration rests: the next consumer receives the elements that nobody has received.
///   With `linger`, the iteration is cancelled after so long without a consumer, its elements are dropped, and the next
///   consumer iterates the base anew. The iteration is cancelled at once when the sequence and its iterators are released.
public struct SharedSequence<Base: AsyncSequence & Sendable>: AsyncSequence, Sendable where Base.Element: Sendable {
  /// The type of the base's elements.
  public typealias Element = Base.Element
  /// The type of the base's failure.
  public typealias Failure = Base.Failure

  @usableFromInline let owner: Owner

  @inlinable init(_ base: Base, capacity: Int, buffering: SharedBuffering, linger: Duration?, schedule: @escaping Delay)
  {
    owner = Owner(SharedIteration(base, capacity, buffering, linger: linger, schedule: schedule))
  }

  /// Adds a consumer.
  @inlinable public func makeAsyncIterator() -> Iterator { Iterator(consumer: Consumer(owner)) }

  /// The position of one consumer. Copies of an iterator are the same consumer: tasks that share it are served one after
  /// another.
  public struct Iterator: AsyncIteratorProtocol {
    @usableFromInline let consumer: Consumer

    @inlinable init(consumer: Consumer) { self.consumer = consumer }

    /// The number of elements that this consumer lost directly before the one that `next()` returned last.
    @inlinable public var missed: Int { consumer.reader.missed }

    /// Waits for the next element; `nil` after the end, or when the task is cancelled, which ends this consumer.
    /// - Throws: The base's failure, once.
    @inlinable public mutating func next(
      isolation actor: isolated (any Actor)? = #isolation
    ) async throws(Failure) -> Element? { try await consumer.reader.next(isolation: actor) }

    /// Waits for the next element; `nil` after the end, or when the task is cancelled, which ends this consumer.
    /// - Throws: The base's failure, once.
    @inlinable public mutating func next() async throws(Failure) -> Element? { try await next(isolation: nil) }
  }

  /// Held by the sequence and by its consumers. Ends the iteration when it is released.
  @usableFromInline final class Owner: Sendable {
    @usableFromInline let iteration: SharedIteration<Base>

    @inlinable init(_ iteration: SharedIteration<Base>) { self.iteration = iteration }

    deinit { iteration.shutDown() }
  }

  /// Held by an iterator. The consumer leaves when it is released.
  @usableFromInline final class Consumer: Sendable {
    @usableFromInline let owner: Owner
    @usableFromInline let reader: SharedReader<Base>

    @inlinable init(_ owner: Owner) {
      self.owner = owner
      reader = owner.iteration.makeReader()
    }

    deinit { reader.leave() }
  }
}

@available(*, unavailable)
extension SharedSequence.Iterator: Sendable {}

extension AsyncSequence where Self: Sendable, Element: Sendable {
  /// Shares one iteration of this sequence among any number of consumers; a new consumer first receives the last elements.
  ///
  /// - Parameters:
  ///   - capacity: The largest number of elements that a new consumer first receives, beside what it buffers.
  ///   - buffering: The elements that wait for a consumer which is behind.
  ///   - linger: How long the iteration outlives the last consumer; `nil`: as long as the sequence exists.
  ///
  /// - Precondition: `capacity` is not negative.
  @inlinable public func shareReplay(
    _ capacity: Int = 0, buffering: SharedBuffering = .bounded(1), linger: Duration? = nil
  ) -> SharedSequence<Self> {
    SharedSequence(self, capacity: capacity, buffering: buffering, linger: linger, schedule: dispatchDelay)
  }
}
