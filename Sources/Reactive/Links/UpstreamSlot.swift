import Synchronization

/// The upstream side of a subscriber: takes one subscription, ends once, from any thread.
///
/// Each subscriber here has one. It refuses a second subscription, cancels one that arrives after the end, and lets go
/// of it at the end, which breaks the circle of a subscription that holds its subscriber.
///
/// One word, since there is one per stage and sink: the address of the subscription, how many are calling it at the
/// moment in the 16 bits above, which addresses in user space leave free, and the phase in the lowest bits. Who calls
/// it counts itself in and out; after the end the last one out lets go of it.
@usableFromInline struct UpstreamSlot: ~Copyable, Sendable {
  @usableFromInline let word = Atomic<UInt>(Self.awaiting)

  @usableFromInline init() {}

  /// The bit that no live subscription has.
  @usableFromInline static var idle: UInt { 1 }
  private static var awaiting: UInt { 3 }
  private static var over: UInt { 1 }
  private static var caller: UInt { 1 << 48 }
  private static var address: UInt { caller - 8 }

  deinit {
    let last = word.load(ordering: .acquiring)
    if last & Self.idle == 0 { Self.object(last)?.release() }
  }

  private static func object(_ word: UInt) -> Unmanaged<SubscriptionObject>? {
    UnsafeRawPointer(bitPattern: word & address).map { unsafe Unmanaged.fromOpaque($0) }
  }

  /// True between the subscription and the end. One load: asked for every value.
  @inlinable var isLive: Bool { word.load(ordering: .acquiring) & Self.idle == 0 }

  /// Takes the subscription, or cancels it when there is one already or all is over.
  ///
  /// - Returns: Whether it was taken.
  @inlinable @inline(__always)  // where the subscription's type is known, that it is an object of ours is, too
  func attach(_ subscription: any Subscription) -> Bool {
    attach(object: subscription as? SubscriptionObject ?? ForeignSubscription(subscription))
  }

  @usableFromInline func attach(object subscription: SubscriptionObject) -> Bool {
    let object = Unmanaged.passRetained(subscription)
    let address = UInt(bitPattern: object.toOpaque())
    precondition(address & ~Self.address == 0, "an address that does not fit: \(address)")
    if word.compareExchange(expected: Self.awaiting, desired: address, ordering: .acquiringAndReleasing).exchanged {
      return true
    }
    object.release()
    subscription.cancel()
    return false
  }

  @usableFromInline func request(_ demand: Subscribers.Demand) { call(ending: false) { $0.request(demand) } }

  @usableFromInline func retract() { call(ending: false) { $0.retract() } }

  /// Ends it because upstream did.
  ///
  /// - Returns: True for the one call that ends a live subscription; only then is the completion passed on.
  @usableFromInline func finish() -> Bool { call(ending: true) { _ in } }

  /// Ends it from this side. Sticky: a subscription that comes later is cancelled.
  ///
  /// - Returns: True for the one call that ended a live subscription.
  @discardableResult @usableFromInline func cancel() -> Bool { call(ending: true) { $0.cancel() } }

  /// Calls the live subscription, if there is one.
  @discardableResult private func call(ending: Bool, _ body: (SubscriptionObject) -> Void) -> Bool {
    var before = word.load(ordering: .acquiring)
    while true {
      if before & Self.idle != 0 {
        guard ending, before == Self.awaiting else { return false }
      }
      let after =
        before == Self.awaiting ? Self.over : (before + Self.caller) | (ending ? Self.over : 0)
      let (exchanged, current) = word.weakCompareExchange(
        expected: before, desired: after, ordering: .acquiringAndReleasing)
      if exchanged { break }
      before = current
    }
    guard before != Self.awaiting, let object = Self.object(before) else { return false }
    object._withUnsafeGuaranteedRef(body)
    let left = word.subtract(Self.caller, ordering: .acquiringAndReleasing).newValue
    if left & ~Self.address == Self.over {  // nobody else is in, and nobody comes any more
      word.store(Self.over, ordering: .releasing)
      object.release()
    }
    return true
  }
}
