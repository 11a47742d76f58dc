import Events
import Reactive
import StreamRuntime
import Synchronization

/// A program's output, an event per line; started again when it ends.
///
/// Each value is a batch: the lines that one read brought, empty ones left out. A unit of demand is a batch. The program is
/// started at a subscription's first demand and runs until the subscription is cancelled; without demand its output is
/// not read, so that its writes wait. Cancelled, it and all that it has started in its process group are ended, with
/// SIGTERM and after 5 s with SIGKILL.
///
/// A program that exits with 0 is started again after the least pause, one that exits with anything else, or is ended by a
/// signal, by the rule of `Backoff`. One that closes its output has 5 s to exit; one that exits has ended, whatever it
/// has left behind in its group. A last line without an end is an event if the program exited with 0.
///
/// Made for one subscription at a time, as a shared log's: there are never two programs of a source at once, nor of two
/// sources that share a place.
public struct ProgramSource: Publisher, Sendable {
  /// A batch of events, each its bytes.
  public typealias Output = EventBatch
  /// A program that fails is reported and started again.
  public typealias Failure = Never

  fileprivate let configuration: ProgramConfiguration
  fileprivate let thread: SourceThread
  fileprivate let report: @Sendable (SourceReport) -> Void
  fileprivate let memory = Memory()
  fileprivate let place: ProgramPlace

  /// - Parameters:
  ///   - place: shared with the source that this one takes the place of, if any: its program is waited for.
  ///   - report: told of each failure, of the end of a row of them, and of each line of standard error, on
  ///     the source thread; must return promptly.
  public init(
    _ configuration: ProgramConfiguration, in place: ProgramPlace = ProgramPlace(), on thread: SourceThread,
    report: @escaping @Sendable (SourceReport) -> Void
  ) {
    self.configuration = configuration
    self.place = place
    self.thread = thread
    self.report = report
  }

  /// As of any publisher. Values are delivered on the source thread.
  public func receive<S: Subscriber>(subscriber: S) where S.Input == Output, S.Failure == Failure {
    subscriber.receive(subscription: ProgramSubscription(self, AnySubscriber(subscriber)))
  }

  /// What outlives a subscription. Touched on the source thread alone.
  fileprivate final class Memory: @unchecked Sendable {
    var machine: RestartMachine?
  }
}

/// Where one program runs at a time. Touched on the source thread alone.
public final class ProgramPlace: @unchecked Sendable {
  /// The one that runs, or has not ended yet.
  fileprivate var program: ChildProgram?
  /// Who starts the next one.
  fileprivate weak var waiting: ProgramSubscription?

  /// A place where nothing runs yet.
  public init() {}
}

/// A subscription: the machine with a clock, a program, a splitter and a subscriber.
///
/// Sendable, as all of it but `isCancelled` is touched on the source thread alone; `request` and `cancel` go there.
private final class ProgramSubscription: RetractableSubscription, ChildProgram.Handler, @unchecked Sendable {
  private let source: ProgramSource
  private let isCancelled = Atomic(false)
  private var down: AnySubscriber<EventBatch, Never>?
  private var machine: RestartMachine?  // from the first demand on
  private var program: ChildProgram?
  private var splitter = LineSplitter(maximumBytes: 0)
  /// What was wrong with what the program wrote.
  private var fault: String?
  /// The last line of a program that ended when there was no demand left for it.
  private var held = EventBatch()
  private var retryTimer: TimerID?

  init(_ source: ProgramSource, _ down: AnySubscriber<EventBatch, Never>) {
    self.source = source
    self.down = down
  }

  private var loop: EventLoop { source.thread.loop }
  private var isActive: Bool { !isCancelled.load(ordering: .acquiring) && !source.thread.isStopped }

  func request(_ demand: Subscribers.Demand) {
    loop.execute { [self] in
      guard isActive else { return }
      if machine == nil {
        machine =
          source.memory.machine.take()
          ?? RestartMachine(retry: source.configuration.retry, seed: UInt64.random(in: 0...UInt64.max))
      }
      machine?.request(demand)
      advance()
    }
  }

  func retract() {
    loop.execute { [self] in
      machine?.retract()
      advance()
    }
  }

  func cancel() {
    guard !isCancelled.exchange(true, ordering: .acquiringAndReleasing) else { return }
    loop.execute { [self] in
      if let retryTimer { loop.cancel(retryTimer) }
      retryTimer = nil
      down = nil
      machine?.suspend(at: now)
      if let machine { source.memory.machine = machine }
      machine = nil
      program?.end()
      program = nil
    }
  }

  private func advance() {
    guard isActive else { return }
    if !held.isEmpty, machine?.isWanted == true {
      let last = held
      held = []
      deliver(last)
    }
    if let program {
      program.isRead = machine?.isWanted == true
      return
    }
    guard source.place.program == nil else {
      source.place.waiting = self
      return
    }
    switch machine?.next(at: now) {
    case .rest, nil: break
    case .wait(let due):
      guard retryTimer == nil else { return }
      retryTimer = loop.schedule(after: due - now) { [weak self] in
        self?.retryTimer = nil
        self?.advance()
      }
    case .begin: start()
    }
  }

  private func start() {
    splitter = LineSplitter(maximumBytes: source.configuration.maximumLineBytes)
    do throws(SystemError) {
      let program = try ChildProgram(source.configuration, on: source.thread, handler: self)
      self.program = program
      source.place.program = program
      program.isRead = true
    } catch {
      if let news = machine?.failed("cannot start \(source.configuration.name): \(error)", at: now) {
        source.report(news)
      }
      advance()
    }
  }

  private func deliver(_ events: EventBatch) {
    guard !events.isEmpty, let down, isActive else { return }
    if let news = machine?.delivered() { source.report(news) }
    let more = down.receive(events)
    machine?.request(more)
  }

  private var now: Duration { .nanoseconds(Int64(clamping: EventLoop.monotonicNow())) }

  // MARK: ChildProgram.Handler

  func programWrote(_ bytes: UnsafeRawBufferPointer) {
    var events = EventBatch()
    do throws(EventTooLong) {
      try splitter.feed(bytes, into: &events)
    } catch {
      fault = "wrote a \(HTTPFailure.over(error.maximumBytes, "line").sentence)"
      program?.end()
    }
    deliver(events)
    advance()
  }

  func programSaid(_ line: String) { source.report(.said(line)) }

  func programEnded(_ ending: ProgramEnding) {
    program = nil
    source.place.program = nil
    guard isActive else {
      source.place.waiting?.advance()
      return
    }
    let fault = fault ?? ending.fault
    self.fault = nil
    if let fault {
      if let news = machine?.failed("\(source.configuration.name) \(fault)", at: now) { source.report(news) }
    } else {
      var last = EventBatch()
      splitter.end(into: &last)
      if machine?.isWanted == true { deliver(last) } else { held = last }
      if let news = machine?.endedWell(at: now) { source.report(news) }
    }
    advance()
  }
}
