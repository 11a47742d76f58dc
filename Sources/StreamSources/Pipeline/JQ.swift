import Events
import Reactive
import StreamRuntime

/// A pipeline's report for the operator.
public enum PipelineReport: Sendable, Equatable {
  /// A program failed on an event, which was removed or, for `distinct`, passed. The reason is a sentence without full
  /// stop; it may contain 200 bytes of the event.
  case failedEvent(String)
  /// This number of events was removed: they are not JSON, which the stream requires. The reason is that of the last one.
  case malformed(Int, String)
  /// The previous event failed; this one did not.
  case passing
  /// The programs' process cannot be started, or can be started again.
  case process(SourceReport)
}

/// The jq programs of a stream.
public struct JQTransform: Sendable, Equatable {
  /// Makes any number of events from each event; nil: leaves the event unchanged.
  public var program: String?
  /// Computes the value by which consecutive events are compared; equal ones are dropped. nil: no comparison.
  public var distinctBy: String?
  /// Computes the keys of the resulting events; nil: they get no keys.
  package var key: KeyDefinition?
  /// The `definition` of these keys.
  package var keyDigest: UInt64 = 0
  /// The values of variables that the programs use, by name; each has letters, digits, `.`, `_` and `-` only.
  package var variables: [String: String] = [:]
  /// The stream's template, whose streams share a process; nil: the stream has a process of its own.
  package var template: String?

  /// Takes texts in which `JQTransform.compileError(in:)` finds no error.
  public init(program: String? = nil, distinctBy: String? = nil) {
    (self.program, self.distinctBy) = (program, distinctBy)
  }

  /// In the order in which the process receives them.
  var programs: [String?] { [program, distinctBy, key?.key, key?.tombstone] }

  /// jq's error message for a text that is not a program, as a sentence; nil for a valid one. The first call for a text
  /// takes some 30 ms with jq 1.6.
  /// - Parameters:
  ///   - text: the program.
  ///   - variables: the names of variables that have a value.
  public static func compileError(in text: String, variables: [String] = []) -> String? {
    let key = variables.map { "$\($0) " }.joined() + text
    if sound.withLock({ $0.contains(key) }) { return nil }
    do throws(JQProgram.CompileError) {
      _ = try JQProgram(text, variables: variables)
    } catch {
      return error.sentence
    }
    sound.withLock { sound in
      if sound.count == 1024 { sound = [] }
      sound.insert(key)
    }
    return nil
  }

  /// Those of `names` that a program may use as variables.
  package static func variables(in text: String, among names: [String]) -> [String] {
    let parts = text.split(separator: "$", omittingEmptySubsequences: false).dropFirst().map { part in
      part.prefix { $0.isASCII && ($0.isLetter || $0.isNumber || $0 == "_") }
    }
    return names.filter { name in parts.contains { $0 == name } }
  }

  /// Whether numbers above 2^53 in results of this program are rounded: it is more than a path, and jq is older than 1.7.
  /// Events that it passes on unchanged are exact nevertheless.
  public static func roundsNumbers(_ program: String) -> Bool {
    JSONPaths.steps(ofProgram: program, mayBeLast: true) == nil && JQProgram.roundsNumbers
  }

  /// Valid programs, cached: a configuration that is reloaded repeats nearly all of its programs.
  private static let sound = Locked<Set<String>>([])
}

extension Publisher where Output == EventBatch, Failure == Never {
  /// Runs events through jq programs, in a child process.
  ///
  /// An event on which the first program fails is removed; exceeding 10 s of processor time or 1 GiB of memory is a
  /// failure, too. An event for which the comparison program fails counts as distinct. An event for which a key program
  /// fails has no key. A batch that becomes empty uses no demand, unless it brings a checkpoint or a loss. For one
  /// subscription at a time, such as a shared log's: each compares with the last event of the previous subscription.
  /// The process runs from the first demand until the subscription ends.
  /// - Parameters:
  ///   - transform: the programs.
  ///   - name: the stream's name, for the process list.
  ///   - executable: a program that calls `HelperProcess.runIfAsked` first.
  ///   - resumption: as for `distinct`, if the transform compares events.
  ///   - keepsPosition: as for `distinct`.
  ///   - thread: where values are delivered.
  ///   - report: called on the source thread; must return promptly.
  public func jq(
    _ transform: JQTransform, name: String, executable: String, resumption: SourceResumption? = nil,
    keepsPosition: Bool = false, on thread: SourceThread,
    report: @escaping @Sendable (PipelineReport) -> Void
  ) -> AnyPublisher<EventBatch, Never> {
    jq(
      transform, name: name, executable: executable, timePerEvent: JQWorker.timePerEvent, resumption: resumption,
      keepsPosition: keepsPosition, on: thread, report: report)
  }

  /// - Parameter timePerEvent: processor time, at least a millisecond.
  func jq(
    _ transform: JQTransform, name: String, executable: String, timePerEvent: Duration,
    resumption: SourceResumption? = nil, keepsPosition: Bool = false, on thread: SourceThread,
    report: @escaping @Sendable (PipelineReport) -> Void
  ) -> AnyPublisher<EventBatch, Never> {
    let makePrograms: MakePrograms = { owner throws(SystemError) in
      try JQPrograms(
        executable: executable, timePerEvent: timePerEvent, name: name, transform: transform, on: thread, owner: owner)
    }
    let memory = DistinctMemory(transform.distinctBy == nil ? nil : resumption, keepsPosition: keepsPosition)
    return JQ(
      upstream: self, loop: thread.loop, report: report, makePrograms: makePrograms, memory: memory,
      keyDigest: transform.key.map { _ in transform.keyDigest }
    ).eraseToAnyPublisher()
  }
}

private typealias MakePrograms = (any JQPrograms.Owner) throws(SystemError) -> JQPrograms

private struct JQ<Upstream: Publisher<EventBatch, Never>>: Publisher {
  typealias Output = EventBatch
  typealias Failure = Never
  let upstream: Upstream
  let loop: EventLoop
  let report: @Sendable (PipelineReport) -> Void
  let makePrograms: MakePrograms
  let memory: DistinctMemory
  let keyDigest: UInt64?

  func receive<S: Subscriber>(subscriber: S) where S.Input == Output, S.Failure == Failure {
    upstream.subscribe(JQLink(memory, keyDigest, report, makePrograms, on: loop, to: AnySubscriber(subscriber)))
  }
}

/// A subscription: connects the machine to its programs.
private final class JQLink: BatchLink<JQMachine>, JQPrograms.Owner, @unchecked Sendable {
  private let memory: DistinctMemory
  /// The definition of the events' keys; nil: they have none.
  private let keyDigest: UInt64?
  private let report: @Sendable (PipelineReport) -> Void
  private let makePrograms: MakePrograms
  private var programs: JQPrograms?
  private var isResumed = false
  private var failures = 0
  /// Whether the last event failed; initially true, because that event may have been another subscription's.
  private var isFailing = true
  private var retryTimer: TimerID?

  /// A process that cannot be started is retried, because the machine lacks a resource.
  private static let retry = Backoff(first: .seconds(1), max: .seconds(60))

  init(
    _ memory: DistinctMemory, _ keyDigest: UInt64?, _ report: @escaping @Sendable (PipelineReport) -> Void,
    _ makePrograms: @escaping MakePrograms, on loop: EventLoop, to down: AnySubscriber<EventBatch, Never>
  ) {
    (self.memory, self.keyDigest) = (memory, keyDigest)
    self.report = report
    self.makePrograms = makePrograms
    super.init(JQMachine(keepsPosition: memory.keepsPosition), on: loop, to: down)
  }

  /// Starts the process before the first event arrives, because starting takes time.
  override func start() {
    if !isResumed { memory.resume() }
    isResumed = true
    do throws(SystemError) {
      programs = try makePrograms(self)
    } catch {
      retryLater("\(error)")
    }
  }

  /// The last piece of a batch has the checkpoint; the last event of that piece was compared last.
  override func completed(_ batch: EventBatch) -> EventBatch {
    guard machine.unanswered.isEmpty else { return batch }
    var batch = batch
    batch.checkpoint = memory.checkpoint(batch.checkpoint)
    return batch
  }

  override func begin(_ events: EventBatch) {
    programs?.send(events)
  }

  override func end() {
    if let retryTimer { loop.cancel(retryTimer) }
    retryTimer = nil
    programs?.end()
    programs = nil
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

  // MARK: JQPrograms.Owner

  var unanswered: EventBatch.SubSequence { machine.unanswered }

  func programsAreReady(_ unconfined: SourceReport?) {
    if let unconfined { report(.process(unconfined)) }
    if failures > 0 { report(.process(.recovered(afterFailures: failures))) }
    failures = 0
  }

  func programsAnswered(_ answer: JQAnswer) {
    if let failure = answer.failure { report(.failedEvent(failure)) }
    let isLost = answer.failure != nil && answer.outputs.isEmpty
    if isFailing || answer.failure != nil, !isLost { report(.passing) }
    isFailing = isLost
    guard let event = machine.unanswered.first else { return }
    let admitted = answer.outputs.filter { memory.admits($0.distinctBy) }
    var events = EventBatch(admitted.map { $0.event ?? event })
    if let keyDigest {
      events.setKeys(admitted.reduce(into: EventKeys(definition: keyDigest)) { $0.append($1.key) })
    }
    machine.answered(events)
    advance()
  }

  func programsFailed(_ reason: String) {
    guard !machine.unanswered.isEmpty else { return }
    report(.failedEvent(reason))
    isFailing = true
    machine.answered([])
    advance()
  }

  func programsCannotRun(_ reason: String) {
    programs = nil
    retryLater(reason)
  }
}
