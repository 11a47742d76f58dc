import Synchronization

/// Performs a cancellation once: when it is cancelled, or else when it is released.
///
/// Sendable, because ``Cancellable`` requires thread-safe cancellation.
public final class AnyCancellable: Cancellable, Hashable, @unchecked Sendable {
  /// Taken by the thread that sets `isDone`.
  @usableFromInline var action: (() -> Void)?
  @usableFromInline let isDone = Atomic(false)

  /// - Parameter cancel: Called at most once, on the thread that cancels or releases this object.
  @preconcurrency public init(_ cancel: @escaping @Sendable () -> Void) { action = cancel }

  /// Cancels `canceller`, which is held until then.
  @inlinable public init<C: Cancellable>(_ canceller: C) { action = { canceller.cancel() } }

  deinit { cancel() }

  /// Cancels, unless already cancelled.
  public func cancel() {
    if !isDone.exchange(true, ordering: .acquiringAndReleasing) { action.take()?() }
  }

  /// Stores this object in a collection, whose lifetime then determines the cancellation.
  public func store<C: RangeReplaceableCollection>(in collection: inout C) where C.Element == AnyCancellable {
    collection.append(self)
  }

  /// Stores this object in a set, whose lifetime then determines the cancellation.
  public func store(in set: inout Set<AnyCancellable>) { set.insert(self) }

  /// Whether both are the same object.
  public static func == (lhs: AnyCancellable, rhs: AnyCancellable) -> Bool { lhs === rhs }

  /// Hashes the object's identity.
  public func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(self)) }
}

extension Cancellable {
  /// Stores this cancellable in a collection, whose lifetime then determines the cancellation.
  public func store<C: RangeReplaceableCollection>(in collection: inout C) where C.Element == AnyCancellable {
    AnyCancellable(self).store(in: &collection)
  }

  /// Stores this cancellable in a set, whose lifetime then determines the cancellation.
  public func store(in set: inout Set<AnyCancellable>) { AnyCancellable(self).store(in: &set) }
}
