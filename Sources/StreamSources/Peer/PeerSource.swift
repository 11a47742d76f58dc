import Events
import Reactive
import StreamRuntime

/// Receives the events of a stream of another streamd, and subscribes again when the connection ends.
///
/// Each value is a batch: the events of one read. One unit of demand is one batch. Without demand no connection is made,
/// an open one is not read, and no credit is granted. The id there is the checkpoint, so that no event comes twice. A
/// loss there is one of the batch. Never completes: a stream that ends there may begin again. For one subscription at a
/// time, such as a shared log's.
package struct PeerSource: Publisher, Sendable {
  /// A batch of events, each its bytes.
  package typealias Output = EventBatch
  /// A failed connection is reported and made again.
  package typealias Failure = Never

  fileprivate let configuration: PeerConfiguration
  fileprivate let resumption: SourceResumption
  fileprivate let thread: SourceThread
  fileprivate let progress: @Sendable (SourceProgress) -> Void
  fileprivate let report: @Sendable (SourceReport) -> Void
  fileprivate let memory: SourceMemory<RestartMachine>

  /// - Parameters:
  ///   - resumption: the checkpoint from which each subscription continues, and which each batch carries.
  ///   - refresh: makes the source connect before its next attempt is due.
  ///   - progress: called with each change that the source's counters record.
  ///   - report: called with each failure, each loss, and at the end of a series of these, on the source thread; must
  ///     return promptly.
  package init(
    _ configuration: PeerConfiguration, resumption: SourceResumption, refresh: SourceRefresh = SourceRefresh(),
    on thread: SourceThread, progress: @escaping @Sendable (SourceProgress) -> Void = { _ in },
    report: @escaping @Sendable (SourceReport) -> Void
  ) {
    self.configuration = configuration
    self.resumption = resumption
    self.thread = thread
    self.progress = progress
    self.report = report
    memory = SourceMemory(refresh) {
      RestartMachine(retry: configuration.retry, seed: UInt64.random(in: 0...UInt64.max))
    }
  }

  /// Subscribes. Values are delivered on the source thread.
  package func receive<S: Subscriber>(subscriber: S) where S.Input == Output, S.Failure == Failure {
    subscriber.receive(subscription: PeerSubscription(self, AnySubscriber(subscriber)))
  }
}

/// A subscription: connects the machine to a connection.
private final class PeerSubscription: SourceSubscription<RestartMachine>, PeerLink.Owner, @unchecked Sendable {
  private let source: PeerSource
  private let fingerprint: BodyDigest
  private var link: PeerLink?
  /// The id up to which everything was delivered; nil: nothing was.
  private var lastID: UInt64?
  /// How often the other streamd did not know that id, since the last event.
  private var unknownCount = 0
  private var hasLostPosition = false
  private var hasMissed = false

  /// A host of a fleet may receive events late, and then knows the id at the next attempt.
  private static let patience = 3

  init(_ source: PeerSource, _ down: AnySubscriber<EventBatch, Never>) {
    self.source = source
    fingerprint = source.configuration.fingerprint
    super.init(on: source.thread, source.memory, report: source.report, to: down)
  }

  /// Resumes after the last event in the log. An event that was delivered but is not in the log is requested again.
  override func begin() {
    if hasMissedEndOfRests { machine?.endRest(at: now) }
    let position = source.resumption.checkpoint().flatMap { SourcePosition($0, fingerprint) }
    if case .peer(let id)? = position { lastID = id }
  }

  override func retracted() { link?.proceed() }

  override func end() {
    link?.close()
    link = nil
  }

  override func advance() {
    guard isLive, !thread.isStopped else { return }
    link?.proceed()
    super.advance()
  }

  override func perform(_ action: RestartMachine.Action) {
    switch action {
    case .rest: break
    case .wait(let due): wait(until: due)
    case .begin: connect()
    }
  }

  private func connect() {
    source.progress(.attempted)
    let machine = PeerMachine(source.configuration, after: lastID, hasLostPosition: hasLostPosition, at: now)
    let link = PeerLink(machine, on: thread.loop, owner: self)
    self.link = link
    link.open()
  }

  // MARK: PeerLink.Owner

  func peerAnswered(after time: Duration) {
    source.progress(.answered(status: 200, after: time))
    tell(machine?.answered(at: now))
  }

  func peerSent(byteCount: Int) { source.progress(.received(byteCount: byteCount)) }

  func peerBrought(_ part: PeerMachine.Part) {
    guard isLive else { return }
    (lastID, unknownCount, hasLostPosition) = (part.lastID, 0, false)
    tell(machine?.delivered())
    var events = part.events
    if let loss = events.loss {
      tell(.missed(loss, of: source.configuration.place))
    } else if hasMissed {
      tell(.current)
    }
    hasMissed = events.loss != nil
    events.checkpoint = SourcePosition.peer(lastID: part.lastID).checkpoint(fingerprint)
    give(events)
  }

  func peerEnded(_ ending: PeerMachine.Ending) {
    link = nil
    cancelTimer()
    var failure = ending.failure
    if ending.isOfPosition {
      unknownCount += 1
      if unknownCount == Self.patience {
        (lastID, hasLostPosition) = (nil, true)
        failure.sentence += "; the next attempt begins with the oldest event there"
      }
    }
    tell(machine?.ended(failure, at: now))
    advance()
  }
}
