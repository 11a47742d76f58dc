import Events
import Reactive
import StreamRuntime

/// Runs a program and publishes its output, one event per line; restarts it when it ends.
///
/// Each value is a batch: the lines of one read, without empty ones. One unit of demand is one batch. The program
/// starts at a subscription's first demand and runs until the subscription is cancelled; without demand its output is
/// not read, so its writes block. Cancellation ends the program and all processes in its group, with SIGTERM and after
/// 5 s with SIGKILL.
///
/// A program that exits with 0 is restarted after the least delay. After another status or a signal it is restarted
/// after the delay of `Backoff`. A program that closes its output has 5 s to exit; its exit ends the run, even if other
/// processes of its group still run. A last line without line end is an event if the program exited with 0.
///
/// For one subscription at a time, such as a shared log's: a source never runs two programs at once, nor do two sources
/// that share a place.
public struct ProgramSource: Publisher, Sendable {
  /// A batch of events, each its bytes.
  public typealias Output = EventBatch
  /// A failed program is reported and restarted.
  public typealias Failure = Never

  fileprivate let configuration: ProgramConfiguration
  fileprivate let thread: SourceThread
  fileprivate let progress: @Sendable (SourceProgress) -> Void
  fileprivate let report: @Sendable (SourceReport) -> Void
  fileprivate let memory: SourceMemory<RestartMachine>
  fileprivate let place: ProgramPlace

  /// - Parameters:
  ///   - place: shared with the source that this one replaces, if any: the new program starts after the old one has
  ///     ended.
  ///   - refresh: makes the program start before its next run is due.
  ///   - progress: called with each change that the source's counters record.
  ///   - report: called with each failure, with the end of a series of failures, and with each line of standard error,
  ///     on the source thread; must return promptly.
  public init(
    _ configuration: ProgramConfiguration, in place: ProgramPlace = ProgramPlace(),
    refresh: SourceRefresh = SourceRefresh(), on thread: SourceThread,
    progress: @escaping @Sendable (SourceProgress) -> Void = { _ in },
    report: @escaping @Sendable (SourceReport) -> Void
  ) {
    self.configuration = configuration
    self.place = place
    self.thread = thread
    self.progress = progress
    self.report = report
    memory = SourceMemory(refresh) {
      RestartMachine(retry: configuration.retry, seed: UInt64.random(in: 0...UInt64.max))
    }
  }

  /// Subscribes. Values are delivered on the source thread.
  public func receive<S: Subscriber>(subscriber: S) where S.Input == Output, S.Failure == Failure {
    subscriber.receive(subscription: ProgramSubscription(self, AnySubscriber(subscriber)))
  }
}

/// Lets one program run at a time. Confined to the source thread.
public final class ProgramPlace: @unchecked Sendable {
  /// The program that runs or has not ended yet.
  fileprivate var program: ChildProgram?
  /// The subscription that starts the next program.
  fileprivate weak var waiting: ProgramSubscription?

  /// A place without a program.
  public init() {}
}

/// A subscription: connects the machine to a program and a splitter.
private final class ProgramSubscription: SourceSubscription<RestartMachine>, ChildProgram.Handler, @unchecked Sendable {
  private let source: ProgramSource
  private var program: ChildProgram?
  private var splitter = LineSplitter(maximumBytes: 0)
  /// The error in the program's output.
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
    source.progress(.attempted)
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

  private func sentence(_ error: EventTooLong) -> String {
    "wrote a \(HTTPFailure.over(error.maximumBytes, "line").sentence)"
  }

  // MARK: ChildProgram.Handler

  func programWrote(_ bytes: UnsafeRawBufferPointer) {
    source.progress(.received(byteCount: bytes.count))
    var events = EventBatch()
    do throws(EventTooLong) {
      try unsafe splitter.feed(bytes, into: &events)
    } catch {
      fault = sentence(error)
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
    var last = EventBatch()
    if fault == nil, ending.fault == nil {
      do throws(EventTooLong) { try splitter.end(into: &last) } catch { fault = sentence(error) }
    }
    let fault = fault ?? ending.fault
    self.fault = nil
    if let fault {
      tell(machine?.failed("\(source.configuration.name) \(fault)", at: now))
    } else {
      if isWanted { give(last, nil) } else { held = last }
      tell(machine?.endedWell(at: now))
    }
    advance()
  }
}
