import Events
import Glibc
import Reactive
import StreamRuntime

/// Reads the entries of a systemd journal that fit, in a process of its own (`JournalWorker`), and publishes each as a
/// JSON object (`JournalEntryText`).
///
/// Without demand the journal is not read, and after some time not open. The cursor of the last entry is each batch's
/// checkpoint, so that a subscription that resumes neither repeats nor leaves out an entry. Entries that were removed
/// before they were read are a loss. A batch may have no event: it has a loss, or a later position. Entries of the daemon
/// itself are left out.
public struct JournalSource: SourceDriver {
  fileprivate let configuration: JournalConfiguration

  /// Without a checkpoint each subscription begins as configured.
  public init(_ configuration: JournalConfiguration) { self.configuration = configuration }

  /// Makes the subscriptions of one source.
  public func subscriptions(in context: SourceContext) -> SubscriptionMaker {
    let memory = SourceMemory(retry: configuration.retry)
    return { JournalSubscription(self, context, memory, to: $0) }
  }
}

/// A subscription: connects the machine to the process that reads the journal.
private final class JournalSubscription: SourceSubscription<RestartMachine>, HelperChannel.Owner, @unchecked Sendable {
  private let driver: JournalSource
  private let resumption: SourceResumption?
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

  init(
    _ driver: JournalSource, _ context: SourceContext, _ memory: SourceMemory<RestartMachine>,
    to down: AnySubscriber<EventBatch, Never>
  ) {
    (self.driver, resumption) = (driver, context.resumption(.stream))
    fingerprint = BodyDigest(parts: ["journal", driver.configuration.directory ?? ""])
    super.init(context, memory, to: down)
  }

  override var isLive: Bool { super.isLive && !thread.isStopped }

  override func begin() {
    start = driver.configuration.beginning.time
    guard let kept = resumption?.checkpoint(), case .journal(let cursor)? = SourcePosition(kept, fingerprint)
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

  override func perform(_ action: RestartMachine.Action) { perform(action) { open() } }

  private func open() {
    isResting = false
    context.progress(.attempted)
    var setup = JournalSetup(driver.configuration)
    (setup.cursor, setup.start) = (cursor, start ?? 0)
    do throws(SystemError) {
      // An event, its kind, and the rest of a message that was read with it.
      let limit = max(setup.eventLimit, 4096) + (128 << 10)
      channel = try HelperChannel(
        context.executable, JournalWorker.argument, [context.name ?? "journal"] + setup.values, messageLimit: limit,
        on: thread,
        owner: self)
    } catch {
      report(machine?.failed("cannot read the journal: \(error)", at: now))
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
      restTimer = thread.loop.schedule(after: driver.configuration.restTime) { [weak self] in
        guard let self else { return }
        restTimer = nil
        close()
        isResting = true
      }
    }
  }

  private func deliver(_ batch: EventBatch) {
    report(machine?.delivered())
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
    case .opened: report(machine?.answered(at: now))
    case .event(let event):
      context.progress(.received(byteCount: event.count))
      batch.append(event)
    case .end(let cursor): complete(upTo: cursor)
    case .lost(let loss):
      batch.loss = batch.loss.map { $0.joined(with: loss) } ?? loss
      isImpaired = true
      report(.missed(loss, of: "the journal"))
    case .dropped(let reason):
      isImpaired = true
      report(.lost(reason, count: 1))
    case .limited(let sentence): reportLimit(sentence)
    case .failed(let reason): fault = reason
    }
    return true
  }

  private func complete(upTo cursor: [UInt8]) {
    self.cursor = cursor
    isAsked = false
    var complete = EventBatch()
    swap(&complete, &batch)
    if resumption != nil { complete.checkpoint = SourcePosition.journal(cursor: cursor).checkpoint(fingerprint) }
    if !complete.isBlank {
      if isWanted { deliver(complete) } else { waiting = complete }
    }
    advance()
  }

  func helperEnded(status: CInt) {
    let reason = fault ?? "the process that reads the journal \(ProgramEnding(status: status).fault ?? "has ended")"
    close()
    guard isLive else { return }
    conclude(SourceFailure(reason))
  }
}

extension JournalConfiguration.Beginning {
  /// Now, in microseconds since the Unix epoch.
  fileprivate var time: UInt64 {
    switch self {
    case .at(let time): return time
    case .before(let span):
      let time = EventLoop.wallClock()
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
