import Events
import Reactive
import StreamRuntime
import Synchronization

/// What there is to do for an operator over batches that cannot answer each one at once.
enum BatchAction<Work> {
  /// Ask upstream for one batch.
  case ask
  /// Do what the operator is for.
  case begin(Work)
  case deliver(EventBatch)
  /// Nothing comes any more.
  case finish
}

extension BatchAction: Equatable where Work: Equatable {}

/// Such an operator's decisions: values in, actions out. Knows demand, batches and times; never a clock, a thread or a
/// subscriber. Upstream is asked for one batch at a time, so that no more than that waits for what is slow here.
protocol BatchMachine: SendableMetatype {
  associatedtype Work
  /// So many more values are wanted.
  mutating func request(_ more: Subscribers.Demand)
  /// None is, any more; also not the one that upstream was asked for.
  mutating func retract()
  /// Upstream's answer.
  mutating func receive(_ batch: EventBatch)
  /// Upstream has no more.
  mutating func finish()
  /// Called until it gives nothing.
  mutating func next(at now: Duration) -> BatchAction<Work>?
}

/// The machine between two ends: upstream, whose signals come from any thread, and a subscriber, which gets values and the
/// end on the source thread.
///
/// Sendable, as from the subscription on all of it but the atomics is touched on the source thread alone.
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

  /// Does the machine's work. For the operator.
  func begin(_ work: Machine.Work) {}
  /// The first values are about to be wanted. For the operator; called once.
  func start() {}
  /// Lets go of everything. For the operator; called once.
  func end() {}

  /// Does what there is to do, until there is nothing.
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
        let more = down?.receive(batch) ?? .none
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

  /// In the order of the calls, on the source thread, unless it is over.
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
    down?.receive(subscription: self)  // what it asks for comes to the loop after the subscription
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

/// Takes something to the source thread. A subscription may be used on any thread; the rest is used there alone.
private struct Carried<Value>: @unchecked Sendable {
  let value: Value
}
