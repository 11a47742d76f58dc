extension Publishers {
  /// One upstream subscription for all subscribers, who first get the last values.
  ///
  /// - With demand from several, upstream is asked for as much as the one who wants most; the others lag. Each reads at
  ///   its own pace; who falls more than `capacity` values behind loses the oldest, and nobody waits.
  /// - Upstream's end comes to each subscriber after the values it has not taken yet. Later subscribers get the last
  ///   values and then the same end, be it a failure; upstream is not subscribed to again.
  /// - When the last subscriber has left (``ShareStart/whileSubscribed(linger:)``) the values stay: the next one gets
  ///   them at once, and a new upstream subscription behind them.
  ///
  /// A class: all who hold it share. When nobody holds it and nobody is subscribed, upstream is cancelled.
  public final class ShareReplay<Upstream: Publisher>: Operator, Equatable {
    /// What is shared.
    public let upstream: Upstream
    /// How many values a new subscriber gets at most, and how far one may fall behind.
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

    /// The same shared subscription.
    public static func == (lhs: ShareReplay, rhs: ShareReplay) -> Bool { lhs === rhs }
  }
}

extension Publishers.ShareReplay: @unchecked Sendable where Upstream: Sendable, Upstream.Output: Sendable {}

extension Publisher {
  /// Shares one subscription to this publisher; a new subscriber first gets the last values.
  ///
  /// Demand: upstream is asked for as much as the one who wants most.
  ///
  /// - Parameters:
  ///   - capacity: How many values a new subscriber gets at most, and how far one may fall behind before it loses the
  ///     oldest. 0: live values only.
  ///   - start: When to subscribe. Default: with the first subscriber, until the last has left.
  ///   - onLag: Called with the number of values that a subscriber has just lost, before its next value.
  @inlinable public func shareReplay(
    capacity: Int, start: ShareStart = .whileSubscribed(linger: .zero), onLag: (@Sendable (UInt64) -> Void)? = nil
  ) -> Publishers.ShareReplay<Self> {
    Publishers.ShareReplay(upstream: self, capacity: capacity, start: start, onLag: onLag)
  }

  /// Shares one subscription to this publisher; a new subscriber first gets the last `bufferSize` values.
  ///
  /// Demand: upstream is asked for as much as the one who wants most.
  @inlinable
  public func shareReplay(_ bufferSize: Int) -> Publishers.ShareReplay<Self> { shareReplay(capacity: bufferSize) }
}
