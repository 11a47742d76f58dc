import RSocket
import Reactive
import StreamRuntime
import Synchronization

/// A subscriber that publishes its values to a stream of the server. Its demand is the server's credit.
///
/// Without a name the sink requests one value from its publisher and opens the request with it; it requests every
/// further value within the credit that the server has granted. The values that wait here for the socket are also
/// bounded: about 256 KiB, or one value.
///
/// With a ``PublisherName`` the sink outlives its connection: values are numbered, kept until the server confirms them,
/// and sent again if the server does not have them. The server's credit bounds their number. No value enters the stream
/// twice, and none is lost, as long as the stream's log outlives the failure.
///
/// The completion is delivered once: `.finished` when the server has confirmed that every value is in the stream, else
/// the failure. Until then values may be in flight: of the values sent before a failure, some are in the stream, in
/// order, and the others are not. A publisher that finishes without a value finishes the sink; nothing is sent to the
/// server.
///
/// Values may arrive on any thread. The sink calls the publisher's subscription and the completion handler on the
/// connection's loop.
public final class RemoteSink: Subscriber, Cancellable, TransportRequest, @unchecked Sendable {
  // Sendable: all state outside the inbox belongs to the transport's loop.

  /// The bytes of one event.
  public typealias Input = [UInt8]
  /// `Never`: a publisher's failure cannot be sent to the stream.
  public typealias Failure = Never

  private struct Inbox {
    var upstream: (any Subscription)?
    var hadUpstream = false
    var values: [[UInt8]] = []
    var isComplete = false
    /// The loop was notified, or will read the inbox anyway.
    var isPosted = false
  }

  private enum Phase {
    case idle  // can become: greeting, open, over
    /// Named: the server must send the number at which to continue.
    case greeting(StreamID)  // can become: open, waiting, cancelled, over
    case open(StreamID)  // can become: confirming, waiting, cancelled, over
    case confirming(StreamID)  // COMPLETE is sent; can become: waiting, cancelled, over
    /// The connection is lost; the next attempt starts when the timer fires.
    case waiting(TimerID)  // can become: idle, over
    case cancelled(StreamID)  // the server must receive a CANCEL; can become: over
    case over
  }

  private let transport: ClientTransport
  private let inbox = Locked(Inbox())
  /// Set once, and checked before every call.
  private let isCancelled = Atomic(false)

  /// Holds the connection, which closes after its last use; released at the end.
  private var request: RemoteRequest?
  private var receiveCompletion: ((Subscribers.Completion<StreamError>) -> Void)?
  private var upstream: (any Subscription)?
  private var phase = Phase.idle
  /// Values that arrived and were not sent on this connection.
  private var waiting: ArraySlice<[UInt8]> = []
  private var isComplete = false
  private var isScheduled = false
  private var isAsking = false
  /// The number of values that may be sent: the first one opens the request, the others need the server's credit.
  private var credit = Subscribers.Demand.max(1)
  /// The number of values that were requested from upstream and have not arrived.
  private var asked = 0
  private var largestBytes = 0
  /// The state of a named publisher.
  private var delivery: ConfirmedDelivery?

  /// The largest number of unsent values to request, if they are small.
  private static let mostUnsent = 256
  private static let unsentBytes = 256 << 10

  /// - Parameter publisher: `nil`: a loss of the connection ends the sink.
  init(
    _ connection: StreamConnection, name: String, publisher: PublisherName? = nil,
    receiveCompletion: @escaping (Subscribers.Completion<StreamError>) -> Void
  ) {
    transport = connection.transport
    request = RemoteRequest(connection: connection, kind: .channel, name: name)
    delivery = publisher.map { ConfirmedDelivery($0) }
    self.receiveCompletion = receiveCompletion
  }

  // MARK: From any thread

  /// Stores the publisher's subscription; a second one is cancelled.
  public func receive(subscription: any Subscription) {
    let isFirst = inbox.withLock { inbox in
      guard !inbox.hadUpstream else { return false }
      inbox.hadUpstream = true
      inbox.upstream = subscription
      return true
    }
    if isFirst { updateInbox { _ in } } else { subscription.cancel() }
  }

  /// Receives a requested value.
  /// - Returns: none; more values are requested when there is credit.
  public func receive(_ value: [UInt8]) -> Subscribers.Demand {
    updateInbox { $0.values.append(value) }
    return .none
  }

  /// Receives the publisher's completion. The sink's own completion follows.
  public func receive(completion: Subscribers.Completion<Never>) {
    updateInbox { $0.isComplete = true }
  }

  /// Stops requesting and sending values; no completion is reported. The values that the server has received stay in
  /// the stream.
  public func cancel() {
    guard !isCancelled.exchange(true, ordering: .acquiringAndReleasing) else { return }
    updateInbox { _ in }
  }

  /// Changes the inbox and notifies the loop. Values are gathered until the loop reads them, even if they arrive on the
  /// loop itself.
  private func updateInbox(_ change: (inout Inbox) -> Void) {
    let mustPost = inbox.withLock { inbox in
      change(&inbox)
      defer { inbox.isPosted = true }
      return !inbox.isPosted
    }
    if mustPost { transport.loop.execute { [self] in readInbox() } }
  }

  // MARK: On the loop

  func readInbox() {
    transport.loop.assertOnLoop()
    takeInbox()
    ask()
    proceed()
  }

  /// Processes the values and messages received so far.
  private func proceed() {
    if isCancelled.load(ordering: .acquiring) { return giveUp() }
    switch phase {
    case .over: releaseUpstream()
    case .idle where isDelivered, .waiting where isDelivered: end(.finished)
    case .idle, .greeting, .open, .confirming, .waiting, .cancelled: scheduleIfNeeded()
    }
  }

  /// Whether the server has every value.
  private var isDelivered: Bool { isComplete && waiting.isEmpty && delivery?.isConfirmed != false }

  private func takeInbox() {
    let (subscription, values, isComplete) = inbox.withLock { inbox in
      defer {
        inbox.values = []
        inbox.isPosted = false
      }
      return (inbox.upstream.take(), inbox.values, inbox.isComplete)
    }
    if let subscription { upstream = subscription }
    for value in values { largestBytes = max(largestBytes, value.count) }
    asked = max(0, asked - values.count)
    if waiting.isEmpty { waiting = values[...] } else { waiting += values }
    self.isComplete = isComplete
    delivery?.skip(&waiting)
  }

  /// The number of values to request from upstream now: those that may be sent, once at most half of the largest number
  /// of unsent values is outstanding; 0 for none.
  private var wantedCount: Int {
    guard !isComplete, !isCancelled.load(ordering: .acquiring) else { return 0 }
    if case .over = phase { return 0 }
    let most = max(1, min(Self.mostUnsent, Self.unsentBytes / max(1, largestBytes)))
    let unsent = asked + waiting.count
    return unsent <= most / 2 ? max(0, min(most, credit.max ?? .max) - unsent) : 0
  }

  private func ask() {
    guard !isAsking, let upstream else { return }
    let count = wantedCount
    guard count > 0 else { return }
    asked += count
    isAsking = true
    inbox.withLock { $0.isPosted = true }
    upstream.request(.max(count))
    isAsking = false
    takeInbox()  // with the values that arrived immediately
    if wantedCount > 0 { updateInbox { _ in } }  // some are sent, so more can be requested, after other requests
  }

  private var hasSignal: Bool {
    switch phase {
    case .idle: !waiting.isEmpty || delivery?.isConfirmed == false
    case .open: !waiting.isEmpty && credit > .none || isComplete && waiting.isEmpty
    case .cancelled: true
    case .greeting, .confirming, .waiting, .over: false
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
    guard hasSignal else { return .nothing }
    switch phase {
    case .idle:
      guard var request else { return .nothing }
      if let delivery {
        request.publisher = try delivery.entry
        return .open(.channel, initialRequest: Credit.unlimited, try request.payload())
      }
      var payload = try request.payload()
      payload.data = waiting.removeFirst()
      credit -= 1
      return .open(.channel, initialRequest: 1, payload)
    case .open(let id):
      let values = takeChunk()
      let isLast = waiting.isEmpty && isComplete
      if isLast { phase = .confirming(id) }
      // Runs after these values were passed to the transport.
      if !values.isEmpty { updateInbox { _ in } }
      return .values(id, values, isComplete: isLast)
    case .cancelled(let id):
      phase = .over
      return .cancel(id)
    case .greeting, .confirming, .waiting, .over: return .nothing
    }
  }

  /// Returns as many values as one write takes, or one value, within the credit.
  private func takeChunk() -> ArraySlice<[UInt8]> {
    var byteCount = 0
    var end = waiting.startIndex
    let last = waiting.startIndex + min(waiting.count, credit.max ?? .max)
    while end < last, byteCount < ClientTransport.roomByteCount {
      byteCount += waiting[end].count
      end += 1
    }
    let chunk = waiting[..<end]
    waiting = waiting[end...]
    credit -= .max(chunk.count)
    delivery?.send(chunk)
    return chunk
  }

  func opened(_ id: StreamID) {
    transport.loop.assertOnLoop()
    guard delivery != nil else {
      phase = .open(id)
      return scheduleIfNeeded()
    }
    phase = .greeting(id)
    credit = .none
  }

  /// Receives the server's messages for a named publisher: first the number at which to continue, then confirmations.
  func receive(_ payload: Payload) {
    transport.loop.assertOnLoop()
    let id: StreamID
    switch phase {
    case .greeting(let request), .open(let request), .confirming(let request): id = request
    case .idle, .waiting, .cancelled, .over: return
    }
    var report: ReconnectPolicy.Report?
    switch delivery?.receive(payload.data, &waiting) {
    case nil: return  // without a name no message is expected
    case .confirmed: if case .greeting = phase { return fail(id) }
    case .greeted(let news):
      guard case .greeting = phase else { return fail(id) }
      phase = .open(id)
      report = news
    case .invalid: return fail(id)
    }
    if let report { delivery?.policy.report(report) }
    ask()
    proceed()
  }

  /// Handles a server that violates the rules of named publishing.
  private func fail(_ id: StreamID) {
    phase = .cancelled(id)
    scheduleIfNeeded()
    self.report(.failure(.failed(.invalid, "unexpected confirmation from the server")))
  }

  func receiveDemand(_ count: UInt32) {
    transport.loop.assertOnLoop()
    if count >= Credit.unlimited { credit = .unlimited } else { credit += .max(Int(count)) }
    ask()
    proceed()
  }

  func receiveCancel() {
    transport.loop.assertOnLoop()
    guard case .open(let id) = phase else { return }
    phase = .cancelled(id)
    scheduleIfNeeded()
    report(.failure(.canceled("the server accepts no more values")))
  }

  func end(_ completion: Subscribers.Completion<StreamError>) {
    transport.loop.assertOnLoop()
    if case .failure(let error) = completion, retries(after: error) { return }
    var completion = completion
    if completion == .finished {
      switch phase {
      case .greeting, .open: completion = .failure(.canceled("the server ended the request before the last value"))
      case .idle, .confirming, .waiting, .cancelled, .over: break
      }
    }
    if case .waiting(let timer) = phase { transport.loop.cancel(timer) }
    phase = .over
    report(completion)
  }

  /// - Returns: true if the sink outlives the failure and waits for its next attempt.
  private func retries(after error: StreamError) -> Bool {
    guard delivery != nil, receiveCompletion != nil, !transport.isClosed, !isCancelled.load(ordering: .acquiring) else {
      return false
    }
    if isDelivered {
      phase = .idle
      end(.finished)
      return true
    }
    let fraction = Double.random(in: 0..<1)
    guard
      let (delay, news) = delivery?.retry(
        after: error, isRefused: transport.isRefused, fraction: fraction, &waiting)
    else { return false }
    credit = waiting.isEmpty ? .max(1) : .none  // a value opens the next request
    phase = .waiting(
      transport.loop.schedule(after: delay) { [self] in
        phase = .idle
        ask()
        proceed()
      })
    if let news { delivery?.policy.report(news) }
    return true
  }

  private func giveUp() {
    switch phase {
    case .greeting(let id), .open(let id), .confirming(let id):
      phase = .cancelled(id)
      scheduleIfNeeded()
    case .waiting(let timer):
      transport.loop.cancel(timer)
      phase = .over
    case .idle: phase = .over
    case .cancelled, .over: break
    }
    receiveCompletion = nil
    releaseUpstream()
  }

  private func report(_ completion: Subscribers.Completion<StreamError>) {
    let receive = receiveCompletion
    receiveCompletion = nil
    releaseUpstream()
    if !isCancelled.load(ordering: .acquiring) { receive?(completion) }
  }

  /// Releases the request, and cancels the publisher's subscription unless the publisher has finished.
  private func releaseUpstream() {
    let ended = upstream
    upstream = nil
    waiting = []
    request = nil
    if !isComplete { ended?.cancel() }
  }
}
