import Reactive
import StreamRuntime

extension RemoteState {
  /// The whole state as a publisher: first the snapshot, then the newest state after changes.
  ///
  /// Each value is delivered within the demand. Changes that arrive meanwhile are combined: a slow subscriber receives
  /// the newest state, and no other state waits here. The memory is that of one dictionary, and of those that the
  /// subscriber holds: a change copies a dictionary that the subscriber still holds. Values and completion are
  /// delivered on the connection's event loop, one after another. The first demand subscribes.
  public var snapshots: Snapshots { Snapshots(state: self) }

  /// The states of one remote stream; see ``RemoteState/snapshots``.
  public struct Snapshots: Publisher, Sendable {
    /// The newest event of each key.
    public typealias Output = [Key: StreamEvent]
    /// The type of the failure.
    public typealias Failure = StreamError

    let state: RemoteState

    /// Attaches the subscriber. Its first demand connects, if there is no connection, and subscribes.
    public func receive<Down: Subscriber>(subscriber: Down)
    where Down.Input == [Key: StreamEvent], Down.Failure == StreamError {
      StateSubscription(state, subscriber).start(subscriber)
    }
  }
}

/// What the task and the loop of a ``StateSubscription`` run. Hides the type of the subscriber, which need not be
/// Sendable: it is not used in the transfer.
private protocol StateDelivery: AnyObject, Sendable {
  func deliver()
  func run() async
}

/// The subscription of one subscriber of a state: a task folds the changes, the connection's loop delivers.
final class StateSubscription<Key: Hashable & Sendable, Down: Subscriber>: Subscription, StateDelivery,
  @unchecked Sendable
where Down.Input == [Key: StreamEvent], Down.Failure == StreamError {
  private struct Inner {
    /// `nil` once the subscription is over.
    var down: Down?
    var demand = Subscribers.Demand.none
    /// `nil` before the first snapshot, and while the task changes it: keys may not be compared under the lock.
    var dictionary: [Key: StreamEvent]?
    /// Whether the subscriber does not have the newest state.
    var isChanged = false
    var completion: Subscribers.Completion<StreamError>?
    /// The loop was notified, or must not be yet: the subscriber is still receiving its subscription.
    var isPosted = true
    var task: Task<Void, Never>?

    var hasSignal: Bool {
      guard down != nil else { return false }
      return isChanged ? dictionary != nil && demand > .none : completion != nil
    }
  }

  private enum Signal {
    case value([Key: StreamEvent])
    case completion(Subscribers.Completion<StreamError>)
  }

  private let state: RemoteState<Key>
  private let inner: Locked<Inner>

  init(_ state: RemoteState<Key>, _ down: Down) {
    self.state = state
    inner = Locked(Inner(down: down))
  }

  /// Sends the subscription to its subscriber. No value can overtake it.
  func start(_ subscriber: Down) {
    subscriber.receive(subscription: self)
    update { $0.isPosted = false }
  }

  func request(_ more: Subscribers.Demand) {
    let erased: any StateDelivery = self
    update { inner in
      inner.demand += more
      guard inner.task == nil, inner.down != nil, inner.demand > .none else { return }
      inner.task = Task { await erased.run() }
    }
  }

  func cancel() {
    // The released values may belong to the subscriber: they are released outside the lock.
    let ended = inner.withLock { inner in
      defer { inner = Inner(down: nil) }
      return inner
    }
    ended.task?.cancel()
  }

  /// Notifies the loop if the change makes a signal possible.
  private func update(_ change: (inout Inner) -> Void) {
    let mustPost = inner.withLock { inner in
      change(&inner)
      guard inner.hasSignal, !inner.isPosted else { return false }
      inner.isPosted = true
      return true
    }
    guard mustPost else { return }
    let erased: any StateDelivery = self
    state.request.connection.transport.loop.execute { erased.deliver() }
  }

  // MARK: On the loop

  fileprivate func deliver() {
    let (signal, down): (Signal?, Down?) = inner.withLock { inner in
      inner.isPosted = false
      guard inner.hasSignal, let down = inner.down else { return (nil, nil) }
      if inner.isChanged, let dictionary = inner.dictionary {
        inner.isChanged = false
        inner.demand -= 1
        return (.value(dictionary), down)
      }
      guard let completion = inner.completion else { return (nil, nil) }
      inner.down = nil
      return (.completion(completion), down)
    }
    switch (signal, down) {
    case (.value(let dictionary)?, let down?):
      let more = down.receive(dictionary)
      update { $0.demand += more }
    case (.completion(let completion)?, let down?): down.receive(completion: completion)
    default: break
    }
  }

  // MARK: In the task

  fileprivate func run() async {
    var elements = state.makeAsyncIterator()
    var completion = Subscribers.Completion<StreamError>.finished
    do throws(StreamError) {
      while let element = try await elements.next(isolation: nil) { apply(element) }
    } catch {
      completion = .failure(error)
    }
    update { $0.completion = completion }
  }

  private func apply(_ element: RemoteState<Key>.Element) {
    var dictionary = inner.withLock { $0.dictionary.take() } ?? [:]
    switch element {
    case .snapshot(let state): dictionary = state
    case .change(let key, let event): dictionary[key] = event
    case .removal(let key): dictionary[key] = nil
    }
    update { inner in
      guard inner.down != nil else { return }
      inner.dictionary = dictionary
      inner.isChanged = true
    }
  }
}
