import Synchronization

/// An object that says when it is about to change.
///
/// Without an `objectWillChange` of its own it has one that tells before any of its ``Published`` properties is set.
public protocol ObservableObject: AnyObject {
  /// Delivers before a change.
  associatedtype ObjectWillChangePublisher: Publisher = ObservableObjectPublisher
  where ObjectWillChangePublisher.Failure == Never

  /// Delivers before a change.
  var objectWillChange: ObjectWillChangePublisher { get }
}

extension ObservableObject where ObjectWillChangePublisher == ObservableObjectPublisher {
  /// Delivers before a ``Published`` property is set. The same publisher as long as the object lives.
  public var objectWillChange: ObservableObjectPublisher { ObservedObjects.shared.publisher(of: self) }
}

/// Delivers that something is about to change.
public final class ObservableObjectPublisher: Publisher, Sendable {
  /// Nothing but the fact.
  public typealias Output = Void
  /// Can't fail.
  public typealias Failure = Never
  private let subject = PassthroughSubject<Void, Never>()

  /// A publisher for an `objectWillChange` of one's own.
  public init() {}

  /// Tells all subscribers.
  public func send() { subject.send() }

  /// Attaches the subscriber, which is told of each change, whatever it asks for.
  public func receive<S: Subscriber<Void, Never>>(subscriber: S) { subject.hub.attach(subscriber, demand: .unlimited) }
}

/// The publishers of objects that have none of their own, made when first asked for.
///
/// Combine finds the ``Published`` properties by reflection and puts the publisher into each. A table needs none of the
/// runtime's secrets, and also serves objects without such a property.
final class ObservedObjects: Sendable {
  static let shared = ObservedObjects()

  private struct Entry {
    weak var object: AnyObject?
    let publisher: ObservableObjectPublisher
  }
  private struct Table {
    var entries: [ObjectIdentifier: Entry] = [:]
    /// When there are so many entries, those of objects that are gone are removed.
    var limit = 64
  }
  private let table = Guarded(Table())
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

  /// Tells those who observe `object`, if any do.
  func willChange(_ object: AnyObject) {
    guard isInUse.load(ordering: .relaxed) else { return }
    let publisher = table.withLock { table -> ObservableObjectPublisher? in
      guard let entry = table.entries[ObjectIdentifier(object)], entry.object === object else { return nil }
      return entry.publisher
    }
    publisher?.send()
  }
}
