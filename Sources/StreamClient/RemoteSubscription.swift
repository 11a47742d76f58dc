import RSocket
import Reactive
import StreamRuntime
import Synchronization

/// One subscriber's request: from the demand that any thread may add, to the frames that only the loop may send.
///
/// What the subscriber asks for goes into an inbox; the loop is told once, however often that happens before it looks.
/// Everything below "On the loop" belongs to the transport's loop, which makes signals to the subscriber serial and lets
/// them happen outside every lock; that, and the inbox's lock, is why the class may be shared between threads.
final class RemoteSubscription<Down: Subscriber>: Subscription, TransportRequest, @unchecked Sendable
where Down.Input == StreamEvent, Down.Failure == StreamError {
  private struct Inbox {
    var demand = Subscribers.Demand.none
    /// The loop has been told, or must not be yet: the subscriber is still being handed its subscription.
    var isPosted = true
  }

  private enum Phase {
    case idle  // can become: open, waiting, over
    case open(StreamID)  // can become: waiting, cancelled, over
    /// The connection is lost, and asked for again when the time has come.
    case waiting(TimerID)  // can become: idle, over
    case cancelled(StreamID)  // the server has to hear of it; can become: over
    case over
  }

  private let transport: ClientTransport
  private let inbox = Locked(Inbox())
  /// Sticky, and looked at before every value: set long before the loop has come to it.
  private let isCancelled = Atomic(false)

  /// With the connection, which closes when nobody needs it; let go of at the end.
  private var request: RemoteRequest?
  private var phase = Phase.idle
  private var demand = RemoteDemand()
  /// Of those that outlive their connection.
  private var resumption: Resumption?
  /// Let go of at the end, whoever ends it.
  private var down: Down?
  private var waitsToSpeak = false

  init(_ request: RemoteRequest, _ down: Down) {
    transport = request.connection.transport
    self.request = request
    resumption = request.reconnect.map { Resumption(policy: $0) }
    self.down = down
  }

  // MARK: From any thread

  /// Hands the subscription to its subscriber. No value can overtake that, even if it asks for some at once.
  func start(_ subscriber: Down) {
    subscriber.receive(subscription: self)
    let mustPost = inbox.withLock { inbox in
      inbox.isPosted = inbox.demand > .none || isCancelled.load(ordering: .acquiring)
      return inbox.isPosted
    }
    if mustPost { post() }
  }

  func request(_ more: Subscribers.Demand) {
    tell { $0.demand += more }
  }

  func cancel() {
    guard !isCancelled.exchange(true, ordering: .acquiringAndReleasing) else { return }
    tell { _ in }
  }

  private func tell(_ change: (inout Inbox) -> Void) {
    let mustPost = inbox.withLock { inbox in
      change(&inbox)
      defer { inbox.isPosted = true }
      return !inbox.isPosted
    }
    if mustPost { post() }
  }

  private func post() {
    let erased: any TransportRequest = self  // `Down` need not be Sendable, and is not used on the way
    if transport.loop.isCurrent { readInbox() } else { transport.loop.execute { erased.readInbox() } }
  }

  // MARK: On the loop

  func readInbox() {
    transport.loop.assertOnLoop()
    let more = inbox.withLock { inbox in
      defer { inbox = Inbox(isPosted: false) }
      return inbox.demand
    }
    if isCancelled.load(ordering: .acquiring) {
      down = nil
      request = nil
      switch phase {
      case .open(let id): phase = .cancelled(id)
      case .waiting(let timer):
        transport.loop.cancel(timer)
        phase = .over
      case .idle: phase = .over
      case .cancelled, .over: break
      }
    } else {
      demand.add(more)
    }
    speakIfNeeded()
  }

  private var hasSignal: Bool {
    switch phase {
    case .idle, .open: demand.hasGrant
    case .cancelled: true
    case .waiting, .over: false
    }
  }

  private func speakIfNeeded() {
    guard hasSignal, !waitsToSpeak else { return }
    waitsToSpeak = true
    transport.hear(self)
  }

  func takeSignal() throws(StreamError) -> RequestSignal {
    transport.loop.assertOnLoop()
    waitsToSpeak = false
    switch phase {
    case .idle:
      guard let request, demand.hasGrant else { return .nothing }
      let payload = try request.payload()
      let grant = demand.takeGrant()
      return .open(request.kind, initialRequest: request.kind == .response ? 1 : grant, payload)
    case .open(let id):
      guard request?.kind == .stream, demand.hasGrant else { return .nothing }
      return .grant(id, demand.takeGrant())
    case .cancelled(let id):
      phase = .over
      return .cancel(id)
    case .waiting, .over: return .nothing
    }
  }

  func opened(_ id: StreamID) {
    transport.loop.assertOnLoop()
    phase = .open(id)
  }

  func receive(_ payload: Payload) {
    transport.loop.assertOnLoop()
    guard let down, !isCancelled.load(ordering: .acquiring) else { return }
    let event = StreamEvent(payload)
    demand.spend()
    if resumption != nil, !mayDeliver(event) { return }
    demand.add(down.receive(event))
    speakIfNeeded()
  }

  /// - Returns: false when the subscriber has had the event, or does not want it any more.
  private func mayDeliver(_ event: StreamEvent) -> Bool {
    switch resumption?.receive(event) {
    case .drop:
      demand.add(.max(1))
      speakIfNeeded()
      return false
    case .deliver(let report?):
      resumption?.policy.report(report)
      return !isCancelled.load(ordering: .acquiring)
    case .deliver(nil), nil: return true
    }
  }

  func end(_ completion: Subscribers.Completion<StreamError>) {
    transport.loop.assertOnLoop()
    if case .failure(let error) = completion, waits(after: error) { return }
    phase = .over
    request = nil
    guard let ended = down else { return }
    down = nil
    if !isCancelled.load(ordering: .acquiring) { ended.receive(completion: completion) }
  }

  /// - Returns: true when the subscription outlives the failure, and now waits for its next attempt.
  private func waits(after error: StreamError) -> Bool {
    guard down != nil, !transport.isClosed, !isCancelled.load(ordering: .acquiring) else { return false }
    let fraction = Double.random(in: 0..<1)
    guard
      case .retry(let delay, let report)? = resumption?.fail(
        error, isTurnedAway: transport.isTurnedAway, fraction: fraction)
    else { return false }
    demand.takeBack()
    if let id = resumption?.lastID { request?.options.from = .after(id: id) }
    phase = .waiting(
      transport.loop.schedule(after: delay) { [self] in
        phase = .idle
        speakIfNeeded()
      })
    if let report { resumption?.policy.report(report) }
    return true
  }
}
