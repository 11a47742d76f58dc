import Events
import Reactive
import StreamRuntime

/// Runs a program by the clock while there is demand, and publishes its output.
///
/// The runs have the schedule of a poll (`PollMachine`): slots that are `every` apart, one run for those that passed
/// without demand, and the delays of `Backoff` after failures. A run is a failure if the program exits with another
/// status than 0, outlasts `timeout`, or writes more than the limit. It is then ended as that of a `ProgramSource`. A
/// subscription with a checkpoint delivers only an output that differs from the last one; lines have no checkpoint.
public struct ProgramPoll: SourceDriver {
  /// The events of a run.
  public enum Form: Sendable, Equatable {
    /// The whole output is one event, without the line end at its end and a byte order mark at its beginning, unless it
    /// equals the last one. Output of white space alone is no event. A run delivers its event after its end, and none if
    /// it fails.
    case whole(maximumBytes: Int)
    /// Each line is an event, as soon as it is written. Without demand the output is not read, and `timeout` does not
    /// pass.
    case lines
  }

  fileprivate let configuration: ProgramConfiguration
  private let every: Duration
  fileprivate let form: Form
  fileprivate let timeout: Duration

  /// - Parameters:
  ///   - configuration: the program, and how it is run.
  ///   - form: what of its output becomes events.
  ///   - every: the time from one run to the next; greater than zero.
  ///   - timeout: the time that a run may take.
  public init(_ configuration: ProgramConfiguration, every: Duration, form: Form, timeout: Duration) {
    precondition(every > .zero, "an interval must be greater than zero, it is \(every)")
    (self.configuration, self.every, self.form, self.timeout) = (configuration, every, form, timeout)
  }

  /// Makes the subscriptions of one source.
  public func subscriptions(in context: SourceContext) -> SubscriptionMaker {
    let memory = SourceMemory {
      PollMachine(
        every: every, retry: configuration.retry, phaseKey: context.name ?? configuration.name,
        seed: UInt64.random(in: 0...UInt64.max))
    }
    return { PolledProgram(self, context, memory, $0) }
  }
}

/// A subscription: connects the machine to a program, whose output it collects.
private final class PolledProgram: ProgramSubscription<PollMachine>, @unchecked Sendable {
  private let driver: ProgramPoll
  private let resumption: SourceResumption?
  private let fingerprint: BodyDigest
  /// The output of the run, if it is one event.
  private var output: [UInt8] = []
  /// Splits the output of the run, if its lines are events.
  private var splitter: LineSplitter
  /// Fires when the run has taken too long; nil: no run whose output is read.
  private var deadline: TimerID?
  /// What is left of `timeout` at `readSince`, since when the output is read.
  private var timeLeft = Duration.zero
  private var readSince = Duration.zero

  init(
    _ driver: ProgramPoll, _ context: SourceContext, _ memory: SourceMemory<PollMachine>,
    _ down: AnySubscriber<EventBatch, Never>
  ) {
    let configuration = driver.configuration
    (self.driver, resumption) = (driver, driver.form == .lines ? nil : context.resumption(.event))
    splitter = LineSplitter(maximumBytes: configuration.maximumLineBytes)
    let parts =
      ["program", resumption?.pipeline ?? ""] + configuration.environment.keys.sorted() + [""] + configuration.command
    fingerprint = BodyDigest(parts: parts)
    super.init(configuration, context, memory, to: down)
  }

  override func begin() {
    continueSchedule()
    guard let kept = resumption?.checkpoint(),
      case .poll(let digest, _, _, _)? = SourcePosition(kept, fingerprint)
    else { return }
    machine?.resume(nil, digest)
  }

  override func end() {
    super.end()
    watchTime()
    output = []
  }

  override func advance() {
    super.advance()
    watchTime()
  }

  override func perform(_ action: PollMachine.Action) {
    perform(action) { [weak self] _ in self?.run() }
  }

  private func run() {
    output = []
    splitter = LineSplitter(maximumBytes: configuration.maximumLineBytes, end: configuration.lineEnd)
    timeLeft = driver.timeout
    start()
    watchTime()
  }

  override func ended(_ fault: String?) {
    let bytes = output
    output = []
    watchTime()
    conclude(answer(fault, bytes)) { _, digest in
      var events: EventBatch = [bytes]
      if resumption != nil, let digest {
        events.checkpoint = SourcePosition.poll(digest, entityTag: nil, lastModified: nil).checkpoint(fingerprint)
      }
      return events
    }
  }

  private func answer(_ fault: String?, _ bytes: [UInt8]) -> PollMachine.Answer {
    if let fault { return .failed(SourceFailure(fault)) }
    guard let machine, driver.form != .lines, !bytes.isWhiteSpace else { return .nothing }
    return machine.answer(nil, BodyDigest(bytes))
  }

  // MARK: The output

  /// A program of lines waits for demand. Of any other one the output is wanted when it begins, and bounded.
  override var isRead: Bool { driver.form != .lines || isWanted }

  override func take(_ bytes: UnsafeRawBufferPointer) throws(SourceFailure) {
    guard case .whole(let limit) = driver.form else { return try unsafe takeLines(bytes, &splitter) }
    // Three bytes more for a byte order mark, and two for the line end.
    guard bytes.count <= limit + 5 - output.count else { throw tooLong(limit) }
    unsafe output.append(contentsOf: bytes)
  }

  override func takeEnd() throws(SourceFailure) {
    guard case .whole(let limit) = driver.form else { return try takeLastLine(&splitter) }
    if output.starts(with: [0xEF, 0xBB, 0xBF]) { output.removeFirst(3) }
    if output.last == 0x0A {
      output.removeLast()
      if output.last == 0x0D { output.removeLast() }
    }
    guard output.count <= limit else { throw tooLong(limit) }
  }

  private func tooLong(_ limit: Int) -> SourceFailure {
    SourceFailure("wrote \(SourceFailure.over(limit, "output").sentence)")
  }

  // MARK: Its time

  /// Starts or stops the clock of the run, which counts while the output is read: a subscriber without credit makes a
  /// program of lines no slower than it is.
  private func watchTime() {
    guard isReading != (deadline != nil) else { return }
    if let deadline {
      thread.loop.cancel(deadline)
      timeLeft -= now - readSince
      self.deadline = nil
    } else {
      readSince = now
      deadline = thread.loop.schedule(after: max(.zero, timeLeft)) { [weak self] in
        guard let self else { return }
        deadline = nil
        fail("did not end within \(driver.timeout.inWords) (timeout)")
      }
    }
  }
}
