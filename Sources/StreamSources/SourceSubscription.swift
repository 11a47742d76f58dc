import Events
import Reactive
import StreamRuntime
import Synchronization

/// The state machine of a source: demand, times and ends in, actions out.
protocol SourceMachine: SendableMetatype {
  associatedtype Action
  /// Adds demand, in batches.
  mutating func request(_ more: Subscribers.Demand)
  /// Removes all demand; the schedule and the count of failures stay.
  mutating func retract()
  /// Ends the subscription. The source's state stays for the next one.
  mutating func suspend(at now: Duration)
  /// Retries a failed run at once, even if the server asked for a pause.
  mutating func endRest(at now: Duration)
  /// Makes the next run due now.
  /// - Returns: why not; nil: it is due, or a run that answers as well has begun.
  mutating func refresh(at now: Duration) -> RefreshRefusal?
  /// The action that is due. Call it after each change, and at the time that it returns.
  mutating func next(at now: Duration) -> Action
}

/// Keeps a source's machine between two subscriptions. Confined to the source thread.
class SourceMemory<Machine: SourceMachine>: @unchecked Sendable {  // only its subscription uses it, and checks that
  fileprivate var machine: Machine?
  /// The thread's `endedRests` when the machine was stored here.
  fileprivate var endedRests = 0
  /// Whether a value of the upstream that exceeds its limit was reported.
  fileprivate var hasReportedLimit = false
  fileprivate let makeMachine: @Sendable () -> Machine

  /// - Parameter makeMachine: makes the machine of the first subscription.
  init(_ makeMachine: @escaping @Sendable () -> Machine) { self.makeMachine = makeMachine }
}

/// A subscription to a source: connects the machine to a clock, a thread and a subscriber. Subclasses implement the
/// kinds of sources.
///
/// Sendable: everything except `isCancelled` is confined to the source thread; `request`, `retract` and `cancel` run
/// there.
class SourceSubscription<Machine: SourceMachine>: RetractableSubscription, RestingSource, RefreshableSource,
  @unchecked Sendable
{
  final let context: SourceContext
  /// Set from the first demand on.
  final var machine: Machine?
  /// The last events of a run that ended without demand for them.
  final var held = EventBatch()
  private let memory: SourceMemory<Machine>
  private let isCancelled = Atomic(false)
  private final var down: AnySubscriber<EventBatch, Never>?
  private final var timer: TimerID?

  init(_ context: SourceContext, _ memory: SourceMemory<Machine>, to down: AnySubscriber<EventBatch, Never>) {
    (self.context, self.memory, self.down) = (context, memory, down)
  }

  // MARK: For the source

  /// Called at the first demand; the machine is in the state of the last subscription's end.
  func begin() {}
  /// Performs the due action.
  func perform(_ action: Machine.Action) {}
  /// Called when demand was removed.
  func retracted() {}
  /// Releases everything. Called once.
  func end() {}

  /// Whether events may still be delivered.
  var isLive: Bool { !isCancelled.load(ordering: .acquiring) }

  final var thread: SourceThread { context.thread }

  final var now: Duration { EventLoop.monotonicTime }

  final func report(_ news: SourceReport?) {
    if let news { context.report(news) }
  }

  /// Reports that a value of the upstream exceeds its limit, once for the source.
  final func reportLimit(_ sentence: String) {
    guard !memory.hasReportedLimit else { return }
    memory.hasReportedLimit = true
    report(.limited(sentence))
  }

  /// Whether the thread ended its sources' Retry-After waits since the last subscription.
  final var hasMissedEndOfRests: Bool { memory.endedRests != thread.endedRests }

  /// Performs the due action, if any.
  func advance() {
    thread.loop.assertOnLoop()
    guard isLive, let action = machine?.next(at: now) else { return }
    perform(action)
  }

  /// Calls `advance` at that time, unless it is called sooner.
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

  /// Delivers a batch that the machine has counted.
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
        context.refresh.attach(self)
        begin()
      }
      machine?.request(demand)
      advance()
    }
  }

  final func refresh(completed: @escaping @Sendable (RefreshRefusal?) -> Void) {
    thread.loop.execute { [self] in
      guard isLive, machine != nil else { return completed(.noDemand) }
      let refusal = machine?.refresh(at: now)
      completed(refusal)
      guard refusal == nil else { return }
      cancelTimer()
      advance()
    }
  }

  final func retract() {
    thread.loop.execute { [self] in
      machine?.retract()
      retracted()
    }
  }

  /// Ends the stream of the source, which is asked for nothing more. On the thread.
  final func complete() {
    let down = down
    cancel()
    down?.receive(completion: .finished)
  }

  final func cancel() {
    guard !isCancelled.exchange(true, ordering: .acquiringAndReleasing) else { return }
    thread.loop.execute { [self] in
      context.refresh.detach(self)
      thread.note(self, rests: false)
      end()
      cancelTimer()
      down = nil
      machine?.suspend(at: now)
      if let machine { (memory.machine, memory.endedRests) = (machine, thread.endedRests) }
      machine = nil
    }
  }
}

extension SourceSubscription {
  /// A pause that the upstream has asked a former process for; nil: there is none.
  var storedRest: RequestPause? {
    context.name.flatMap { thread.pauses.rest(of: "stream \($0)") }.map {
      RequestPause(duration: $0, reason: "the upstream has asked for it before the restart")
    }
  }

  /// Passes the schedule on to another process.
  func changed(_ schedule: SourceSchedule) {
    if let name = context.name { thread.pauses.note(schedule.rest.map { $0 - now }, of: "stream \(name)") }
    context.handover?.changed(schedule)
  }
}

extension SourceSubscription where Machine: RunMachine {
  /// Whether a batch may be delivered now.
  var isWanted: Bool { machine?.isWanted == true }

  /// The held events, if there is demand for them now.
  func takeHeld() -> EventBatch? {
    guard !held.isEmpty, isWanted else { return nil }
    defer { held = [] }
    return held
  }

  /// Delivers a batch; ignores an empty one.
  /// - Parameter checkpoint: the batch's checkpoint.
  func give(_ events: EventBatch, _ checkpoint: @autoclosure () -> Checkpoint?) {
    guard !events.isEmpty, isLive else { return }
    report(machine?.delivered())
    var events = events
    events.checkpoint = checkpoint()
    give(events)
  }
}
