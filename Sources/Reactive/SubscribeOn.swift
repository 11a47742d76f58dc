import Synchronization

extension Publishers {
  /// Talks to upstream on a scheduler.
  public struct SubscribeOn<Upstream: Publisher, Context: Scheduler>: Publisher {
    /// The same values.
    public typealias Output = Upstream.Output
    /// The same failures.
    public typealias Failure = Upstream.Failure
    /// Where the values come from.
    public let upstream: Upstream
    /// Where upstream is subscribed to, asked, and cancelled.
    public let scheduler: Context
    /// What the scheduler is told.
    public let options: Context.SchedulerOptions?

    /// `upstream.subscribe(on: scheduler, options: options)`
    public init(upstream: Upstream, scheduler: Context, options: Context.SchedulerOptions?) {
      self.upstream = upstream
      self.scheduler = scheduler
      self.options = options
    }

    /// Attaches the subscriber on the scheduler.
    @inlinable
    public func receive<S: Subscriber>(subscriber: S) where S.Input == Output, S.Failure == Failure {
      let link = SubscribeOnLink(scheduler, options, subscriber)
      scheduler.schedule(options: options) { [upstream] in upstream.subscribe(link) }
    }
  }
}

/// Values pass as they come.
@usableFromInline
final class SubscribeOnLink<Context: Scheduler, Down: Subscriber>: Subscriber {
  @usableFromInline let handle: SubscribeOnHandle<Context>
  @usableFromInline let down: Down

  @inlinable
  init(_ scheduler: Context, _ options: Context.SchedulerOptions?, _ down: Down) {
    handle = SubscribeOnHandle(scheduler, options)
    self.down = down
  }

  @inlinable func receive(subscription: any Subscription) {
    if handle.upstream.attach(subscription) { down.receive(subscription: handle) }
  }

  @inlinable func receive(_ value: Down.Input) -> Subscribers.Demand {
    handle.upstream.isLive && !handle.isCancelled.load(ordering: .acquiring) ? down.receive(value) : .none
  }

  @inlinable func receive(completion: Subscribers.Completion<Down.Failure>) {
    if handle.upstream.finish(), !handle.isCancelled.load(ordering: .acquiring) { down.receive(completion: completion) }
  }
}

/// What goes up is sent by way of the scheduler.
@usableFromInline
final class SubscribeOnHandle<Context: Scheduler>: RetractableSubscription {
  @usableFromInline let upstream = UpstreamSlot()
  @usableFromInline let isCancelled = Atomic(false)
  @usableFromInline let scheduler: Context
  @usableFromInline let options: Context.SchedulerOptions?

  @inlinable
  init(_ scheduler: Context, _ options: Context.SchedulerOptions?) {
    self.scheduler = scheduler
    self.options = options
  }

  @inlinable func request(_ demand: Subscribers.Demand) {
    schedule { $0.upstream.request(demand) }
  }

  @inlinable func retract() {
    schedule { $0.upstream.retract() }
  }

  @inlinable func cancel() {
    guard !isCancelled.exchange(true, ordering: .acquiringAndReleasing) else { return }
    schedule { $0.upstream.cancel() }
  }

  @inlinable func schedule(_ action: @escaping (SubscribeOnHandle) -> Void) {
    guard upstream.isLive else { return }
    scheduler.schedule(options: options) { action(self) }
  }
}

extension Publisher {
  /// Subscribes to this publisher, asks it and cancels it on `scheduler`. Values come from wherever this publisher sends
  /// them.
  ///
  /// Demand: upstream's, value for value, by way of the scheduler.
  public func subscribe<S: Scheduler>(
    on scheduler: S, options: S.SchedulerOptions? = nil
  ) -> Publishers.SubscribeOn<Self, S> {
    Publishers.SubscribeOn(upstream: self, scheduler: scheduler, options: options)
  }
}
