import RSocket
import Reactive
import StreamRuntime
import Synchronization

/// The request of one subscriber: converts demand, which any thread may add, into frames, which only the loop may send.
///
/// Demand is added to an inbox; the loop is notified once, however often demand is added before the loop reads it. All
/// members below "On the loop" belong to the transport's loop, which makes signals to the subscriber serial and
/// delivers them outside every lock. That, and the inbox's lock, make it safe to share the object between threads.
final class RemoteSubscription<Down: Subscriber>: DroppingSubscription, TransportRequest, @unchecked Sendable
where Down.Input == StreamEvent, Down.Failure == StreamError {
  private struct Inbox {
    var demand = Subscribers.Demand.none
    /// The loop was notified, or must not be yet: the subscriber is still receiving its subscription.
    var isPosted = true
  }

  private enum Phase {
    case idle  // can become: open, waiting, over
    case open(StreamID)  // can become: waiting, cancelled, over
    /// The connection is lost; the next attempt starts when the timer fires.
    case waiting(TimerID)  // can become: idle, over
    case cancelled(StreamID)  // the server must receive a CANCEL; can become: over
    case over
  }

  private let transport: ClientTransport
  private let inbox = Locked(Inbox())
  /// Set once, and checked before every value: it is set before the loop handles the cancellation.
  private let isCancelled = Atomic(false)

  /// Holds the connection, which closes after its last use; released at the end.
  private var request: RemoteRequest?
  private var phase = Phase.idle
  private var demand = RemoteDemand()
  /// Whether payloads have the number of events that were left out.
  private let isFiltered: Bool
  /// Whether payloads have their kind.
  private let hasKind: Bool
  /// Whether they have the names of their streams.
  private let hasName: Bool
  /// The state of a subscription that outlives its connection.
  private var resumption: Resumption?
  /// The subscriber; released at the end, on the thread that ends the subscription.
  private var down: Down?
  private var isScheduled = false

  init(_ request: RemoteRequest, _ down: Down) {
    transport = request.connection.transport
    let options = request.options
    // Markers are positions to resume from, and show the end of a state: see `ReconnectPolicy`.
    let needsMarkers = options.filter != nil || options.from == .state
    let hidesMarkers = request.reconnect != nil && needsMarkers && options.ids && !options.marker
    isFiltered = options.filter != nil
    hasKind = options.marker || hidesMarkers
    hasName = request.isForPattern
    resumption = request.reconnect.map { policy in
      Resumption(
        policy: policy, hidesMarkers: hidesMarkers, beginsWithState: options.from == .state,
        wasConnected: request.wasConnected, isInterrupted: request.isInterrupted)
    }
    self.request = request
    self.request?.options.marker = hasKind
    self.down = down
  }

  // MARK: From any thread

  /// Sends the subscription to its subscriber. No value can overtake it, even if the subscriber requests some
  /// immediately.
  func start(_ subscriber: Down) {
    subscriber.receive(subscription: self)
    let mustPost = inbox.withLock { inbox in
      inbox.isPosted = inbox.demand > .none || isCancelled.load(ordering: .acquiring)
      return inbox.isPosted
    }
    if mustPost { post() }
  }

  func request(_ more: Subscribers.Demand) {
    updateInbox { $0.demand += more }
  }

  func cancel() {
    guard !isCancelled.exchange(true, ordering: .acquiringAndReleasing) else { return }
    updateInbox { _ in }
  }

  private func updateInbox(_ change: (inout Inbox) -> Void) {
    let mustPost = inbox.withLock { inbox in
      change(&inbox)
      defer { inbox.isPosted = true }
      return !inbox.isPosted
    }
    if mustPost { post() }
  }

  private func post() {
    let erased: any TransportRequest = self  // `Down` need not be Sendable: it is not used in the transfer
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
    scheduleIfNeeded()
  }

  private var hasSignal: Bool {
    switch phase {
    case .idle, .open: demand.hasGrant
    case .cancelled: true
    case .waiting, .over: false
    }
  }

  private func scheduleIfNeeded() {
    guard hasSignal, !isScheduled else { return }
    isScheduled = true
    transport.schedule(self)
  }

  func takeSignal() throws(StreamError) -> RequestSignal {
    transport.loop.assertOnLoop()
    isScheduled = false
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
    var event = StreamEvent(payload, isFiltered: isFiltered, hasKind: hasKind, hasName: hasName)
    demand.spend()
    if resumption != nil, !mayDeliver(&event) { return }
    demand.add(down.receive(event))
    scheduleIfNeeded()
  }

  func receiveValues(_ values: PayloadFrames) {
    transport.loop.assertOnLoop()
    guard let down else { return }
    var values = values
    while !isCancelled.load(ordering: .acquiring), let (metadata, data) = unsafe values.next() {
      var event = unsafe StreamEvent(
        metadata: metadata, data: data, isFiltered: isFiltered, hasKind: hasKind, hasName: hasName)
      demand.spend()
      if resumption != nil, !mayDeliver(&event) { continue }
      demand.add(down.receive(event))
    }
    scheduleIfNeeded()
  }

  /// - Parameter event: becomes the one to deliver.
  /// - Returns: false if it was delivered before or is a hidden marker, or the subscriber has cancelled.
  private func mayDeliver(_ event: inout StreamEvent) -> Bool {
    switch resumption?.receive(&event) {
    case .drop:
      demand.add(.max(1))
      scheduleIfNeeded()
      return false
    case .deliver(let report?):
      resumption?.policy.report(report)
      return !isCancelled.load(ordering: .acquiring)
    case .deliver(nil), nil: return true
    }
  }

  func end(_ completion: Subscribers.Completion<StreamError>) {
    transport.loop.assertOnLoop()
    if case .failure(let error) = completion, retries(after: error) { return }
    phase = .over
    request = nil
    guard let ended = down else { return }
    down = nil
    if !isCancelled.load(ordering: .acquiring) { ended.receive(completion: completion) }
  }

  /// - Returns: true if the subscription outlives the failure and waits for its next attempt.
  private func retries(after error: StreamError) -> Bool {
    guard down != nil, !transport.isClosed, !isCancelled.load(ordering: .acquiring) else { return false }
    let fraction = Double.random(in: 0..<1)
    guard
      case .retry(let delay, let report)? = resumption?.fail(
        error, isRefused: transport.isRefused, fraction: fraction)
    else { return false }
    demand.takeBack()
    if let id = resumption?.position { request?.options.from = .after(id: id) }
    phase = .waiting(
      transport.loop.schedule(after: delay) { [self] in
        phase = .idle
        scheduleIfNeeded()
      })
    if let report { resumption?.policy.report(report) }
    return true
  }
}
