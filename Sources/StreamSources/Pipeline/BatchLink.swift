import Events
import Reactive
import StreamRuntime
import Synchronization

/// The next action of an asynchronous operator over batches.
enum BatchAction<Work> {
  /// Request one batch from upstream.
  case ask
  /// Begin the operator's work.
  case begin(Work)
  case deliver(EventBatch)
  /// Complete: no more values follow.
  case finish
}

extension BatchAction: Equatable where Work: Equatable {}

/// The state machine of such an operator: values in, actions out. Works on demand, batches and times; uses no clock,
/// thread or subscriber. Requests one batch at a time from upstream, so that at most one waits for slow work.
protocol BatchMachine: SendableMetatype {
  associatedtype Work
  /// Adds demand.
  mutating func request(_ more: Subscribers.Demand)
  /// Removes all demand, including that for the batch requested from upstream.
  mutating func retract()
  /// A batch from upstream.
  mutating func receive(_ batch: EventBatch)
  /// Upstream has completed.
  mutating func finish()
  /// The next action; called until it returns nil.
  mutating func next(at now: Duration) -> BatchAction<Work>?
}

/// Connects the machine to upstream, whose signals arrive on any thread, and to a subscriber, which receives values and
/// completion on the source thread.
///
/// Sendable: after the subscription, everything except the atomics is confined to the source thread.
class BatchLink<Machine: BatchMachine>: Subscriber, RetractableSubscription, @unchecked Sendable {
  let loop: EventLoop
  var machine: Machine
  private let isCancelled = Atomic(false)
  private let isSubscribed = Atomic(false)
  private var down: AnySubscriber<EventBatch, Never>?
  private var upstream: (any Subscription)?
  private var isAdvancing = false
  private var isStarted = false

  init(_ machine: Machine, on loop: EventLoop, to down: AnySubscriber<EventBatch, Never>) {
    self.machine = machine
    self.loop = loop
    self.down = down
  }

  /// Performs the machine's work. For subclasses.
  func begin(_ work: Machine.Work) {}
  /// Completes a batch that is delivered. For subclasses.
  func completed(_ batch: EventBatch) -> EventBatch { batch }
  /// Prepares for the first demand. For subclasses; called once.
  func start() {}
  /// Releases everything. For subclasses; called once.
  func end() {}

  /// Performs the machine's actions until there are none.
  func advance() {
    loop.assertOnLoop()
    guard !isAdvancing else { return }
    isAdvancing = true
    defer { isAdvancing = false }
    while isLive, let action = machine.next(at: now) {
      switch action {
      case .ask: upstream?.request(.max(1))
      case .begin(let work): begin(work)
      case .deliver(let batch):
        let more = down?.receive(completed(batch)) ?? .none
        machine.request(more)
      case .finish:
        let down = down
        letGo()
        down?.receive(completion: .finished)
      }
    }
  }

  private var isLive: Bool { !isCancelled.load(ordering: .acquiring) }
  var now: Duration { EventLoop.monotonicTime }

  private func letGo() {
    loop.assertOnLoop()
    isCancelled.store(true, ordering: .releasing)
    upstream = nil
    down = nil
    end()
  }

  /// Runs `body` on the source thread, in the order of the calls, unless the link has ended.
  private func whileLive(_ body: @escaping (BatchLink) -> Void) {
    let body = Carried(value: body)
    loop.execute { [self] in
      guard isLive else { return }
      body.value(self)
      advance()
    }
  }

  // MARK: Subscriber

  func receive(subscription: any Subscription) {
    guard !isSubscribed.exchange(true, ordering: .relaxed) else { return subscription.cancel() }
    let carried = Carried(value: subscription)
    loop.execute { [self] in
      if isLive { upstream = carried.value } else { carried.value.cancel() }
    }
    down?.receive(subscription: self)  // its demand reaches the loop after the subscription
  }

  func receive(_ batch: EventBatch) -> Subscribers.Demand {
    whileLive { $0.machine.receive(batch) }
    return .none
  }

  func receive(completion: Subscribers.Completion<Never>) {
    whileLive { $0.machine.finish() }
  }

  // MARK: Subscription

  func request(_ demand: Subscribers.Demand) {
    whileLive { link in
      if !link.isStarted { link.start() }
      link.isStarted = true
      link.machine.request(demand)
    }
  }

  func retract() {
    whileLive { link in
      link.machine.retract()
      (link.upstream as? any RetractableSubscription)?.retract()
    }
  }

  func cancel() {
    guard !isCancelled.exchange(true, ordering: .acquiringAndReleasing) else { return }
    loop.execute { [self] in
      let upstream = upstream
      letGo()
      upstream?.cancel()
    }
  }
}

/// Carries a value to the source thread. A subscription may be used on any thread; everything else is used there only.
private struct Carried<Value>: @unchecked Sendable {
  let value: Value
}
