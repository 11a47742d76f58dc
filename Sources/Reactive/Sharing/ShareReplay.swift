extension Publishers {
  /// Shares one upstream subscription among all subscribers. A new subscriber first receives the last values.
  ///
  /// - The demand on upstream equals the largest demand of any subscriber; the others lag. Each subscriber reads at its
  ///   own pace and delays no other; one that falls more than `capacity` values behind loses the oldest.
  /// - Upstream's completion reaches each subscriber after its unread values. Later subscribers receive the last values
  ///   and then the same completion, also a failure; upstream is not subscribed to again.
  /// - When the last subscriber has left (``ShareStart/whileSubscribed(linger:)``), the values stay: the next
  ///   subscriber receives them immediately, followed by those of a new upstream subscription.
  ///
  /// A class: all references share the subscription. When there are neither references nor subscribers, upstream is
  /// cancelled.
  public final class ShareReplay<Upstream: Publisher>: Operator, Equatable {
    /// The shared publisher.
    public let upstream: Upstream
    /// The largest number of values that a new subscriber receives, and by which a subscriber may fall behind.
    public let capacity: Int
    @usableFromInline let log: SharedLog<MemoryStorage<Upstream.Output>, Failure>
    @usableFromInline let onLag: (@Sendable (UInt64) -> Void)?

    /// `upstream.shareReplay(capacity: capacity, start: start, onLag: onLag)`
    @inlinable public convenience init(
      upstream: Upstream, capacity: Int, start: ShareStart = .whileSubscribed(linger: .zero),
      onLag: (@Sendable (UInt64) -> Void)? = nil
    ) {
      self.init(upstream: upstream, capacity: capacity, start: start, schedule: dispatchDelay, onLag: onLag)
    }

    @inlinable init(
      upstream: Upstream, capacity: Int, start: ShareStart, schedule: @escaping Reactive.Delay,
      onLag: (@Sendable (UInt64) -> Void)? = nil
    ) {
      (self.upstream, self.capacity, self.onLag) = (upstream, capacity, onLag)
      log = SharedLog(storage: MemoryStorage(capacity: capacity), start: start, demand: .exact, schedule: schedule)
      log.setUpstream(upstream.eraseToAnyPublisher())
      log.start()
    }

    deinit { log.shutDown() }

    /// Attaches the subscriber; connects to upstream if it is the first.
    @inlinable public func receive<S: Subscriber<Upstream.Output, Failure>>(subscriber: S) {
      LogCursor(log, subscriber, owner: self, description: "ShareReplay", onLag: onLag).begin(replay: capacity)
    }

    /// Whether both are the same object.
    public static func == (lhs: ShareReplay, rhs: ShareReplay) -> Bool { lhs === rhs }
  }
}

extension Publishers.ShareReplay: @unchecked Sendable where Upstream: Sendable, Upstream.Output: Sendable {}

extension Publisher {
  /// Shares one subscription to this publisher; a new subscriber first receives the last values.
  ///
  /// Demand: equals the largest demand of any subscriber.
  ///
  /// - Parameters:
  ///   - capacity: The largest number of values that a new subscriber receives, and by which a subscriber may fall
  ///     behind before it loses the oldest. 0: only new values.
  ///   - start: The time of the upstream subscription. Default: from the first subscriber until the last has left.
  ///   - onLag: Called with the number of values that a subscriber has just lost, before its next value.
  ///
  /// - Precondition: `capacity` is not negative.
  @inlinable public func shareReplay(
    capacity: Int, start: ShareStart = .whileSubscribed(linger: .zero), onLag: (@Sendable (UInt64) -> Void)? = nil
  ) -> Publishers.ShareReplay<Self> {
    Publishers.ShareReplay(upstream: self, capacity: capacity, start: start, onLag: onLag)
  }

  /// Shares one subscription to this publisher; a new subscriber first receives the last `bufferSize` values.
  ///
  /// Demand: equals the largest demand of any subscriber.
  ///
  /// - Precondition: `bufferSize` is not negative.
  @inlinable
  public func shareReplay(_ bufferSize: Int) -> Publishers.ShareReplay<Self> { shareReplay(capacity: bufferSize) }
}
