import Events
import Reactive
import StreamRuntime

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
  fileprivate let memory: SourceMemory<RestartMachine>
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
    memory = SourceMemory { RestartMachine(retry: configuration.retry, seed: UInt64.random(in: 0...UInt64.max)) }
  }

  /// As of any publisher. Values are delivered on the source thread.
  public func receive<S: Subscriber>(subscriber: S) where S.Input == Output, S.Failure == Failure {
    subscriber.receive(subscription: ProgramSubscription(self, AnySubscriber(subscriber)))
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

/// A subscription: the machine with a program and a splitter.
private final class ProgramSubscription: SourceSubscription<RestartMachine>, ChildProgram.Handler, @unchecked Sendable {
  private let source: ProgramSource
  private var program: ChildProgram?
  private var splitter = LineSplitter(maximumBytes: 0)
  /// What was wrong with what the program wrote.
  private var fault: String?

  init(_ source: ProgramSource, _ down: AnySubscriber<EventBatch, Never>) {
    self.source = source
    super.init(on: source.thread, source.memory, report: source.report, to: down)
  }

  override var isLive: Bool { super.isLive && !thread.isStopped }

  override func retracted() { advance() }

  override func end() {
    program?.end()
    program = nil
  }

  override func advance() {
    guard isLive else { return }
    if let last = takeHeld() { give(last, nil) }
    if let program {
      program.isRead = isWanted
    } else if source.place.program != nil {
      source.place.waiting = self
    } else {
      super.advance()
    }
  }

  override func perform(_ action: RestartMachine.Action) {
    switch action {
    case .rest: break
    case .wait(let due): wait(until: due)
    case .begin: start()
    }
  }

  private func start() {
    splitter = LineSplitter(maximumBytes: source.configuration.maximumLineBytes)
    do throws(SystemError) {
      let program = try ChildProgram(source.configuration, on: thread, handler: self)
      self.program = program
      source.place.program = program
      program.isRead = true
    } catch {
      tell(machine?.failed("cannot start \(source.configuration.name): \(error)", at: now))
      advance()
    }
  }

  // MARK: ChildProgram.Handler

  func programWrote(_ bytes: UnsafeRawBufferPointer) {
    var events = EventBatch()
    do throws(EventTooLong) {
      try splitter.feed(bytes, into: &events)
    } catch {
      fault = "wrote a \(HTTPFailure.over(error.maximumBytes, "line").sentence)"
      program?.end()
    }
    give(events, nil)
    advance()
  }

  func programSaid(_ line: String) { report(.said(line)) }

  func programEnded(_ ending: ProgramEnding) {
    program = nil
    source.place.program = nil
    guard isLive else {
      source.place.waiting?.advance()
      return
    }
    let fault = fault ?? ending.fault
    self.fault = nil
    if let fault {
      tell(machine?.failed("\(source.configuration.name) \(fault)", at: now))
    } else {
      var last = EventBatch()
      splitter.end(into: &last)
      if isWanted { give(last, nil) } else { held = last }
      tell(machine?.endedWell(at: now))
    }
    advance()
  }
}
