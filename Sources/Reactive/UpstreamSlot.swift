import Synchronization

/// The upstream side of a subscriber: takes one subscription, ends once, from any thread.
///
/// Each subscriber here has one. It refuses a second subscription, cancels one that arrives after the end, and lets go
/// of it at the end, which breaks the circle of a subscription that holds its subscriber.
@usableFromInline
struct UpstreamSlot: ~Copyable, Sendable {
  enum State {  // not private: compiler 6.3 then fails to emit the layout in other files
    case awaiting  // can become: live, over
    case live(any Subscription)  // can become: over
    case over
  }
  private let state = Guarded(State.awaiting)
  @usableFromInline let live = Atomic(false)

  @usableFromInline init() {}

  /// True between the subscription and the end. One load: asked for every value.
  @inlinable var isLive: Bool { live.load(ordering: .acquiring) }

  /// Takes the subscription, or cancels it when there is one already or all is over.
  ///
  /// - Returns: Whether it was taken.
  @usableFromInline
  func attach(_ subscription: any Subscription) -> Bool {
    let taken = state.withLock { state in
      guard case .awaiting = state else { return false }
      state = .live(subscription)
      live.store(true, ordering: .releasing)
      return true
    }
    if !taken { subscription.cancel() }
    return taken
  }

  @usableFromInline
  func request(_ demand: Subscribers.Demand) { subscription?.request(demand) }

  @usableFromInline
  func retract() { (subscription as? any RetractableSubscription)?.retract() }

  private var subscription: (any Subscription)? {
    state.withLock { state in
      guard case .live(let subscription) = state else { return nil }
      return subscription
    }
  }

  /// Ends it because upstream did.
  ///
  /// - Returns: True for the one call that ends a live subscription; only then is the completion passed on.
  @usableFromInline
  func finish() -> Bool { end() != nil }

  /// Ends it from this side. Sticky: a subscription that comes later is cancelled.
  ///
  /// - Returns: True for the one call that ended a live subscription.
  @discardableResult @usableFromInline
  func cancel() -> Bool {
    let subscription = end()
    subscription?.cancel()
    return subscription != nil
  }

  private func end() -> (any Subscription)? {
    state.withLock { state in
      defer { state = .over }
      live.store(false, ordering: .releasing)
      guard case .live(let subscription) = state else { return nil }
      return subscription
    }
  }
}
