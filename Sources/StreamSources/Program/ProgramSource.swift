import Events
import Reactive
import StreamRuntime

/// Runs a program and publishes its output, one event per line; restarts it when it ends.
///
/// Each batch has the lines of one read, without empty ones. The program starts at a subscription's first demand and runs
/// until the subscription is cancelled; without demand its output is not read, so its writes block. Cancellation ends the
/// program and all processes in its group, with SIGTERM and after 5 s with SIGKILL. A source never runs two programs at
/// once, nor do two sources that share a place.
///
/// A program that exits with 0 is restarted after the least delay. After another status or a signal it is restarted
/// after the delay of `Backoff`. A program that closes its output has 5 s to exit; its exit ends the run, even if other
/// processes of its group still run. A last line without line end is an event if the program exited with 0.
public struct ProgramSource: SourceDriver {
  fileprivate let configuration: ProgramConfiguration

  /// Each line of the program's standard error is reported.
  public init(_ configuration: ProgramConfiguration) { self.configuration = configuration }

  /// Makes the subscriptions of one source.
  public func subscriptions(in context: SourceContext) -> SubscriptionMaker {
    let memory = SourceMemory(retry: configuration.retry)
    return { RestartedProgram(configuration, context, memory, to: $0) }
  }
}

/// A subscription: connects the machine to a program and a splitter.
private final class RestartedProgram: ProgramSubscription<RestartMachine>, @unchecked Sendable {
  private var splitter = LineSplitter(maximumBytes: 0)

  override func perform(_ action: RestartMachine.Action) {
    perform(action) {
      splitter = LineSplitter(maximumBytes: configuration.maximumLineBytes, end: configuration.lineEnd)
      start()
    }
  }

  override func take(_ bytes: UnsafeRawBufferPointer) throws(SourceFailure) { try unsafe takeLines(bytes, &splitter) }

  override func takeEnd() throws(SourceFailure) { try takeLastLine(&splitter) }

  override func ended(_ fault: String?) {
    report(fault.map { machine?.failed($0, at: now) } ?? machine?.endedWell(at: now))
    advance()
  }
}

extension ProgramSubscription {
  /// Delivers the lines that the next piece of the output completes, also those before one that is too long.
  func takeLines(_ bytes: UnsafeRawBufferPointer, _ splitter: inout LineSplitter) throws(SourceFailure) {
    var events = EventBatch()
    defer { give(events, nil) }
    do throws(EventTooLong) { try unsafe splitter.split(bytes, into: &events) } catch { throw Self.tooLong(error) }
  }

  /// Delivers a last line without line end, or holds it until it is wanted.
  func takeLastLine(_ splitter: inout LineSplitter) throws(SourceFailure) {
    var last = EventBatch()
    do throws(EventTooLong) { try splitter.end(into: &last) } catch { throw Self.tooLong(error) }
    if isWanted { give(last, nil) } else { held = last }
  }

  private static func tooLong(_ error: EventTooLong) -> SourceFailure {
    SourceFailure("wrote a \(SourceFailure.over(error.maximumBytes, "line").sentence)")
  }
}
