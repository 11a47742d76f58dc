import Locks
import Synchronization

/// An element of a shared sequence, and its position.
@usableFromInline struct SharedItem<Element> {
  @usableFromInline let position: UInt64
  @usableFromInline let element: Element
  /// The number of elements that were lost directly before it.
  @usableFromInline let missed: Int

  @inlinable init(_ position: UInt64, _ element: Element, missed: Int = 0) {
    (self.position, self.element, self.missed) = (position, element, missed)
  }
}

/// One consumer of a shared sequence: its position, and the elements that it has not taken.
///
/// An element reaches the consumer on one of three ways, in this order: `batch`, which is the consumer's own; the slot of the
/// handoff, without a lock; what it finds under a lock when it is behind.
@usableFromInline final class SharedReader<Base: AsyncSequence & Sendable>: @unchecked Sendable
where Base.Element: Sendable {
  // Sendable: `turns` admits one task at a time to what belongs to the consumer.

  @usableFromInline typealias Element = Base.Element

  /// With ``SharedBuffering/oldest(_:)``: what waits behind the element in the slot.
  private struct Oldest {
    var items = Fifo<SharedItem<Element>>()
    /// The number of elements that found no room since the newest item.
    var missed = 0
  }

  @usableFromInline let iteration: SharedIteration<Base>
  /// The run of the base that this consumer receives. It is the only one while the consumer exists.
  @usableFromInline let run: SharedRun
  @usableFromInline let handoff = Handoff<SharedItem<Element>>()
  @usableFromInline let turns = Turns()
  /// Twice the position of the next element that is to be taken, plus 1 if the run waits until the consumer is further.
  @usableFromInline let progress: Atomic<UInt64>
  private let oldest = Locked(Oldest())
  /// Guarded by the iteration's lock.
  @safe @exclusivity(unchecked) var isAttached = true

  // Accessed by the consumer alone.
  @safe @usableFromInline @exclusivity(unchecked) var batch: Fifo<Element>
  /// The number of elements in the batch that preceded the consumer, and do not count as progress.
  @safe @usableFromInline @exclusivity(unchecked) var replayed: Int
  @safe @usableFromInline @exclusivity(unchecked) var missed = 0
  /// The elements that were lost since the one that was returned last.
  @safe @usableFromInline @exclusivity(unchecked) var newlyMissed = 0
  @safe @usableFromInline @exclusivity(unchecked) var isOver = false

  init(
    _ iteration: SharedIteration<Base>, _ run: SharedRun, at position: UInt64, _ batch: Fifo<Element>, replayed: Int
  ) {
    (self.iteration, self.run, self.batch, self.replayed) = (iteration, run, batch, replayed)
    progress = Atomic(position << 1)
  }

  @inlinable var position: UInt64 { progress.load(ordering: .acquiring) >> 1 }

  /// Leaves the other consumers alone. The elements that nobody has received wait for the next consumer.
  @usableFromInline func leave() {
    iteration.remove(self)
    handoff.alert()
  }

  // MARK: - The consumer

  @inlinable func next(isolation actor: isolated (any Actor)?) async throws(Base.Failure) -> Element? {
    if !turns.enter() { await turns.wait(isolation: actor, onCancel: leave) }
    defer { turns.leave() }
    if Task.isCancelled {
      leave()
      finish()
    } else if !run.hasBegun.load(ordering: .acquiring) {
      iteration.begin(run)
    }
    while !isOver {
      if let element = batch.popFirst() {
        if let element = take(element) { return element }
        continue
      }
      switch handoff.take() {
      case .value(let item):
        if item.position < position { continue }  // it was found under the lock before it was offered
        newlyMissed += item.missed
        if let element = take(item.element, at: item.position) { return element }
      case .more:
        switch iteration.look(for: self) {
        case .look: break
        case .item(let item):
          newlyMissed += item.missed
          if let element = take(item.element, at: item.position) { return element }
        case .end(let end):
          finish()
          return try end.get()
        }
      case .nothing:
        if iteration.followsFastest { run.change.alert() }
        await handoff.wait(isolation: actor, onCancel: leave)
      }
    }
    return nil
  }

  @usableFromInline func finish() {
    isOver = true
    batch = Fifo()
  }

  /// With ``SharedBuffering/oldest(_:)``: takes the oldest element behind the slot; makes the slot free if there is none.
  func takeOldest() -> SharedItem<Element>? {
    oldest.withLock { oldest in
      if let item = oldest.items.popFirst() { return item }
      newlyMissed += oldest.missed
      oldest.missed = 0
      handoff.settle()
      return nil
    }
  }

  /// Counts the elements before `place` as lost.
  func skip(to place: UInt64) {
    newlyMissed += Int(place - position)
    progress.wrappingAdd((place - position) << 1, ordering: .acquiringAndReleasing)
  }

  /// Takes an element of the batch.
  ///
  /// - Returns: `nil` if newer elements have replaced it meanwhile.
  @inlinable func take(_ element: Element) -> Element? {
    guard replayed == 0 else {
      replayed -= 1
      missed = 0
      return element
    }
    return take(element, at: position)
  }

  /// - Returns: `nil` if newer elements have replaced it meanwhile.
  @inlinable func take(_ element: Element, at place: UInt64) -> Element? {
    let isLost = iteration.isLost(place)
    advance(to: place + 1)
    if isLost {
      newlyMissed += 1
      return nil
    }
    (missed, newlyMissed) = (newlyMissed, 0)
    return element
  }

  @inlinable func advance(to place: UInt64) {
    let before = progress.wrappingAdd((place - position) << 1, ordering: .sequentiallyConsistent).oldValue
    if before & 1 != 0 {
      iteration.watchedReaderAdvanced(self, to: place)
    } else if iteration.followsFastest, batch.isEmpty {
      run.change.alert()
    }
  }

  // MARK: - The run

  /// Offers an element to the consumer. One that does not fit is found under a lock, or is lost.
  ///
  /// - Parameter limit: With ``SharedBuffering/oldest(_:)``: the number of elements that wait.
  func offer(_ element: Element, at position: UInt64, isOldest limit: Int?) {
    if handoff.offer(SharedItem(position, element)) { return }
    if let limit {
      let waiting = handoff.isFull ? 1 : 0
      oldest.withLock { oldest in
        if oldest.items.count + waiting < limit {
          oldest.items.append(SharedItem(position, element, missed: oldest.missed))
          oldest.missed = 0
        } else {
          oldest.missed += 1
        }
      }
    }
    handoff.alert()
  }

  /// Watches the consumer if it has not reached a position.
  ///
  /// - Returns: Whether it is watched.
  func watch(until place: UInt64) -> Bool {
    if position >= place { return false }
    let before = progress.bitwiseOr(1, ordering: .sequentiallyConsistent).oldValue
    if before >> 1 < place { return true }
    endWatch()  // it has advanced meanwhile
    return false
  }

  func endWatch() { progress.bitwiseAnd(~1, ordering: .acquiringAndReleasing) }
}
