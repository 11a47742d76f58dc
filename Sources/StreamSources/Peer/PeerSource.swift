import Events
import Reactive
import StreamRuntime

/// Receives the events of a stream of another streamd, and subscribes again when the connection ends.
///
/// Each batch has the events of one read. Without demand no connection is made, an open one is not read, and no credit is
/// granted. The id there is the checkpoint, so that no event comes twice. A loss there is one of the batch. A stream that
/// ends there may begin again.
package struct PeerSource: SourceDriver {
  fileprivate let configuration: PeerConfiguration

  package init(_ configuration: PeerConfiguration) { self.configuration = configuration }

  package func subscriptions(in context: SourceContext) -> SubscriptionMaker {
    let memory = SourceMemory(retry: configuration.retry)
    return { PeerSubscription(self, context, memory, to: $0) }
  }
}

/// A subscription: connects the machine to a connection.
private final class PeerSubscription: SourceSubscription<RestartMachine>, PeerLink.Owner, @unchecked Sendable {
  private let driver: PeerSource
  private let resumption: SourceResumption?
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

  init(
    _ driver: PeerSource, _ context: SourceContext, _ memory: SourceMemory<RestartMachine>,
    to down: AnySubscriber<EventBatch, Never>
  ) {
    (self.driver, resumption) = (driver, context.resumption(.log))
    fingerprint = driver.configuration.fingerprint
    super.init(context, memory, to: down)
  }

  /// Resumes after the last event in the log. An event that was delivered but is not in the log is requested again.
  override func begin() {
    if hasMissedEndOfRests { machine?.endRest(at: now) }
    continueSchedule()
    let position = resumption?.checkpoint().flatMap { SourcePosition($0, fingerprint) }
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

  override func perform(_ action: RestartMachine.Action) { perform(action) { connect() } }

  private func connect() {
    context.progress(.attempted)
    let machine = PeerMachine(driver.configuration, after: lastID, hasLostPosition: hasLostPosition, at: now)
    let link = PeerLink(machine, on: thread.loop, owner: self)
    self.link = link
    link.open()
  }

  // MARK: PeerLink.Owner

  func peerAnswered(after time: Duration) {
    context.progress(.answered(status: 200, after: time))
    report(machine?.answered(at: now))
  }

  func peerSent(byteCount: Int) { context.progress(.received(byteCount: byteCount)) }

  func peerBrought(_ part: PeerMachine.Part) {
    guard isLive else { return }
    (lastID, unknownCount, hasLostPosition) = (part.lastID, 0, false)
    report(machine?.delivered())
    var events = part.events
    if let loss = events.loss {
      report(.missed(loss, of: driver.configuration.place))
    } else if hasMissed {
      report(.current)
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
    conclude(failure)
  }
}
