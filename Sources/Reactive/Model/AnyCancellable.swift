import Synchronization

/// Cancels once: when told to, or else when released.
///
/// Sendable because cancelling is thread-safe by the contract of ``Cancellable``.
public final class AnyCancellable: Cancellable, Hashable, @unchecked Sendable {
  /// Taken by the one who sets `isDone`.
  @usableFromInline var action: (() -> Void)?
  @usableFromInline let isDone = Atomic(false)

  /// - Parameter cancel: Called at most once, on whatever thread cancels or releases.
  public init(_ cancel: @escaping () -> Void) { action = cancel }

  /// Cancels `canceller`, which is held until then.
  @inlinable public init<C: Cancellable>(_ canceller: C) { action = { canceller.cancel() } }

  deinit { cancel() }

  /// Cancels, unless that was done already.
  public func cancel() {
    if !isDone.exchange(true, ordering: .acquiringAndReleasing) { action.take()?() }
  }

  /// Keeps this in a collection, which then decides how long.
  public func store<C: RangeReplaceableCollection>(in collection: inout C) where C.Element == AnyCancellable {
    collection.append(self)
  }

  /// Keeps this in a set, which then decides how long.
  public func store(in set: inout Set<AnyCancellable>) { set.insert(self) }

  /// The same object.
  public static func == (lhs: AnyCancellable, rhs: AnyCancellable) -> Bool { lhs === rhs }

  /// Hashes the object's identity.
  public func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(self)) }
}

extension Cancellable {
  /// Keeps this in a collection, which then decides how long.
  public func store<C: RangeReplaceableCollection>(in collection: inout C) where C.Element == AnyCancellable {
    AnyCancellable(self).store(in: &collection)
  }

  /// Keeps this in a set, which then decides how long.
  public func store(in set: inout Set<AnyCancellable>) { AnyCancellable(self).store(in: &set) }
}
