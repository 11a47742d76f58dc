import Events
import Reactive
import StreamRuntime

/// How a streaming response is split into events.
public enum HTTPStreamFormat: String, Sendable, CaseIterable {
  /// One event per line; empty lines are skipped.
  case lines
  /// One event per server-sent event. Reconnects with Last-Event-ID.
  case serverSentEvents = "sse"
}

/// Reads a streaming response, one event per line or server-sent event, and reconnects when it ends.
///
/// Each value is a batch: the events of one piece of the response. One unit of demand is one batch. Without demand no
/// request is made, and reading of a response stops, which slows its server down. Never completes: a 204 response,
/// which ends a browser's event source for good, is a failure that is retried.
/// For one subscription at a time, such as a shared log's.
public struct HTTPStream: Publisher, Sendable {
  /// A batch of events, each its bytes.
  public typealias Output = EventBatch
  /// A failed response is reported and retried.
  public typealias Failure = Never

  fileprivate let configuration: HTTPConfiguration
  fileprivate let format: HTTPStreamFormat
  fileprivate let form: ServerSentEventForm
  fileprivate let lineEnd: LineEnd
  fileprivate let idleTimeout: Duration?
  fileprivate let thread: SourceThread
  fileprivate let progress: @Sendable (SourceProgress) -> Void
  fileprivate let report: @Sendable (SourceReport) -> Void
  fileprivate let resumption: SourceResumption?
  fileprivate let handover: SourceHandover?
  fileprivate let memory: Memory

  /// - Parameters:
  ///   - configuration: `timeout` applies to the response's head, `maximumBodyBytes` to one event.
  ///   - form: the event made of a server-sent event.
  ///   - lineEnd: how lines end.
  ///   - idleTimeout: a response that is being read fails after this time without a byte; nil: no limit.
  ///   - resumption: where each subscription resumes, by Last-Event-ID, and the checkpoint that each batch carries.
  ///     nil: after the last event of the previous subscription.
  ///   - handover: continues the schedule of another process; nil: there is none.
  ///   - refresh: makes the source connect before its next attempt is due.
  ///   - progress: called with each change that the source's counters record.
  ///   - report: called with each failure and at the end of a series of failures, on the source thread; must return
  ///     promptly.
  public init(
    _ configuration: HTTPConfiguration, format: HTTPStreamFormat, form: ServerSentEventForm = .data,
    lineEnd: LineEnd = .automatic, idleTimeout: Duration? = nil,
    resumption: SourceResumption? = nil, handover: SourceHandover? = nil, refresh: SourceRefresh = SourceRefresh(),
    on thread: SourceThread, progress: @escaping @Sendable (SourceProgress) -> Void = { _ in },
    report: @escaping @Sendable (SourceReport) -> Void
  ) {
    self.configuration = configuration
    self.format = format
    self.form = form
    self.lineEnd = lineEnd
    self.idleTimeout = idleTimeout
    self.thread = thread
    self.resumption = format == .serverSentEvents ? resumption : nil
    self.handover = handover
    self.progress = progress
    self.report = report
    memory = Memory(refresh) { RestartMachine(retry: configuration.retry, seed: UInt64.random(in: 0...UInt64.max)) }
  }

  /// Subscribes. Values are delivered on the source thread.
  public func receive<S: Subscriber>(subscriber: S) where S.Input == Output, S.Failure == Failure {
    subscriber.receive(subscription: HTTPStreamSubscription(self, AnySubscriber(subscriber)))
  }

  /// The state that outlives a subscription. Confined to the source thread.
  fileprivate final class Memory: SourceMemory<RestartMachine>, @unchecked Sendable {
    var lastEventID: [UInt8] = []
    var doubt = Doubt.none
  }
}

/// Whether the server refuses the event id that it gave. Forgetting an id may lose events. Therefore a request without
/// the id first shows that the server responds to that. Another request with the id then shows that the server still
/// refuses it.
private enum Doubt {
  case none  // can become: asking
  /// The next request is without the id; its response is not read.
  case asking  // can become: confirming, none
  /// There was a response without the id. The next request has the id again: if it is refused, the id is forgotten.
  case confirming  // can become: none

  /// Refusals in a row after which there is doubt.
  static let patience = 4
}

/// A subscription: connects the machine to an HTTP client and a splitter.
private final class HTTPStreamSubscription: HTTPSubscription<RestartMachine>, Transfer.Handler, @unchecked Sendable {
  private let source: HTTPStream
  private var splitter: any EventSplitter = LineSplitter(maximumBytes: 0)
  /// Decodes a response that is not in UTF-8.
  private var charset: CharsetDecoder?
  private var head: UpstreamResponse?
  /// Whether no byte of the body has come that tells what it is.
  private var isAtStart = true
  private var hasBody = false
  /// Whether bytes were not in the charset, without a piece of the body since then that was.
  private var isGarbled = false
  private var isPaused = false
  /// Fires when no byte arrives in time.
  private var idleTimer: TimerID?
  private var heardAt = Duration.zero
  private let fingerprint: BodyDigest
  /// The position in the log, or the position that the last batch will put there.
  private var position: SourcePosition?

  init(_ source: HTTPStream, _ down: AnySubscriber<EventBatch, Never>) {
    self.source = source
    fingerprint = source.configuration.fingerprint(["sse"])
    super.init(on: source.thread, source.memory, progress: source.progress, report: source.report, to: down)
  }

  override func begin() {
    super.begin()
    if let handover = source.handover {
      machine?.resume(handover.former(), at: now)
      thread.note(self, rests: machine?.rests == true)
    }
    resume()
  }

  override func end() {
    super.end()
    letGo()
  }

  /// Resumes after the last event in the log. An event that was delivered but is not in the log is fetched again.
  private func resume() {
    source.memory.doubt = .none
    guard let resumption = source.resumption else { return }
    source.memory.lastEventID = []
    position = resumption.checkpoint().flatMap { SourcePosition($0, fingerprint) }
    guard case .serverSentEvents(let id, let time)? = position else { return }
    source.memory.lastEventID = id
    machine?.reconnectionTime = time
  }

  /// The checkpoint of a batch, if it differs from the last one.
  private var newCheckpoint: Checkpoint? {
    let id = source.memory.lastEventID
    guard source.resumption != nil, position != nil || !id.isEmpty else { return nil }
    let new = SourcePosition.serverSentEvents(lastEventID: id, reconnectionTime: machine?.reconnectionTime)
    guard new != position else { return nil }
    position = new
    return new.checkpoint(fingerprint)
  }

  override func advance() {
    guard isLive else { return }
    if let last = takeHeld() { deliver(last) }
    if isPaused, isWanted {
      isPaused = false
      heardAt = now
      transfer?.resume()
    }
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
    do throws(HTTPFailure) {
      var request = try source.configuration.request(nil)
      request.isEndless = true
      switch source.format {
      case .lines: splitter = LineSplitter(maximumBytes: source.configuration.maximumBodyBytes, end: source.lineEnd)
      case .serverSentEvents:
        splitter = ServerSentEventSplitter(
          maximumBytes: source.configuration.maximumBodyBytes, form: source.form, lastEventID: source.memory.lastEventID
        )
        request.askForEvents(after: source.memory.doubt == .asking ? [] : source.memory.lastEventID)
      }
      try start(request, self)
    } catch {
      ended(error)
    }
  }

  /// Fails the response after `limit` without a byte while it is being read.
  private func awaitSilence(of limit: Duration, after delay: Duration) {
    idleTimer = thread.loop.schedule(after: delay) { [weak self] in
      guard let self else { return }
      idleTimer = nil
      let silence = isPaused ? .zero : now - heardAt
      guard silence >= limit else { return awaitSilence(of: limit, after: limit - silence) }
      transfer?.cancel()
      ended(HTTPFailure("no data within \(limit.wholeMilliseconds) ms"))
    }
  }

  private func letGo() {
    transfer = nil
    isPaused = false
    cancelTimer()
    if let idleTimer { thread.loop.cancel(idleTimer) }
    idleTimer = nil
  }

  private func ended(_ failure: HTTPFailure?) {
    letGo()
    guard isLive else { return }  // cancelled, and its own end is under way
    let failure = failure.map(doubted)  // reads the machine
    tell(machine?.ended(failure, at: now))
    thread.note(self, rests: failure?.retryAfter != nil || machine?.rests == true)
    if let handover = source.handover, let machine { handover.changed(machine.schedule) }
    advance()
  }

  private func deliver(_ events: EventBatch) {
    if let parser = splitter as? ServerSentEventSplitter {
      source.memory.lastEventID = parser.lastEventID
      if parser.hasDroppedID, !source.memory.hasReportedLimit {
        source.memory.hasReportedLimit = true
        report(
          .limited(
            "an id of more than \(ServerSentEventSplitter.longestID >> 10) KiB is not used: "
              + "a reconnection sends the one before, and events may come again"))
      }
      if let time = parser.reconnectionTime { machine?.reconnectionTime = time }
    }
    give(events, newCheckpoint)
  }

  // MARK: Transfer.Handler

  func transferReceived(_ head: UpstreamResponse) -> Transfer.Plan {
    guard head.isContent else { return .discard }
    if source.format == .serverSentEvents, !head.isEventStream {
      var failure = HTTPFailure("not an event stream: its Content-Type is not text/event-stream")
      failure.status = head.status
      return .refuse(failure)
    }
    if source.memory.doubt == .asking {
      source.memory.doubt = .confirming
      return .refuse(HTTPFailure("it responds without Last-Event-ID; the next request has it again"))
    }
    source.memory.doubt = .none
    if let failure = head.refusal(as: content) { return .refuse(failure) }
    (self.head, charset, isAtStart, hasBody) = (head, nil, true, false)
    tell(machine?.answered(at: now))
    heardAt = now
    if let idleTimeout = source.idleTimeout { awaitSilence(of: idleTimeout, after: idleTimeout) }
    return .take
  }

  func transferReceived(_ bytes: UnsafeRawBufferPointer) -> Transfer.Flow {
    heardAt = now
    guard isWanted else {
      isPaused = true
      return .pause
    }
    var events = EventBatch()
    var failure: HTTPFailure?
    do throws(HTTPFailure) {
      try unsafe feed(bytes, into: &events)
    } catch {
      failure = error
    }
    // Also those before one that is too long: they may have come in another piece as well.
    deliver(events)
    if let failure { return .stop(failure) }
    return isLive ? .next : .stop(HTTPFailure("cancelled"))
  }

  func transferEnded(_ result: Result<UpstreamResponse, HTTPFailure>) {
    switch result {
    case .success(let head) where head.isContent:
      var last = EventBatch()
      do throws(EventTooLong) {
        if let charset {
          var rest: [UInt8] = []
          charset.end(into: &rest)
          try unsafe rest.span.withUnsafeBytes { bytes throws(EventTooLong) in
            try unsafe splitter.feed(bytes, into: &last)
          }
        }
        try splitter.end(into: &last)
      } catch {
        return ended(tooLong(error))
      }
      if isWanted { deliver(last) } else { held = last }
      ended(nil)
    case .success(let head): refused(head)
    case .failure(let failure): ended(failure)
    }
  }
}

extension HTTPStreamSubscription {
  /// Server-sent events are in UTF-8, whatever the response says. Source: WHATWG HTML, 9.2.6.
  private var content: HTTPContent { source.format == .lines ? source.configuration.content : .any }

  private func feed(_ bytes: UnsafeRawBufferPointer, into events: inout EventBatch) throws(HTTPFailure) {
    if !hasBody, content != .any { charset = try unsafe .of(head, bytes) }
    hasBody = true
    if isAtStart {
      // A document begins with a tag; a server may call lines of JSON text/html by mistake.
      if let first = unsafe bytes.first(where: { !$0.isWhiteSpace && ![0, 0xEF, 0xBB, 0xBF, 0xFF, 0xFE].contains($0) })
      {
        isAtStart = false
        if content == .json, first == UInt8(ascii: "<"), let failure = head?.documentFailure { throw failure }
      }
    }
    do throws(EventTooLong) {
      guard let charset else { return try unsafe splitter.feed(bytes, into: &events) }
      var text: [UInt8] = []
      unsafe charset.decode(bytes, into: &text)
      let count = charset.takeFaultCount()
      if count > 0 {
        report(.lost("the response is not \(charset.name), as it says", count: count))
      } else if isGarbled {
        report(.complete)
      }
      isGarbled = count > 0
      try unsafe text.span.withUnsafeBytes { bytes throws(EventTooLong) in
        try unsafe splitter.feed(bytes, into: &events)
      }
    } catch {
      throw tooLong(error)
    }
  }

  private func tooLong(_ error: EventTooLong) -> HTTPFailure {
    .over(error.maximumBytes, source.format == .lines ? "line" : "event")
  }

  /// The server responded with something other than the stream.
  private func refused(_ head: UpstreamResponse) {
    var failure = HTTPFailure.status(head.status, retryAfter: head.retryAfter)
    // These statuses show that the request is the reason; without a reset it would fail for ever.
    let hadID = !source.memory.lastEventID.isEmpty && source.memory.doubt != .asking
    if hadID, [400, 412, 431].contains(head.status) { forgetID(&failure) }
    ended(failure)
  }

  private func forgetID(_ failure: inout HTTPFailure) {
    source.memory.lastEventID = []
    source.memory.doubt = .none
    failure.sentence += "; the next request is without Last-Event-ID, so events may be missing"
  }

  /// The failure, and its consequence for the event id. Only the server's responses count, except 204: with that status
  /// the server ends the stream.
  private func doubted(_ failure: HTTPFailure) -> HTTPFailure {
    guard let machine, !source.memory.lastEventID.isEmpty, let status = failure.status, status != 204 else {
      return failure
    }
    var failure = failure
    switch source.memory.doubt {
    case .none where (machine.failures + 1) % Doubt.patience == 0:
      source.memory.doubt = .asking
      failure.sentence += "; the next request is without Last-Event-ID, as a test"
    case .none: break
    case .asking: source.memory.doubt = .none
    case .confirming: forgetID(&failure)
    }
    return failure
  }
}

extension UpstreamRequest {
  /// The header fields of an event source that the configuration does not set. Source: WHATWG HTML, 9.2.2.
  fileprivate mutating func askForEvents(after lastEventID: [UInt8]) {
    let fields = [("Accept", "text/event-stream"), ("Cache-Control", "no-store")]
    // An id may be any text without line breaks; an id that a header field cannot contain is not sent back.
    let id = FieldValue(lastEventID)
    if id.isValid, !headers.contains(where: { $0.name.lowercased() == "last-event-id" }) { self.lastEventID = id }
    for (name, value) in fields where !headers.contains(where: { $0.name.lowercased() == name.lowercased() }) {
      headers.append(HTTPHeader(name: name, value: value))
    }
  }
}
