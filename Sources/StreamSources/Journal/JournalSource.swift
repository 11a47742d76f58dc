import Events
import Glibc
import Reactive
import StreamRuntime

/// Reads the entries of a systemd journal that fit, in a process of its own (`JournalWorker`), and publishes each as a
/// JSON object (`JournalEntryText`).
///
/// Each value is a batch. One unit of demand is one batch; without demand the journal is not read, and after some time
/// not open. The cursor of the last entry is each batch's checkpoint, so that a subscription that resumes neither
/// repeats nor leaves out an entry. Entries that were removed before they were read are a loss. A batch may have no
/// event: it has a loss, or a later position. Entries of the daemon itself are left out. Never completes.
///
/// For one subscription at a time, such as a shared log's.
public struct JournalSource: Publisher, Sendable {
  /// A batch of events, each a JSON object.
  public typealias Output = EventBatch
  /// A journal that cannot be read is reported and opened again.
  public typealias Failure = Never

  fileprivate let configuration: JournalConfiguration
  fileprivate let name: String
  fileprivate let executable: String
  fileprivate let thread: SourceThread
  fileprivate let resumption: SourceResumption?
  fileprivate let progress: @Sendable (SourceProgress) -> Void
  fileprivate let report: @Sendable (SourceReport) -> Void
  fileprivate let memory: SourceMemory<RestartMachine>

  /// - Parameters:
  ///   - name: the stream's name, for the process list.
  ///   - executable: a program that calls `HelperProcess.runIfAsked` first.
  ///   - resumption: the checkpoint after which each subscription continues, and which each batch carries; nil: each
  ///     subscription begins as configured.
  ///   - refresh: makes the source open the journal before its next attempt is due.
  ///   - progress: called with each change that the source's counters record.
  ///   - report: called with each failure, loss and dropped entry, and at the end of a series of them, on the source
  ///     thread; must return promptly.
  public init(
    _ configuration: JournalConfiguration, name: String, executable: String, resumption: SourceResumption? = nil,
    refresh: SourceRefresh = SourceRefresh(), on thread: SourceThread,
    progress: @escaping @Sendable (SourceProgress) -> Void = { _ in },
    report: @escaping @Sendable (SourceReport) -> Void
  ) {
    (self.configuration, self.name, self.executable) = (configuration, name, executable)
    (self.thread, self.resumption, self.progress, self.report) = (thread, resumption, progress, report)
    memory = SourceMemory(refresh) {
      RestartMachine(retry: configuration.retry, seed: UInt64.random(in: 0...UInt64.max))
    }
  }

  /// Subscribes. Values are delivered on the source thread.
  public func receive<S: Subscriber>(subscriber: S) where S.Input == Output, S.Failure == Failure {
    subscriber.receive(subscription: JournalSubscription(self, AnySubscriber(subscriber)))
  }
}

/// A subscription: connects the machine to the process that reads the journal.
private final class JournalSubscription: SourceSubscription<RestartMachine>, HelperChannel.Owner, @unchecked Sendable {
  private let source: JournalSource
  private let fingerprint: BodyDigest
  private var channel: HelperChannel?
  /// The last entry that a batch has passed; empty: none.
  private var cursor: [UInt8] = []
  /// Where to begin without an entry; nil: before the first demand.
  private var start: UInt64?
  /// What has arrived of the next batch.
  private var batch = EventBatch()
  /// A complete batch that came without demand for it.
  private var waiting: EventBatch?
  /// Whether a batch is requested from the process.
  private var isAsked = false
  /// Whether the process has ended for lack of demand, in the middle of a run.
  private var isResting = false
  private var restTimer: TimerID?
  /// Why the process ends, as it has said itself.
  private var fault: String?
  /// Whether entries were lost or dropped before the last batch.
  private var isImpaired = false

  init(_ source: JournalSource, _ down: AnySubscriber<EventBatch, Never>) {
    self.source = source
    fingerprint = BodyDigest(parts: ["journal", source.configuration.directory ?? ""])
    super.init(on: source.thread, source.memory, report: source.report, to: down)
  }

  override var isLive: Bool { super.isLive && !thread.isStopped }

  override func begin() {
    start = source.configuration.beginning.time
    guard let kept = source.resumption?.checkpoint(), case .journal(let cursor)? = SourcePosition(kept, fingerprint)
    else { return }
    self.cursor = cursor
  }

  override func retracted() { advance() }

  override func end() {
    close()
    waiting = nil
  }

  private func close() {
    channel?.end()
    if let restTimer { thread.loop.cancel(restTimer) }
    (channel, restTimer, isAsked, batch, fault) = (nil, nil, false, EventBatch(), nil)
  }

  override func advance() {
    guard isLive else { return }
    if isWanted, let batch = waiting.take() { deliver(batch) }
    if channel != nil { return ask(isWanted) }
    guard isResting else { return super.advance() }
    if isWanted { open() }
  }

  override func perform(_ action: RestartMachine.Action) {
    switch action {
    case .rest: break
    case .wait(let due): wait(until: due)
    case .begin: open()
    }
  }

  private func open() {
    isResting = false
    source.progress(.attempted)
    var setup = JournalSetup(source.configuration)
    (setup.cursor, setup.start) = (cursor, start ?? 0)
    do throws(SystemError) {
      // An event, its kind, and the rest of a message that was read with it.
      let limit = max(setup.eventLimit, 4096) + (128 << 10)
      channel = try HelperChannel(
        source.executable, JournalWorker.argument, [source.name] + setup.values, messageLimit: limit, on: thread,
        owner: self)
    } catch {
      tell(machine?.failed("cannot read the journal: \(error)", at: now))
    }
    advance()
  }

  private func ask(_ isWanted: Bool) {
    if isWanted != isAsked {
      isAsked = isWanted
      channel?.send([isWanted ? JournalMessage.wants : JournalMessage.wantsNothing])
    }
    if isWanted, let restTimer {
      thread.loop.cancel(restTimer)
      self.restTimer = nil
    } else if !isWanted, restTimer == nil {
      restTimer = thread.loop.schedule(after: source.configuration.restTime) { [weak self] in
        guard let self else { return }
        restTimer = nil
        close()
        isResting = true
      }
    }
  }

  private func deliver(_ batch: EventBatch) {
    tell(machine?.delivered())
    if isImpaired, batch.loss == nil {
      isImpaired = false
      report(.complete)
      report(.current)
    }
    give(batch)
  }

  // MARK: HelperChannel.Owner

  func helperSent(_ message: ArraySlice<UInt8>) -> Bool {
    guard let message = JournalMessage(message) else { return false }
    switch message {
    case .opened: tell(machine?.answered(at: now))
    case .event(let event):
      source.progress(.received(byteCount: event.count))
      batch.append(event)
    case .end(let cursor): complete(upTo: cursor)
    case .lost(let loss):
      batch.loss = batch.loss.map { $0.joined(with: loss) } ?? loss
      isImpaired = true
      report(.missed(loss, of: "the journal"))
    case .dropped(let reason):
      isImpaired = true
      report(.lost(reason, count: 1))
    case .limited(let sentence): limited(sentence)
    case .failed(let reason): fault = reason
    }
    return true
  }

  private func limited(_ sentence: String) {
    guard !source.memory.hasReportedLimit else { return }
    source.memory.hasReportedLimit = true
    report(.limited(sentence))
  }

  private func complete(upTo cursor: [UInt8]) {
    self.cursor = cursor
    isAsked = false
    var complete = EventBatch()
    swap(&complete, &batch)
    if source.resumption != nil { complete.checkpoint = SourcePosition.journal(cursor: cursor).checkpoint(fingerprint) }
    if !complete.isBlank {
      if isWanted { deliver(complete) } else { waiting = complete }
    }
    advance()
  }

  func helperEnded(status: CInt) {
    let reason = fault ?? "the process that reads the journal \(ProgramEnding(status: status).fault ?? "has ended")"
    close()
    guard isLive else { return }
    tell(machine?.ended(HTTPFailure(reason), at: now))
    advance()
  }
}

extension JournalConfiguration.Beginning {
  /// Now, in microseconds since the Unix epoch.
  fileprivate var time: UInt64 {
    switch self {
    case .at(let time): return time
    case .before(let span):
      var now = timespec()
      unsafe clock_gettime(CLOCK_REALTIME, &now)
      let time = UInt64(max(0, now.tv_sec)) * 1_000_000 + UInt64(now.tv_nsec) / 1000
      return time - min(time, UInt64(max(0, span.wholeNanoseconds) / 1000))
    }
  }
}

extension JournalSetup {
  fileprivate init(_ configuration: JournalConfiguration) {
    self.init()
    (directory, matches) = (configuration.directory, configuration.matches)
    eventLimit = configuration.maximumEventBytes
    (batchEvents, batchBytes) = (configuration.batchEvents, configuration.batchBytes)
  }
}
