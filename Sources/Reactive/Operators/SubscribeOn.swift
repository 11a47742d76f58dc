import Synchronization

extension Publishers {
  /// Subscribes to upstream on a scheduler, and sends requests and cancellation there, too.
  public struct SubscribeOn<Upstream: Publisher, Context: Scheduler>: Operator {
    /// The upstream publisher.
    public let upstream: Upstream
    /// The scheduler on which upstream is subscribed to, requested from, and cancelled.
    public let scheduler: Context
    /// Options for the scheduler.
    public let options: Context.SchedulerOptions?

    /// `upstream.subscribe(on: scheduler, options: options)`
    @inlinable public init(upstream: Upstream, scheduler: Context, options: Context.SchedulerOptions?) {
      (self.upstream, self.scheduler, self.options) = (upstream, scheduler, options)
    }

    /// Attaches the subscriber on the scheduler.
    @inlinable public func receive<S: Subscriber<Upstream.Output, Failure>>(subscriber: S) {
      let link = RelayLink(SubscribeOnHandle(scheduler, options), subscriber)
      scheduler.schedule(options: options) { [upstream] in upstream.subscribe(link) }
    }
  }
}

/// Sends requests and cancellation to upstream by way of the scheduler.
@usableFromInline final class SubscribeOnHandle<Context: Scheduler>: UpstreamHandle {
  @usableFromInline let scheduler: Context
  @usableFromInline let options: Context.SchedulerOptions?

  @inlinable init(_ scheduler: Context, _ options: Context.SchedulerOptions?) {
    (self.scheduler, self.options) = (scheduler, options)
    super.init("SubscribeOn")
  }

  @inlinable override func request(_ demand: Subscribers.Demand) { schedule { $0.request(demand) } }

  @inlinable override func retract() { schedule { $0.retract() } }

  @inlinable override func cancel() {
    if !cancelled.exchange(true, ordering: .acquiringAndReleasing) { schedule { $0.cancel() } }
  }

  override var dropsSubscriber: Bool { false }  // only after the scheduler has run

  @inlinable func schedule(_ action: @escaping (borrowing UpstreamSlot) -> Void) {
    guard slot.isLive else { return }
    scheduler.schedule(options: options) { action(self.slot) }
  }
}

extension Publisher {
  /// Subscribes to this publisher, requests values from it and cancels it on `scheduler`. The values arrive on the
  /// threads on which this publisher sends them.
  ///
  /// Demand: passed upstream unchanged, by way of the scheduler.
  @inlinable public func subscribe<S: Scheduler>(
    on scheduler: S, options: S.SchedulerOptions? = nil
  ) -> Publishers.SubscribeOn<Self, S> {
    Publishers.SubscribeOn(upstream: self, scheduler: scheduler, options: options)
  }
}
