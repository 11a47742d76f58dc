import Synchronization

extension Publishers {
  /// Talks to upstream on a scheduler.
  public struct SubscribeOn<Upstream: Publisher, Context: Scheduler>: Operator {
    /// Where the values come from.
    public let upstream: Upstream
    /// Where upstream is subscribed to, asked, and cancelled.
    public let scheduler: Context
    /// What the scheduler is told.
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

/// What goes up is sent by way of the scheduler.
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

  override var dropsSubscriber: Bool { false }  // once the scheduler has done its work

  @inlinable func schedule(_ action: @escaping (borrowing UpstreamSlot) -> Void) {
    guard slot.isLive else { return }
    scheduler.schedule(options: options) { action(self.slot) }
  }
}

extension Publisher {
  /// Subscribes to this publisher, asks it and cancels it on `scheduler`. Values come from wherever this publisher
  /// sends them.
  ///
  /// Demand: upstream's, value for value, by way of the scheduler.
  @inlinable public func subscribe<S: Scheduler>(
    on scheduler: S, options: S.SchedulerOptions? = nil
  ) -> Publishers.SubscribeOn<Self, S> {
    Publishers.SubscribeOn(upstream: self, scheduler: scheduler, options: options)
  }
}
