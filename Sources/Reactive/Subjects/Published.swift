import Locks

/// Publishes a property of a class: its value, and each new one just before the property has it.
///
///     class Weather { @Published var temperature = 20.0 }
///     let sink = weather.$temperature.sink { print($0) }
///
/// Demand: a subscriber without demand misses the values that are set meanwhile. When it requests a value, it receives
/// the current one, unless it already has that.
@propertyWrapper
public struct Published<Value> {
  fileprivate var store: PublishedStore<Value>

  /// Creates a property with this value.
  public init(wrappedValue: Value) { store = PublishedStore(wrappedValue) }
  /// Creates a property with this value.
  public init(initialValue: Value) { self.init(wrappedValue: initialValue) }

  /// Only properties of classes can be published.
  @available(*, unavailable, message: "@Published is only available on properties of classes")
  public var wrappedValue: Value {
    get { fatalError("@Published is only available on properties of classes") }
    set { fatalError("@Published is only available on properties of classes") }
  }

  /// The property's publisher. Assigning to it has no effect: the value belongs to the property.
  public var projectedValue: Publisher {
    get { Publisher(store: store) }
    set {}
  }

  /// The property's value. Setting it first notifies the object's `objectWillChange`, then the property's own
  /// publisher.
  public static subscript<EnclosingSelf: AnyObject>(
    _enclosingInstance object: EnclosingSelf, wrapped wrappedKeyPath: ReferenceWritableKeyPath<EnclosingSelf, Value>,
    storage storageKeyPath: ReferenceWritableKeyPath<EnclosingSelf, Self>
  ) -> Value {
    get { object[keyPath: storageKeyPath].store.value }
    set { object[keyPath: storageKeyPath].store.set(newValue, in: object) }
  }

  /// The publisher of the property.
  public static subscript<EnclosingSelf: AnyObject>(
    _enclosingInstance object: EnclosingSelf,
    projected projectedKeyPath: ReferenceWritableKeyPath<EnclosingSelf, Publisher>,
    storage storageKeyPath: ReferenceWritableKeyPath<EnclosingSelf, Self>
  ) -> Publisher {
    get {
      let store = object[keyPath: storageKeyPath].store
      store.owner = object
      return Publisher(store: store)
    }
    set {}
  }

  /// Delivers a property's value, and each new one just before the property changes. It does not complete when the
  /// object is deallocated.
  public struct Publisher: Reactive.Publisher {
    /// The property's value.
    public typealias Output = Value
    /// `Never`: this publisher does not fail.
    public typealias Failure = Never
    fileprivate let store: PublishedStore<Value>

    /// Attaches the subscriber, which receives the current value.
    public func receive<S: Subscriber<Value, Never>>(subscriber: S) { store.publisher.subscribe(subscriber) }
  }
}

extension Published: @unchecked Sendable where Value: Sendable {}  // the store guards its state
extension Published.Publisher: @unchecked Sendable where Value: Sendable {}  // the same

extension Publisher where Failure == Never {
  /// Assigns each value to a published property until this publisher completes or the object is deallocated. There is
  /// no cancellable to keep.
  ///
  /// Demand: unlimited.
  public func assign(to published: inout Published<Output>.Publisher) {
    let store = published.store
    let sink = Subscribers.Sink<Output, Never>(receiveCompletion: { _ in }) { [weak store] value in
      if let store { store.set(value, in: store.owner) }
    }
    store.keep(AnyCancellable(sink))
    subscribe(sink)
  }
}

/// The state that a published property and its publishers share.
private final class PublishedStore<Value>: @unchecked Sendable {
  // Sendable: all state is guarded, and values reach one subscriber at a time.

  private struct State {
    var value: Value
    /// `nil` before the publisher is first used.
    var subject: CurrentValueSubject<Value, Never>?
    weak var owner: AnyObject?
    var assignments: [AnyCancellable] = []
  }
  private let state: Locked<State>

  init(_ value: Value) { state = Locked(State(value: value)) }

  var value: Value { state.withLock { $0.value } }

  /// The object that changes when the property is assigned.
  var owner: AnyObject? {
    get { state.withLock { $0.owner } }
    set { state.withLock { $0.owner = newValue } }
  }

  var publisher: CurrentValueSubject<Value, Never> {
    state.withLock { state in
      let subject = state.subject ?? CurrentValueSubject(state.value)
      state.subject = subject
      return subject
    }
  }

  func set(_ new: Value, in object: AnyObject?) {
    if let object { ObservedObjects.shared.willChange(object) }
    let (subject, old) = state.withLock { state -> (CurrentValueSubject<Value, Never>?, Value?) in
      guard state.subject == nil else { return (state.subject, nil) }
      defer { state.value = new }
      return (nil, state.value)
    }
    _ = consume old
    guard let subject else { return }
    subject.send(new)
    let replaced = state.withLock { state in
      defer { state.value = new }
      return state.value
    }
    _ = consume replaced
  }

  func keep(_ assignment: AnyCancellable) { state.withLock { $0.assignments.append(assignment) } }
}
