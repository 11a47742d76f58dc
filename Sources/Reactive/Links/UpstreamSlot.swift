import Synchronization

/// The upstream side of a subscriber: accepts one subscription and ends once, on any thread.
///
/// Each subscriber of this module has one. It refuses a second subscription, cancels one that arrives after the end,
/// and releases its subscription at the end, which breaks the reference cycle between subscription and subscriber.
///
/// A publisher may send values and a completion without a subscription: the slot is live from the start.
///
/// The slot is one word, because each stage and sink has one: the address of the subscription, the number of callers
/// inside in the 16 bits above, which user space addresses leave free, and flags in the lowest bits. Callers count
/// themselves in and out; after the end the last caller to leave releases the subscription.
@usableFromInline struct UpstreamSlot: ~Copyable, Sendable {
  @usableFromInline let word: Atomic<UInt>

  /// - Parameter asksWhetherItDrops: Whether to determine if the subscription drops its subscriber after cancellation.
  @usableFromInline init(asksWhetherItDrops: Bool = false) { word = Atomic(asksWhetherItDrops ? Self.asks : 0) }

  /// The bit that is set at the end.
  @usableFromInline static var over: UInt { 1 }
  /// The subscription drops its subscriber after cancellation. Set only if `asksWhetherItDrops`.
  @usableFromInline static var drops: UInt { 2 }
  private static var asks: UInt { 4 }
  private static var caller: UInt { 1 << 48 }
  @usableFromInline static var address: UInt { (1 << 48) - 16 }

  deinit { unsafe Self.object(word.load(ordering: .acquiring))?.release() }

  private static func object(_ word: UInt) -> Unmanaged<SubscriptionObject>? {
    unsafe UnsafeRawPointer(bitPattern: word & address).map { unsafe Unmanaged.fromOpaque($0) }
  }

  /// True until the end, also before the subscription arrives. One load, because it is read for every value.
  @inlinable var isLive: Bool { word.load(ordering: .acquiring) & Self.over == 0 }

  /// True until the subscription arrives or the slot ends.
  @inlinable var isAwaiting: Bool { word.load(ordering: .acquiring) & (Self.address | Self.over) == 0 }

  /// True between the subscription and the end.
  @usableFromInline var hasSubscription: Bool {
    let word = word.load(ordering: .acquiring)
    return word & Self.over == 0 && word & Self.address != 0
  }

  /// Whether the live subscription drops its subscriber after cancellation.
  var dropsSubscriber: Bool {
    var drops = false
    call { drops = $0.dropsSubscriber }
    return drops
  }

  /// Stores the subscription, or cancels it if there already is one or the slot has ended.
  ///
  /// - Returns: Whether it was stored.
  @inlinable @inline(__always)  // a known subscription type also tells whether it is a `SubscriptionObject`
  func attach(_ subscription: any Subscription) -> Bool {
    attach(object: subscription as? SubscriptionObject ?? ForeignSubscription(subscription))
  }

  @usableFromInline func attach(object subscription: SubscriptionObject) -> Bool {
    let object = unsafe Unmanaged.passRetained(subscription)
    let address = unsafe UInt(bitPattern: object.toOpaque())
    precondition(address & ~Self.address == 0, "an address that does not fit: \(address)")
    var before = word.load(ordering: .relaxed)
    let flags = before & Self.asks != 0 && subscription.dropsSubscriber ? Self.drops : 0
    while before & (Self.address | Self.over) == 0 {
      let (exchanged, current) = word.weakCompareExchange(
        expected: before, desired: before + address + flags, ordering: .acquiringAndReleasing)
      if exchanged { return true }
      before = current
    }
    unsafe object.release()
    subscription.cancel()
    return false
  }

  @usableFromInline func request(_ demand: Subscribers.Demand) { call { $0.request(demand) } }

  @usableFromInline func retract() { call { $0.retract() } }

  /// Ends the slot because upstream ended.
  ///
  /// - Parameter body: Called with the subscription, if any, when no further signal reaches either side.
  /// - Returns: True for the one call that ends it; only that call passes the completion on.
  @discardableResult
  @usableFromInline func finish(_ body: (SubscriptionObject?) -> Void = { _ in }) -> Bool {
    guard let before = countIn(ending: true) else { return false }
    if let object = unsafe Self.object(before) { unsafe object._withUnsafeGuaranteedRef(body) } else { body(nil) }
    _ = leave()
    return true
  }

  /// Cancels from downstream. A subscription that arrives later is cancelled, too.
  ///
  /// - Returns: True for the one call that ends it.
  @discardableResult @usableFromInline func cancel() -> Bool { finish { $0?.cancel() } }

  /// Counts a caller in.
  ///
  /// - Returns: False after the end; otherwise the caller must call ``leave()``.
  @usableFromInline func enter() -> Bool { countIn(ending: false) != nil }

  /// Counts a caller out. After the end, the last caller releases the subscription.
  ///
  /// - Returns: True for that last caller.
  @usableFromInline func leave() -> Bool {
    let left = word.subtract(Self.caller, ordering: .acquiringAndReleasing).newValue
    guard left & ~(Self.address | Self.drops | Self.asks) == Self.over else { return false }
    word.store(Self.over, ordering: .releasing)  // no caller is inside, and none can enter
    unsafe Self.object(left)?.release()
    return true
  }

  /// Calls `body` with the live subscription, if any.
  private func call(_ body: (SubscriptionObject) -> Void) {
    guard let before = countIn(ending: false) else { return }
    unsafe Self.object(before)?._withUnsafeGuaranteedRef(body)
    _ = leave()
  }

  /// - Returns: The word before the call; `nil` after the end.
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
