import Events
import HTTP
import StreamRuntime

/// One WebSocket of a source, from the request that opens it until it is closed. Confined to the source thread.
///
/// It outlives its owner's interest until the upstream has closed its side, at most `closingTime`: if a socket is closed
/// with bytes in it that are not read, the system discards what was sent, too, and the upstream would not see the close frame.
final class UpstreamWebSocket: Transfer.Handler {
  /// Receives what comes. Each call is on the source thread.
  protocol Owner: AnyObject {
    /// Whether events may be brought now.
    var isWanted: Bool { get }
    func webSocketWaits(_ reason: String)
    func webSocketIsOpen()
    /// The messages of the opening are sent.
    func webSocketIsReady(after count: Int)
    func webSocketBrought(_ events: EventBatch)
    func webSocketReports(_ report: SourceReport)
    /// The last call.
    /// - Parameter failure: nil: the upstream has closed the connection regularly, or there was no demand.
    func webSocketEnded(_ failure: SourceFailure?)
  }

  private enum Phase {
    case opening  // can become: open, closed
    case open  // can become: closing, closed
    case closing  // can become: closed
    case closed
  }

  private static let closingTime = Duration.seconds(2)

  private let configuration: WebSocketConfiguration
  private let offer: WebSocketOffer
  private let context: SourceContext
  private var loop: EventLoop { context.thread.loop }
  private weak var owner: (any Owner)?
  private var phase = Phase.opening
  /// From the phase `open` on.
  private var machine: WebSocketMachine?
  private(set) var transfer: Transfer?
  /// Whether the transfer holds bytes until events are wanted.
  private var isPaused = false
  /// Whether the machine has bytes that it has not read.
  private var hasRest = false
  /// Gives verdicts on messages, if the configuration asks for them.
  private var examiner: JQExaminer?
  /// Events without verdicts.
  private var unexamined = EventBatch()
  /// Events that wait until they are wanted.
  private var waiting = EventBatch()
  /// How the machine has ended the connection, while there are such events.
  private var ending: WebSocketMachine.Ending?
  /// How the transfer has ended, while the machine has such bytes, or there are such events.
  private var end: SourceFailure?
  private var timer: (id: TimerID, due: Duration)?
  private var nextTurn: TimerID?

  init(_ configuration: WebSocketConfiguration, in context: SourceContext, owner: any Owner) {
    (self.configuration, self.context, self.owner) = (configuration, context, owner)
    let nonce = (0..<16).map { _ in UInt8.random(in: 0...255) }
    offer = WebSocketOffer(nonce: nonce, subprotocols: configuration.subprotocols)
  }

  /// Begins.
  /// - Throws: for a faulty configuration, or if a process for jq cannot be started.
  func open(with client: HTTPClient, progress: @escaping (SourceProgress) -> Void) throws(SourceFailure) {
    var request = try configuration.request.request(nil)
    (request.isEndless, request.offer) = (true, offer)
    (request.secretsFollow, request.wantedFields) = (configuration.sendsSecrets, WebSocketOffer.answerFields)
    // The process is ready when the upstream has answered.
    if let transform = WebSocketConversation.transform(for: configuration) {
      examiner = try JQExaminer(
        transform, for: "send and answer", in: context, report: { [weak self] in self?.owner?.webSocketReports($0) }
      ) {
        [weak self] in self?.examined($0)
      }
    }
    transfer = client.start(request, handler: self, progress: progress)
  }

  /// Continues after a change of the owner's demand.
  func proceed() {
    keepTime()
    guard phase == .open, owner?.isWanted == true else { return }
    if !waiting.isEmpty {
      let events = waiting
      waiting = EventBatch()
      passOn(events)
    }
    if isWanted, hasRest { read() }
    if phase == .open, isWanted, !hasRest, isPaused {
      isPaused = false
      transfer?.resume()
    }
    keepTime()
  }

  /// Sends a message of the owner.
  func say(_ text: String) {
    guard phase == .open else { return }
    do throws(WebSocketMachine.Ending) {
      try machine?.say(Array(text.utf8))
      transfer?.send()
    } catch {
      closed(by: error)
    }
  }

  /// Whether the connection is read.
  private var isWanted: Bool {
    owner?.isWanted == true && ending == nil && unexamined.isEmpty && waiting.isEmpty
  }

  /// Closes it; the owner is not called any more.
  func close() {
    owner = nil
    switch phase {
    case .opening: finish()
    case .open: close(with: 1000)
    case .closing, .closed: break
    }
  }

  private func read() {
    guard var machine = self.machine.take() else { return }
    var (events, ending) = (EventBatch(), WebSocketMachine.Ending?.none)
    do throws(WebSocketMachine.Ending) {
      hasRest = try !machine.read(into: &events, at: now)
    } catch {
      (hasRest, ending) = (false, error)
    }
    let needsVerdicts = machine.needsVerdicts && !events.isEmpty
    self.machine = consume machine
    self.ending = ending
    guard needsVerdicts, let examiner else { return passOn(events) }
    unexamined = events
    examiner.examine(EventBatch(events.map(WebSocketConversation.question)))
  }

  private func examined(_ result: Result<[JQAnswer], SourceFailure>) {
    guard phase == .opening || phase == .open else { return }
    do throws(SourceFailure) {
      var verdicts: [WebSocketConversation.Verdict] = []
      for answer in try result.get() { verdicts.append(try .init(answer)) }
      take(verdicts)
    } catch {
      if phase == .opening { finish(error) } else { closed(by: .init(code: 1000, failure: error)) }
    }
  }

  private func take(_ verdicts: [WebSocketConversation.Verdict]) {
    let wasOpened = machine?.isOpened
    guard let (events, ending) = machine?.hear(verdicts, on: unexamined, at: now) else { return }
    if wasOpened == false, machine?.isOpened == true { owner?.webSocketIsReady(after: configuration.messages.count) }
    unexamined = EventBatch()
    if let ending { self.ending = ending }
    if machine?.needsVerdicts == false {
      examiner?.end()
      examiner = nil
    }
    if self.machine?.hasUnsent == true { transfer?.send() }
    waiting = events
    if events.isEmpty { passOn(events) }
    proceed()
  }

  /// Passes events on, and then does what had to wait for them.
  private func passOn(_ events: EventBatch) {
    if !events.isEmpty { owner?.webSocketBrought(events) }
    guard phase == .open else { return }  // the owner may have closed it
    if let ending { return closed(by: ending) }
    if let end, !hasRest { return finish(end) }
    if self.machine?.hasUnsent == true { transfer?.send() }
    if hasRest, nextTurn == nil {
      nextTurn = loop.schedule(after: .zero) { [weak self] in
        self?.nextTurn = nil
        self?.proceed()
      }
    }
  }

  /// Sends what is due, and returns when the next is.
  private func keepTime() {
    guard phase == .open, machine != nil else { return }
    machine?.setWanted(isWanted, at: now)
    do throws(WebSocketMachine.Ending) {
      guard let due = try machine?.next(at: now) else { return }
      if machine?.hasUnsent == true { transfer?.send() }
      if let timer {
        guard due < timer.due else { return }
        loop.cancel(timer.id)
      }
      let id = loop.schedule(after: due - now) { [weak self] in
        self?.timer = nil
        self?.keepTime()
      }
      timer = (id, due)
    } catch {
      closed(by: error)
    }
  }

  private func closed(by ending: WebSocketMachine.Ending) {
    close(with: ending.code)
    tellEnd(ending.failure)
  }

  private func close(with code: UInt16?) {
    phase = .closing
    endExamining()
    cancelTimers()
    let id = loop.schedule(after: Self.closingTime) { [self] in
      timer = nil
      finish()
    }
    timer = (id, now + Self.closingTime)
    machine?.close(code)
    if isPaused { transfer?.resume() }
    transfer?.send(atOnce: true)
  }

  private func finish(_ failure: SourceFailure?) {
    finish()
    tellEnd(failure)
  }

  private func finish() {
    phase = .closed
    endExamining()
    cancelTimers()
    transfer?.cancel()
    transfer = nil
  }

  private func tellEnd(_ failure: SourceFailure?) {
    let owner = owner
    self.owner = nil
    owner?.webSocketEnded(failure)
  }

  private func endExamining() {
    examiner?.end()
    (examiner, unexamined, waiting) = (nil, EventBatch(), EventBatch())
  }

  private func cancelTimers() {
    for id in [timer?.id, nextTurn] { if let id { loop.cancel(id) } }
    (timer, nextTurn) = (nil, nil)
  }

  private var now: Duration { EventLoop.monotonicTime }

  // MARK: Transfer.Handler

  func transferWaits(_ reason: String) { owner?.webSocketWaits(reason) }

  func transferReceived(_ head: UpstreamResponse) -> Transfer.Plan {
    guard head.status == 101 else { return .discard }
    do throws(WebSocketOffer.Refusal) {
      let compresses = try offer.accepts { head.answer[$0] ?? [] }
      machine = WebSocketMachine(configuration, compresses: compresses, at: now)
    } catch {
      return .refuse(SourceFailure("the response \(error.reason)"))
    }
    phase = .open
    owner?.webSocketIsOpen()
    if machine?.isOpened == true { owner?.webSocketIsReady(after: configuration.messages.count) }
    proceed()
    return .take
  }

  func transferReceived(_ bytes: UnsafeRawBufferPointer) -> Transfer.Flow {
    guard phase == .open else { return .next }  // after a close frame nothing counts
    guard isWanted, !hasRest else {
      isPaused = true
      return .pause
    }
    unsafe machine?.receive(bytes, at: now)
    read()
    keepTime()
    return .next
  }

  func transferSends(into room: UnsafeMutableRawBufferPointer) -> Int { unsafe machine?.fill(room) ?? 0 }

  func transferEnded(_ result: Result<UpstreamResponse, SourceFailure>) {
    transfer = nil
    let failure: SourceFailure
    switch (result, phase) {
    case (.success(let head), .opening): failure = Self.refusal(head)
    case (.success, _): failure = SourceFailure("the upstream has ended the connection without a close frame")
    case (.failure(let reason), _): failure = reason
    }
    let isUsedUp = !hasRest && unexamined.isEmpty && waiting.isEmpty
    if phase == .open, !isUsedUp { end = failure } else { finish(failure) }
  }

  private static func refusal(_ head: UpstreamResponse) -> SourceFailure {
    var failure = SourceFailure.status(head.status, retryAfter: head.retryAfter)
    if head.status < 400 { failure.sentence += " instead of a WebSocket" }
    return failure
  }
}
