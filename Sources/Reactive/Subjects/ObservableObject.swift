import Locks
import Synchronization

/// An object with a publisher that sends a value before the object changes.
///
/// An object without its own `objectWillChange` has one that sends before any of its ``Published`` properties is set.
public protocol ObservableObject: AnyObject {
  /// The type of the publisher that sends before a change.
  associatedtype ObjectWillChangePublisher: Publisher = ObservableObjectPublisher
  where ObjectWillChangePublisher.Failure == Never

  /// Sends a value before a change.
  var objectWillChange: ObjectWillChangePublisher { get }
}

extension ObservableObject where ObjectWillChangePublisher == ObservableObjectPublisher {
  /// Sends a value before a ``Published`` property is set. The same publisher throughout the object's lifetime.
  public var objectWillChange: ObservableObjectPublisher { ObservedObjects.shared.publisher(of: self) }
}

/// Sends a value when its object is about to change.
public final class ObservableObjectPublisher: Publisher, Sendable {
  /// No value: only the event matters.
  public typealias Output = Void
  /// `Never`: this publisher does not fail.
  public typealias Failure = Never
  private let subject = PassthroughSubject<Void, Never>()

  /// Creates a publisher for a custom `objectWillChange`.
  public init() {}

  /// Notifies all subscribers.
  public func send() { subject.send() }

  /// Attaches the subscriber, which is notified of each change independent of its demand.
  public func receive<S: Subscriber<Void, Never>>(subscriber: S) { subject.hub.attach(subscriber, demand: .unlimited) }
}

/// The publishers of objects without their own, created on first use.
///
/// Combine finds the ``Published`` properties by reflection and stores the publisher in each. A table does not depend
/// on runtime internals and also serves objects without such a property.
final class ObservedObjects: Sendable {
  static let shared = ObservedObjects()

  private struct Entry {
    weak var object: AnyObject?
    let publisher: ObservableObjectPublisher
  }
  private struct Table {
    var entries: [ObjectIdentifier: Entry] = [:]
    /// The number of entries at which those of deallocated objects are removed.
    var limit = 64
  }
  private let table = Locked(Table())
  private let isInUse = Atomic(false)

  func publisher(of object: AnyObject) -> ObservableObjectPublisher {
    isInUse.store(true, ordering: .relaxed)
    let (publisher, removed) = table.withLock { table -> (ObservableObjectPublisher, [Entry]) in
      let id = ObjectIdentifier(object)
      let old = table.entries[id]
      if let old, old.object === object { return (old.publisher, []) }
      let new = Entry(object: object, publisher: ObservableObjectPublisher())
      table.entries[id] = new
      guard table.entries.count >= table.limit else { return (new.publisher, old.map { [$0] } ?? []) }
      let stale = table.entries.values.filter { $0.object == nil }
      table.entries = table.entries.filter { $0.value.object != nil }
      table.limit = 2 * max(32, table.entries.count)
      return (new.publisher, stale + (old.map { [$0] } ?? []))
    }
    _ = consume removed
    return publisher
  }

  /// Notifies the observers of `object`, if any.
  func willChange(_ object: AnyObject) {
    guard isInUse.load(ordering: .relaxed) else { return }
    let publisher = table.withLock { table -> ObservableObjectPublisher? in
      guard let entry = table.entries[ObjectIdentifier(object)], entry.object === object else { return nil }
      return entry.publisher
    }
    publisher?.send()
  }
}
