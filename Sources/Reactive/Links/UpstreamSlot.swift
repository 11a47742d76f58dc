import Synchronization

/// The upstream side of a subscriber: takes one subscription, ends once, from any thread.
///
/// Each subscriber here has one. It refuses a second subscription, cancels one that arrives after the end, and lets go
/// of it at the end, which breaks the circle of a subscription that holds its subscriber.
///
/// A publisher may send values, and the end, without a subscription: the slot is live from the start.
///
/// One word, since there is one per stage and sink: the address of the subscription, how many callers are inside at the
/// moment in the 16 bits above, which addresses in user space leave free, and flags in the lowest bits. A caller counts
/// itself in and out; after the end the last one out lets go of the subscription.
@usableFromInline struct UpstreamSlot: ~Copyable, Sendable {
  @usableFromInline let word: Atomic<UInt>

  /// - Parameter asksWhetherItDrops: Finds out of the subscription whether it drops its subscriber.
  @usableFromInline init(asksWhetherItDrops: Bool = false) { word = Atomic(asksWhetherItDrops ? Self.asks : 0) }

  /// The bit that is set at the end.
  @usableFromInline static var over: UInt { 1 }
  /// The subscription drops its subscriber once it was cancelled. Not set unless somebody asks.
  @usableFromInline static var drops: UInt { 2 }
  private static var asks: UInt { 4 }
  private static var caller: UInt { 1 << 48 }
  @usableFromInline static var address: UInt { (1 << 48) - 16 }

  deinit { Self.object(word.load(ordering: .acquiring))?.release() }

  private static func object(_ word: UInt) -> Unmanaged<SubscriptionObject>? {
    UnsafeRawPointer(bitPattern: word & address).map { unsafe Unmanaged.fromOpaque($0) }
  }

  /// True until the end, also before the subscription. One load: asked for every value.
  @inlinable var isLive: Bool { word.load(ordering: .acquiring) & Self.over == 0 }

  /// True until the subscription, or the end.
  @inlinable var isAwaiting: Bool { word.load(ordering: .acquiring) & (Self.address | Self.over) == 0 }

  /// True between the subscription and the end.
  @usableFromInline var hasSubscription: Bool {
    let word = word.load(ordering: .acquiring)
    return word & Self.over == 0 && word & Self.address != 0
  }

  /// Whether the live subscription drops its subscriber once it was cancelled.
  var dropsSubscriber: Bool {
    var drops = false
    call { drops = $0.dropsSubscriber }
    return drops
  }

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
    var before = word.load(ordering: .relaxed)
    let flags = before & Self.asks != 0 && subscription.dropsSubscriber ? Self.drops : 0
    while before & (Self.address | Self.over) == 0 {
      let (exchanged, current) = word.weakCompareExchange(
        expected: before, desired: before + address + flags, ordering: .acquiringAndReleasing)
      if exchanged { return true }
      before = current
    }
    object.release()
    subscription.cancel()
    return false
  }

  @usableFromInline func request(_ demand: Subscribers.Demand) { call { $0.request(demand) } }

  @usableFromInline func retract() { call { $0.retract() } }

  /// Ends it because upstream did.
  ///
  /// - Parameter body: Called with the subscription, if there is one, when nothing reaches either side any more.
  /// - Returns: True for the one call that ends it; only then is the completion passed on.
  @discardableResult
  @usableFromInline func finish(_ body: (SubscriptionObject?) -> Void = { _ in }) -> Bool {
    guard let before = countIn(ending: true) else { return false }
    if let object = Self.object(before) { object._withUnsafeGuaranteedRef(body) } else { body(nil) }
    _ = leave()
    return true
  }

  /// Ends it from this side. Sticky: a subscription that comes later is cancelled.
  ///
  /// - Returns: True for the one call that ends it.
  @discardableResult @usableFromInline func cancel() -> Bool { finish { $0?.cancel() } }

  /// Counts a caller in.
  ///
  /// - Returns: False after the end. Otherwise ``leave()`` is due.
  @usableFromInline func enter() -> Bool { countIn(ending: false) != nil }

  /// Counts a caller out, and lets go of the subscription with the last one after the end.
  ///
  /// - Returns: True for that one.
  @usableFromInline func leave() -> Bool {
    let left = word.subtract(Self.caller, ordering: .acquiringAndReleasing).newValue
    guard left & ~(Self.address | Self.drops | Self.asks) == Self.over else { return false }
    word.store(Self.over, ordering: .releasing)  // no caller is inside, and none enters any more
    Self.object(left)?.release()
    return true
  }

  /// Calls the live subscription, if there is one.
  private func call(_ body: (SubscriptionObject) -> Void) {
    guard let before = countIn(ending: false) else { return }
    Self.object(before)?._withUnsafeGuaranteedRef(body)
    _ = leave()
  }

  /// - Returns: The word before; `nil` after the end.
  private func countIn(ending: Bool) -> UInt? {
    var before = word.load(ordering: .acquiring)
    while before & Self.over == 0 {
      let (exchanged, current) = word.weakCompareExchange(
        expected: before, desired: (before + Self.caller) | (ending ? Self.over : 0), ordering: .acquiringAndReleasing)
      if exchanged { return before }
      before = current
    }
    return nil
  }
}
