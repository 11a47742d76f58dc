import Synchronization

// Operators that deliver some of the values, unchanged. An omitted value uses no demand.

extension Publishers {
  /// Delivers the values that the closure accepts.
  public struct Filter<Upstream: Publisher>: CompositePublisher {
    /// Returns whether to deliver a value.
    public let isIncluded: @Sendable (Upstream.Output) -> Bool
    /// The implementation.
    public let body: Staged<Upstream, Upstream.Output, Unthrowing<Upstream.Failure>>

    /// `upstream.filter(isIncluded)`
    @preconcurrency @inlinable public init(
      upstream: Upstream, isIncluded: @escaping @Sendable (Upstream.Output) -> Bool
    ) {
      self.isIncluded = isIncluded
      body = Staged(upstream, "Filter") { isIncluded($0) ? .emit($0) : .skip }
    }
  }

  /// Delivers the values that the closure accepts; fails with the error that it throws.
  public struct TryFilter<Upstream: Publisher>: CompositePublisher {
    /// Returns whether to deliver a value.
    public let isIncluded: @Sendable (Upstream.Output) throws -> Bool
    /// The implementation.
    public let body: Staged<Upstream, Upstream.Output, Throwing<Upstream.Failure>>

    /// `upstream.tryFilter(isIncluded)`
    @preconcurrency @inlinable public init(
      upstream: Upstream, isIncluded: @escaping @Sendable (Upstream.Output) throws -> Bool
    ) {
      self.isIncluded = isIncluded
      body = Staged(upstream, "TryFilter") { try isIncluded($0) ? .emit($0) : .skip }
    }
  }

  /// Delivers the values that differ from the previous one.
  public struct RemoveDuplicates<Upstream: Publisher>: CompositePublisher {
    /// Returns whether the second value equals the first.
    public let predicate: @Sendable (Upstream.Output, Upstream.Output) -> Bool
    /// The implementation.
    public let body: Staged<Upstream, Upstream.Output, Unthrowing<Upstream.Failure>>

    /// `upstream.removeDuplicates(by: predicate)`
    @preconcurrency @inlinable public init(
      upstream: Upstream, predicate: @escaping @Sendable (Upstream.Output, Upstream.Output) -> Bool
    ) {
      self.predicate = predicate
      body = Staged(upstream, "RemoveDuplicates", equal: predicate)
    }
  }

  /// Delivers the values that differ from the previous one; fails with the error that the closure throws.
  public struct TryRemoveDuplicates<Upstream: Publisher>: CompositePublisher {
    /// Returns whether the second value equals the first.
    public let predicate: @Sendable (Upstream.Output, Upstream.Output) throws -> Bool
    /// The implementation.
    public let body: Staged<Upstream, Upstream.Output, Throwing<Upstream.Failure>>

    /// `upstream.tryRemoveDuplicates(by: predicate)`
    @preconcurrency @inlinable public init(
      upstream: Upstream, predicate: @escaping @Sendable (Upstream.Output, Upstream.Output) throws -> Bool
    ) {
      self.predicate = predicate
      body = Staged(upstream, "TryRemoveDuplicates", equal: predicate)
    }
  }

  /// Delivers all values except the first ones.
  public struct Drop<Upstream: Publisher>: Operator {
    /// The upstream publisher.
    public let upstream: Upstream
    /// The number of values to omit.
    public let count: Int

    /// `upstream.dropFirst(count)`
    ///
    /// - Precondition: `count` is not negative.
    @inlinable public init(upstream: Upstream, count: Int) {
      precondition(count >= 0, "count must not be negative, it is \(count)")
      (self.upstream, self.count) = (upstream, count)
    }

    /// Attaches the subscriber and requests `count` values from upstream.
    @inlinable public func receive<S: Subscriber<Upstream.Output, Failure>>(subscriber: S) {
      let handle = DropHandle(count)
      var left = count
      let stage = Stage<Upstream.Output, Upstream.Output, Never> { value in
        if left == 0 { return .emit(value) }
        left -= 1
        return handle.isRetracted.load(ordering: .acquiring) ? .skip : .keep
      }
      upstream.subscribe(StageLink(stage, Unthrowing(), handle, down: subscriber))
    }
  }

  /// Delivers the first value that the closure rejects, and all after it.
  public struct DropWhile<Upstream: Publisher>: CompositePublisher {
    /// Returns whether to omit a value.
    public let predicate: @Sendable (Upstream.Output) -> Bool
    /// The implementation.
    public let body: Staged<Upstream, Upstream.Output, Unthrowing<Upstream.Failure>>

    /// `upstream.drop(while: predicate)`
    @preconcurrency @inlinable public init(upstream: Upstream, predicate: @escaping @Sendable (Upstream.Output) -> Bool)
    {
      self.predicate = predicate
      body = Staged(upstream, "DropWhile", from: true) { isDropping, value in
        isDropping = isDropping && predicate(value)
        return isDropping ? .skip : .emit(value)
      }
    }
  }

  /// Delivers the first value that the closure rejects, and all after it; fails with the error that it throws.
  public struct TryDropWhile<Upstream: Publisher>: CompositePublisher {
    /// Returns whether to omit a value.
    public let predicate: @Sendable (Upstream.Output) throws -> Bool
    /// The implementation.
    public let body: Staged<Upstream, Upstream.Output, Throwing<Upstream.Failure>>

    /// `upstream.tryDrop(while: predicate)`
    @preconcurrency @inlinable public init(
      upstream: Upstream, predicate: @escaping @Sendable (Upstream.Output) throws -> Bool
    ) {
      self.predicate = predicate
      body = Staged(upstream, "TryDropWhile", from: true) { isDropping, value in
        isDropping = try isDropping && predicate(value)
        return isDropping ? .skip : .emit(value)
      }
    }
  }
}

/// Requests the values to omit in addition to the subscriber's demand. When that demand is taken back, so are they: from
/// then on each omitted value is replaced by another one.
@usableFromInline final class DropHandle: UpstreamHandle {
  @usableFromInline let count: Int
  @usableFromInline let isRetracted = Atomic(false)

  @usableFromInline init(_ count: Int) {
    self.count = count
    super.init("Drop")
  }

  @usableFromInline override func didStart() {
    if count > 0, !isRetracted.load(ordering: .acquiring) { slot.request(.max(count)) }
  }

  @usableFromInline override func retract() {
    isRetracted.store(true, ordering: .releasing)
    super.retract()
  }
}

extension Publishers.Staged where Mode: Fallibility, Output == Upstream.Output {
  /// Delivers the values that are not equal to the previous one.
  @inlinable init(
    _ upstream: Upstream, _ name: String, equal: @escaping (Output, Output) throws(Mode.Thrown) -> Bool
  ) {
    self.init(upstream, name, from: nil as Output?) { previous, value throws(Mode.Thrown) in
      if let previous, try equal(previous, value) { return .skip }
      previous = value
      return .emit(value)
    }
  }
}

extension Publishers.Drop: Equatable where Upstream: Equatable {}

// Two closures in a row make one operator, as in Combine: their types say so, and a value passes one link.

extension Publishers.Filter {
  /// Delivers the values that both closures accept; an omitted value uses no demand.
  @preconcurrency @inlinable public func filter(_ isIncluded: @escaping @Sendable (Output) -> Bool)
    -> Publishers.Filter<Upstream>
  {
    .init(upstream: upstream) { [first = self.isIncluded] in first($0) && isIncluded($0) }
  }

  /// Delivers the values that both closures accept; an omitted value uses no demand. Fails with the first error thrown.
  @preconcurrency @inlinable public func tryFilter(_ isIncluded: @escaping @Sendable (Output) throws -> Bool)
    -> Publishers.TryFilter<Upstream>
  {
    .init(upstream: upstream) { [first = self.isIncluded] in try first($0) && isIncluded($0) }
  }
}

extension Publishers.TryFilter {
  /// Delivers the values that both closures accept; an omitted value uses no demand.
  @preconcurrency @inlinable public func filter(_ isIncluded: @escaping @Sendable (Output) -> Bool)
    -> Publishers.TryFilter<Upstream>
  {
    .init(upstream: upstream) { [first = self.isIncluded] in try first($0) && isIncluded($0) }
  }

  /// Delivers the values that both closures accept; an omitted value uses no demand. Fails with the first error thrown.
  @preconcurrency @inlinable public func tryFilter(_ isIncluded: @escaping @Sendable (Output) throws -> Bool)
    -> Publishers.TryFilter<Upstream>
  {
    .init(upstream: upstream) { [first = self.isIncluded] in try first($0) && isIncluded($0) }
  }
}

extension Publisher {
  /// Delivers the values that the closure accepts; an omitted value uses no demand.
  @preconcurrency @inlinable public func filter(_ isIncluded: @escaping @Sendable (Output) -> Bool)
    -> Publishers.Filter<Self>
  {
    .init(upstream: self, isIncluded: isIncluded)
  }

  /// Delivers the values that the closure accepts; an omitted value uses no demand. Fails with the first error thrown.
  @preconcurrency @inlinable public func tryFilter(_ isIncluded: @escaping @Sendable (Output) throws -> Bool)
    -> Publishers.TryFilter<Self>
  {
    .init(upstream: self, isIncluded: isIncluded)
  }

  /// Delivers the values that the closure, given the previous value, does not report as equal; an omitted value uses no
  /// demand.
  @preconcurrency @inlinable public func removeDuplicates(by predicate: @escaping @Sendable (Output, Output) -> Bool)
    -> Publishers.RemoveDuplicates<Self>
  {
    .init(upstream: self, predicate: predicate)
  }

  /// Delivers the values that the closure, given the previous value, does not report as equal; an omitted value uses no
  /// demand. Fails with the first error thrown.
  @preconcurrency @inlinable public func tryRemoveDuplicates(
    by predicate: @escaping @Sendable (Output, Output) throws -> Bool
  ) -> Publishers.TryRemoveDuplicates<Self> {
    .init(upstream: self, predicate: predicate)
  }

  /// Omits values until the closure rejects one; delivers that value and all after it. An omitted value uses no demand.
  @preconcurrency @inlinable public func drop(while predicate: @escaping @Sendable (Output) -> Bool)
    -> Publishers.DropWhile<Self>
  {
    .init(upstream: self, predicate: predicate)
  }

  /// Omits values until the closure rejects one; delivers that value and all after it. An omitted value uses no demand.
  /// Fails with the first error thrown.
  @preconcurrency @inlinable public func tryDrop(while predicate: @escaping @Sendable (Output) throws -> Bool)
    -> Publishers.TryDropWhile<Self>
  {
    .init(upstream: self, predicate: predicate)
  }

  /// Omits the first `count` values. Demand: `count` values, requested on subscription, and the subscriber's.
  ///
  /// - Precondition: `count` is not negative.
  @inlinable public func dropFirst(_ count: Int = 1) -> Publishers.Drop<Self> { .init(upstream: self, count: count) }
}

extension Publisher where Output: Equatable {
  /// Delivers the values that differ from the previous one; an omitted value uses no demand.
  @inlinable public func removeDuplicates() -> Publishers.RemoveDuplicates<Self> { removeDuplicates(by: own(==)) }
}
