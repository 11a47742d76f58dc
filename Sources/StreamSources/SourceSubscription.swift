import Events
import Reactive
import StreamRuntime
import Synchronization

/// When a source begins what gives events, and when it begins again: demand, times and ends in, actions out.
protocol SourceMachine: SendableMetatype {
  associatedtype Action
  /// So many batches more are wanted.
  mutating func request(_ more: Subscribers.Demand)
  /// None is wanted any more; the schedule and the failures in a row stay.
  mutating func retract()
  /// The subscription has ended. What is known of the source stays for the next one.
  mutating func suspend(at now: Duration)
  /// What failed is tried again at once, whatever the server has asked for.
  mutating func endRest(at now: Duration)
  /// What is due. To be asked for after each change, and at the time that it named.
  mutating func next(at now: Duration) -> Action
}

/// Where a source's machine is between two subscriptions. Belongs to the source thread.
class SourceMemory<Machine: SourceMachine>: @unchecked Sendable {  // checked by its subscription, which alone uses it
  fileprivate var machine: Machine?
  /// As the thread's, when the machine was put here.
  fileprivate var endedRests = 0
  /// That something of the upstream's is too large to be kept was reported.
  var hasReportedLimit = false
  fileprivate let makeMachine: @Sendable () -> Machine

  /// - Parameter makeMachine: for the first subscription.
  init(_ makeMachine: @escaping @Sendable () -> Machine) { self.makeMachine = makeMachine }
}

/// A subscription to a source: the machine with a clock, a thread and a subscriber. What differs between sources is in
/// subclasses.
///
/// Sendable: all of it but `isCancelled` belongs to the source thread; `request`, `retract` and `cancel` go there.
class SourceSubscription<Machine: SourceMachine>: RetractableSubscription, RestingSource, @unchecked Sendable {
  let thread: SourceThread
  let report: @Sendable (SourceReport) -> Void
  /// From the first demand on.
  final var machine: Machine?
  /// The last events of a run that ended when there was no demand left for them.
  final var held = EventBatch()
  private let memory: SourceMemory<Machine>
  private let isCancelled = Atomic(false)
  private final var down: AnySubscriber<EventBatch, Never>?
  private final var timer: TimerID?

  init(
    on thread: SourceThread, _ memory: SourceMemory<Machine>, report: @escaping @Sendable (SourceReport) -> Void,
    to down: AnySubscriber<EventBatch, Never>
  ) {
    (self.thread, self.memory, self.report, self.down) = (thread, memory, report, down)
  }

  // MARK: For the source

  /// The first demand is there; the machine is as the last subscription left it.
  func begin() {}
  /// Does what is due.
  func perform(_ action: Machine.Action) {}
  /// There is no demand any more.
  func retracted() {}
  /// Lets go of everything. Called once.
  func end() {}

  /// Whether events may still be delivered.
  var isLive: Bool { !isCancelled.load(ordering: .acquiring) }

  final var now: Duration { EventLoop.monotonicTime }

  final func tell(_ news: SourceReport?) {
    if let news { report(news) }
  }

  /// Whether the thread's sources were told to end their rests since the last subscription.
  final var hasMissedEndOfRests: Bool { memory.endedRests != thread.endedRests }

  /// Does what is due, if anything.
  func advance() {
    thread.loop.assertOnLoop()
    guard isLive, let action = machine?.next(at: now) else { return }
    perform(action)
  }

  /// Advances then, unless something else does sooner.
  final func wait(until due: Duration) {
    guard timer == nil else { return }
    timer = thread.loop.schedule(after: due - now) { [weak self] in
      self?.timer = nil
      self?.advance()
    }
  }

  final func endRest() {
    thread.loop.assertOnLoop()
    machine?.endRest(at: now)
    cancelTimer()
    advance()
  }

  final func cancelTimer() {
    if let timer { thread.loop.cancel(timer) }
    timer = nil
  }

  /// Gives the subscriber a batch, which the machine has counted.
  final func give(_ events: EventBatch) {
    thread.loop.assertOnLoop()
    guard isLive, let down else { return }
    let more = down.receive(events)
    machine?.request(more)
  }

  // MARK: From any thread

  final func request(_ demand: Subscribers.Demand) {
    thread.loop.execute { [self] in
      guard isLive else { return }
      if machine == nil {
        machine = memory.machine.take() ?? memory.makeMachine()
        begin()
      }
      machine?.request(demand)
      advance()
    }
  }

  final func retract() {
    thread.loop.execute { [self] in
      machine?.retract()
      retracted()
    }
  }

  final func cancel() {
    guard !isCancelled.exchange(true, ordering: .acquiringAndReleasing) else { return }
    thread.loop.execute { [self] in
      end()
      cancelTimer()
      down = nil
      machine?.suspend(at: now)
      if let machine { (memory.machine, memory.endedRests) = (machine, thread.endedRests) }
      machine = nil
    }
  }
}

extension SourceSubscription where Machine == RestartMachine {
  /// Whether a batch may be delivered now.
  var isWanted: Bool { machine?.isWanted == true }

  /// What is held, if there is demand for it now.
  func takeHeld() -> EventBatch? {
    guard !held.isEmpty, isWanted else { return nil }
    defer { held = [] }
    return held
  }

  /// Delivers a batch. An empty one is none.
  /// - Parameter checkpoint: that belongs to it.
  func give(_ events: EventBatch, _ checkpoint: @autoclosure () -> Checkpoint?) {
    guard !events.isEmpty, isLive else { return }
    tell(machine?.delivered())
    var events = events
    events.checkpoint = checkpoint()
    give(events)
  }
}
