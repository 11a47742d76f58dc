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
    subscriber.receive(subscription: RestartedProgram(self, AnySubscriber(subscriber)))
  }
}

/// A subscription: connects the machine to a program and a splitter.
private final class RestartedProgram: ProgramSubscription<RestartMachine>, @unchecked Sendable {
  private var splitter = LineSplitter(maximumBytes: 0)

  init(_ source: ProgramSource, _ down: AnySubscriber<EventBatch, Never>) {
    super.init(
      source.configuration, in: source.place, on: source.thread, source.memory, progress: source.progress,
      report: source.report, to: down)
  }

  override func perform(_ action: RestartMachine.Action) {
    switch action {
    case .rest: break
    case .wait(let due): wait(until: due)
    case .begin:
      splitter = LineSplitter(maximumBytes: configuration.maximumLineBytes, end: configuration.lineEnd)
      start()
    }
  }

  override func take(_ bytes: UnsafeRawBufferPointer) throws(HTTPFailure) { try unsafe takeLines(bytes, &splitter) }

  override func takeEnd() throws(HTTPFailure) { try takeLastLine(&splitter) }

  override func ended(_ fault: String?) {
    tell(fault.map { machine?.failed($0, at: now) } ?? machine?.endedWell(at: now))
    advance()
  }
}

extension ProgramSubscription {
  /// Delivers the lines that the next piece of the output completes, also those before one that is too long.
  func takeLines(_ bytes: UnsafeRawBufferPointer, _ splitter: inout LineSplitter) throws(HTTPFailure) {
    var events = EventBatch()
    defer { give(events, nil) }
    do throws(EventTooLong) { try unsafe splitter.feed(bytes, into: &events) } catch { throw Self.tooLong(error) }
  }

  /// Delivers a last line without line end, or holds it until it is wanted.
  func takeLastLine(_ splitter: inout LineSplitter) throws(HTTPFailure) {
    var last = EventBatch()
    do throws(EventTooLong) { try splitter.end(into: &last) } catch { throw Self.tooLong(error) }
    if isWanted { give(last, nil) } else { held = last }
  }

  private static func tooLong(_ error: EventTooLong) -> HTTPFailure {
    HTTPFailure("wrote a \(HTTPFailure.over(error.maximumBytes, "line").sentence)")
  }
}
