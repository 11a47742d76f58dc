import Events
import Reactive
import StreamRuntime
import Synchronization

/// What an operator has to know about the programs of a stream.
public enum PipelineReport: Sendable, Equatable {
  /// A program failed on an event, which was left out, or passed as distinct: why, in a sentence without a full stop, which
  /// may hold 200 bytes of the event.
  case valueError(String)
  /// The last event before this failed; this one did not.
  case passing
  /// The process in which the programs run cannot be started, or can be again.
  case process(SourceReport)
}

/// The programs that a stream's events go through.
public struct JQTransform: Sendable, Equatable {
  /// Makes none, one or many events of each; nil: leaves it as it is.
  public var program: String?
  /// What an event is compared by with the one before, which it must differ from; nil: they are not compared.
  public var distinctBy: String?

  /// Texts that `JQTransform.mistake(in:)` finds nothing wrong with.
  public init(program: String? = nil, distinctBy: String? = nil) {
    self.program = program
    self.distinctBy = distinctBy
  }

  /// What jq says of a text that is no program, in a sentence; nil for one that is. The first time for a text takes some
  /// 30 ms with jq 1.6.
  public static func mistake(in text: String) -> String? {
    if sound.withLock({ $0.contains(text) }) { return nil }
    do throws(JQProgram.CompileError) {
      _ = try JQProgram(text)
    } catch {
      return error.sentence
    }
    sound.withLock { sound in
      if sound.count == 1024 { sound = [] }
      sound.insert(text)
    }
    return nil
  }

  /// Texts that were found to be programs: a configuration that is read again repeats nearly all of its own.
  private static let sound = Locked<Set<String>>([])
}

extension Publisher where Output == EventBatch, Failure == Never {
  /// Runs events through programs, in a process of their own.
  ///
  /// An event on which the first program fails is left out, also one that takes 10 s of processor time, or more
  /// memory than there is for it (1 GiB). One on which the second fails is like no other, and passes. A batch that gives nothing uses up no demand.
  /// Made for one subscription at a time, as a shared log's: each compares with the last event of the one before. The
  /// process runs from the first demand on until the subscription ends.
  /// - Parameters:
  ///   - name: the stream's, for who looks at the list of processes.
  ///   - executable: a program that calls `HelperProcess.runIfAsked` first of all.
  ///   - thread: where values are delivered.
  ///   - report: told on the source thread; must return promptly.
  public func jq(
    _ transform: JQTransform, name: String, executable: String, on thread: SourceThread,
    report: @escaping @Sendable (PipelineReport) -> Void
  ) -> AnyPublisher<EventBatch, Never> {
    jq(
      transform, name: name, executable: executable, timePerEvent: JQWorker.timePerEvent, on: thread, report: report)
  }

  /// - Parameter timePerEvent: of the processor, at least a millisecond.
  func jq(
    _ transform: JQTransform, name: String, executable: String, timePerEvent: Duration, on thread: SourceThread,
    report: @escaping @Sendable (PipelineReport) -> Void
  ) -> AnyPublisher<EventBatch, Never> {
    let makeProcess: MakeProcess = { owner throws(SystemError) in
      try JQProcess(
        executable: executable, timePerEvent: timePerEvent, name: name, program: transform.program,
        key: transform.distinctBy,
        on: thread, owner: owner)
    }
    return JQ(upstream: self, loop: thread.loop, report: report, makeProcess: makeProcess).eraseToAnyPublisher()
  }
}

private typealias MakeProcess = (any JQProcess.Owner) throws(SystemError) -> JQProcess

private struct JQ<Upstream: Publisher<EventBatch, Never>>: Publisher {
  typealias Output = EventBatch
  typealias Failure = Never
  let upstream: Upstream
  let loop: EventLoop
  let report: @Sendable (PipelineReport) -> Void
  let makeProcess: MakeProcess
  let memory = DistinctMemory()

  func receive<S: Subscriber>(subscriber: S) where S.Input == Output, S.Failure == Failure {
    upstream.subscribe(JQLink(memory, report, makeProcess, on: loop, to: AnySubscriber(subscriber)))
  }
}

/// A subscription: the machine with its process.
private final class JQLink: BatchLink<JQMachine>, JQProcess.Owner, @unchecked Sendable {
  private let memory: DistinctMemory
  private let report: @Sendable (PipelineReport) -> Void
  private let makeProcess: MakeProcess
  private var process: JQProcess?
  /// Its programs are compiled.
  private var isReady = false
  private var failures = 0
  /// The last event has failed, for all that is known: it may have been another subscription's.
  private var isFailing = true
  private var retryTimer: TimerID?

  /// A process that cannot be started is tried again, for it is the machine that lacks something.
  private static let retry = Backoff(first: .seconds(1), max: .seconds(60))
  /// It is the kernel that lacks something, so it is said once, not of every stream.
  private static let hasReportedRights = Atomic(false)

  init(
    _ memory: DistinctMemory, _ report: @escaping @Sendable (PipelineReport) -> Void,
    _ makeProcess: @escaping MakeProcess, on loop: EventLoop, to down: AnySubscriber<EventBatch, Never>
  ) {
    self.memory = memory
    self.report = report
    self.makeProcess = makeProcess
    super.init(JQMachine(), on: loop, to: down)
  }

  /// Before the first event is there: it takes a while.
  override func start() {
    isReady = false
    do throws(SystemError) {
      let process = try makeProcess(self)
      self.process = process
      process.send(machine.unanswered)
    } catch {
      retryLater("\(error)")
    }
  }

  override func begin(_ events: EventBatch) {
    process?.send(events)
  }

  override func end() {
    if let retryTimer { loop.cancel(retryTimer) }
    retryTimer = nil
    process?.end()
    process = nil
  }

  private func retryLater(_ reason: String) {
    failures += 1
    let delay = Self.retry.delay(afterFailures: failures, fraction: Double.random(in: 0..<1))
    report(.process(.failing("jq cannot be started: \(reason)", attempt: failures, retryIn: delay)))
    retryTimer = loop.schedule(after: delay) { [weak self] in
      self?.retryTimer = nil
      self?.start()
    }
  }

  // MARK: JQProcess.Owner

  func processAnswered(_ answer: JQAnswer) {
    guard isReady else {
      if let mistake = answer.failure {
        process?.end()
        process = nil
        return retryLater(mistake)
      }
      isReady = true
      if let reason = answer.outputs.first?.event, !Self.hasReportedRights.exchange(true, ordering: .relaxed) {
        report(.process(.limited("jq runs unconfined: \(String(decoding: reason, as: UTF8.self))")))
      }
      if failures > 0 { report(.process(.recovered(afterFailures: failures))) }
      failures = 0
      return
    }
    if let failure = answer.failure { report(.valueError(failure)) }
    let isLost = answer.failure != nil && answer.outputs.isEmpty
    if isFailing || answer.failure != nil, !isLost { report(.passing) }
    isFailing = isLost
    guard let event = machine.unanswered.first else { return }
    let events = answer.outputs.compactMap { memory.admits($0.key) ? $0.event ?? event : nil }
    machine.answered(EventBatch(events))
    advance()
  }

  /// What it has not answered first is what it died of.
  func processEnded(_ reason: String) {
    process = nil
    guard isReady else { return retryLater(reason) }
    if !machine.unanswered.isEmpty {
      report(.valueError(reason))
      isFailing = true
      machine.answered([])
    }
    start()
    advance()
  }
}
