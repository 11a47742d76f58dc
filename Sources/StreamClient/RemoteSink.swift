import RSocket
import Reactive
import Synchronization

/// Publishes to a stream of the server what it is given: a subscriber whose demand is the server's credit.
///
/// It asks its publisher for one value and opens the request with it; for every further one the server has granted credit
/// before. What waits here for the socket is bounded besides: some 256 KiB, or one value.
///
/// The completion comes once: `.finished` when the server has confirmed that every value is in the stream, else why not.
/// Until then values may be on their way: of those that were sent before a failure some are in the stream, in order, and
/// the others are not. A publisher that finishes without a value is finished here, and the server never hears of it.
///
/// Values may come from any thread; what the sink calls (the publisher's subscription, the completion), it calls on the
/// connection's loop.
public final class RemoteSink: Subscriber, Cancellable, LinkedRequest, @unchecked Sendable {
  // Sendable: what is not in the inbox belongs to the link's loop.

  /// One event's bytes.
  public typealias Input = [UInt8]
  /// A publisher that can fail has no way to tell the stream.
  public typealias Failure = Never

  private struct Inbox {
    var upstream: (any Subscription)?
    var hadUpstream = false
    var values: [[UInt8]] = []
    var isComplete = false
    /// The loop has been told, or will look without.
    var isPosted = false
  }

  private enum Phase {
    case idle  // can become: open, over
    case open(StreamID)  // can become: confirming, cancelled, over
    case confirming(StreamID)  // COMPLETE is sent; can become: cancelled, over
    case cancelled(StreamID)  // the server has to hear of it; can become: over
    case over
  }

  private let link: Link
  private let inbox = Guarded(Inbox())
  /// Sticky, and looked at before every call.
  private let isCancelled = Atomic(false)

  /// With the connection, which closes when nobody needs it; let go of at the end.
  private var request: RemoteRequest?
  private var receiveCompletion: ((Subscribers.Completion<StreamError>) -> Void)?
  private var upstream: (any Subscription)?
  private var phase = Phase.idle
  private var waiting: ArraySlice<[UInt8]> = []
  private var isComplete = false
  private var waitsToSpeak = false
  private var isAsking = false
  /// What upstream may be asked for: the request's own value, and the server's credit.
  private var allowance = Subscribers.Demand.max(1)
  /// What it was asked for and has not been sent.
  private var unsent = 0
  private var largestBytes = 0

  /// Values that may be asked for before they are sent, as long as they are small.
  private static let mostUnsent = 256
  private static let unsentBytes = 256 << 10

  init(
    _ connection: StreamConnection, name: String,
    receiveCompletion: @escaping (Subscribers.Completion<StreamError>) -> Void
  ) {
    link = connection.link
    request = RemoteRequest(connection: connection, kind: .channel, name: name)
    self.receiveCompletion = receiveCompletion
  }

  // MARK: From any thread

  /// Takes the publisher's subscription; a second one is cancelled.
  public func receive(subscription: any Subscription) {
    let isFirst = inbox.withLock { inbox in
      guard !inbox.hadUpstream else { return false }
      inbox.hadUpstream = true
      inbox.upstream = subscription
      return true
    }
    if isFirst { tell { _ in } } else { subscription.cancel() }
  }

  /// Takes a value that was asked for.
  /// - Returns: none; more are asked for when there is credit.
  public func receive(_ value: [UInt8]) -> Subscribers.Demand {
    tell { $0.values.append(value) }
    return .none
  }

  /// No more values come. The sink's own completion is still to come.
  public func receive(completion: Subscribers.Completion<Never>) {
    tell { $0.isComplete = true }
  }

  /// Gives up: no more is asked for and sent, and no completion reported. What the server has got stays in the stream.
  public func cancel() {
    guard !isCancelled.exchange(true, ordering: .acquiringAndReleasing) else { return }
    tell { _ in }
  }

  /// Values are gathered until the loop comes round, also when they come on the loop itself.
  private func tell(_ change: (inout Inbox) -> Void) {
    let mustPost = inbox.withLock { inbox in
      change(&inbox)
      defer { inbox.isPosted = true }
      return !inbox.isPosted
    }
    if mustPost { link.loop.execute { [self] in readInbox() } }
  }

  // MARK: On the loop

  func readInbox() {
    takeInbox()
    ask()
    goOn()
  }

  /// Acts on what the inbox held.
  private func goOn() {
    if isCancelled.load(ordering: .acquiring) { return giveUp() }
    switch phase {
    case .over: letGo()
    case .idle where isComplete && waiting.isEmpty: end(.finished)
    case .idle, .open, .confirming, .cancelled: speakIfNeeded()
    }
  }

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
    if waiting.isEmpty { waiting = values[...] } else { waiting += values }
    self.isComplete = isComplete
  }

  /// Asks upstream for what is allowed, once half of what it may be asked for at a time is sent.
  private func ask() {
    guard !isAsking, let upstream, !isComplete, !isCancelled.load(ordering: .acquiring) else { return }
    if case .over = phase { return }
    let most = max(1, min(Self.mostUnsent, Self.unsentBytes / max(1, largestBytes)))
    let count = min(most - unsent, allowance.max ?? .max)
    guard count > 0, unsent <= most / 2 else { return }
    allowance -= count
    unsent += count
    isAsking = true
    inbox.withLock { $0.isPosted = true }
    upstream.request(.max(count))
    isAsking = false
    takeInbox()  // with what came at once
  }

  private var hasSignal: Bool {
    switch phase {
    case .idle: !waiting.isEmpty
    case .open: !waiting.isEmpty || isComplete
    case .cancelled: true
    case .confirming, .over: false
    }
  }

  private func speakIfNeeded() {
    guard hasSignal, !waitsToSpeak else { return }
    waitsToSpeak = true
    link.hear(self)
  }

  func takeSignal() throws(StreamError) -> LinkSignal {
    waitsToSpeak = false
    switch phase {
    case .idle:
      guard let request, let first = waiting.first else { return .nothing }
      var payload = try request.payload()
      payload.data = first
      waiting = waiting.dropFirst()
      unsent -= 1
      return .open(.channel, initialRequest: 1, payload)
    case .open(let id):
      let values = takeChunk()
      let isLast = waiting.isEmpty && isComplete
      if isLast { phase = .confirming(id) }
      // Once this is on its way.
      if !values.isEmpty { tell { _ in } }
      return .values(id, values, isComplete: isLast)
    case .cancelled(let id):
      phase = .over
      return .cancel(id)
    case .confirming, .over: return .nothing
    }
  }

  /// As much as one write takes, or one value.
  private func takeChunk() -> ArraySlice<[UInt8]> {
    var byteCount = 0
    var end = waiting.startIndex
    while end < waiting.endIndex, byteCount < Link.roomByteCount {
      byteCount += waiting[end].count
      end += 1
    }
    let chunk = waiting[..<end]
    waiting = waiting[end...]
    unsent -= chunk.count
    return chunk
  }

  func opened(_ id: StreamID) {
    phase = .open(id)
    speakIfNeeded()
  }

  /// None is asked for.
  func receive(_ payload: Payload) {}

  func receiveDemand(_ count: UInt32) {
    if count >= Credit.unlimited { allowance = .unlimited } else { allowance += .max(Int(count)) }
    ask()
    goOn()
  }

  func receiveCancel() {
    guard case .open(let id) = phase else { return }
    phase = .cancelled(id)
    speakIfNeeded()
    report(.failure(.canceled("the server wants no more values")))
  }

  func end(_ completion: Subscribers.Completion<StreamError>) {
    let isEarly = if case .open = phase { completion == .finished } else { false }
    phase = .over
    report(isEarly ? .failure(.canceled("the server ended the request before the last value")) : completion)
  }

  private func giveUp() {
    switch phase {
    case .open(let id), .confirming(let id):
      phase = .cancelled(id)
      speakIfNeeded()
    case .idle: phase = .over
    case .cancelled, .over: break
    }
    receiveCompletion = nil
    letGo()
  }

  private func report(_ completion: Subscribers.Completion<StreamError>) {
    let receive = receiveCompletion
    receiveCompletion = nil
    letGo()
    if !isCancelled.load(ordering: .acquiring) { receive?(completion) }
  }

  /// The publisher is told, unless it has finished itself.
  private func letGo() {
    let ended = upstream
    upstream = nil
    waiting = []
    request = nil
    if !isComplete { ended?.cancel() }
  }
}
