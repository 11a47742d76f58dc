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
/// Each batch has the events of one piece of the response. Without demand no request is made, and reading of a response
/// stops, which slows its server down. A 204 response, which ends a browser's event source for good, is a failure. With a
/// checkpoint, server-sent events continue by Last-Event-ID; otherwise after the last event of the previous subscription.
public struct HTTPStream: SourceDriver {
  fileprivate let configuration: HTTPConfiguration
  fileprivate let format: HTTPStreamFormat
  fileprivate let form: ServerSentEventForm
  fileprivate let lineEnd: LineEnd
  fileprivate let idleTimeout: Duration?
  fileprivate let single: SingleRequest?
  /// The last id, which other sources may have as well; nil: it has its own.
  fileprivate let position: LastEventID?

  /// - Parameters:
  ///   - configuration: `timeout` applies to the response's head, `maximumBodyBytes` to one event.
  ///   - format: how the response gives events.
  ///   - form: the event made of a server-sent event.
  ///   - lineEnd: how lines end.
  ///   - idleTimeout: a response that is being read fails after this time without a byte; nil: no limit.
  ///   - single: the only request, of which `configuration` has all but the body; nil: it is made again and again.
  public init(
    _ configuration: HTTPConfiguration, format: HTTPStreamFormat, form: ServerSentEventForm = .data,
    lineEnd: LineEnd = .automatic, idleTimeout: Duration? = nil, single: SingleRequest? = nil
  ) {
    (self.configuration, self.format, self.form) = (configuration, format, form)
    (self.lineEnd, self.idleTimeout, self.single, position) = (lineEnd, idleTimeout, single, nil)
  }

  /// - Parameter position: the last id of the source whose place this one takes.
  init(
    _ configuration: HTTPConfiguration, format: HTTPStreamFormat, form: ServerSentEventForm, lineEnd: LineEnd,
    idleTimeout: Duration?, position: LastEventID
  ) {
    (self.configuration, self.format, self.form) = (configuration, format, form)
    (self.lineEnd, self.idleTimeout, single, self.position) = (lineEnd, idleTimeout, nil, position)
  }

  /// Makes the subscriptions of one source.
  public func subscriptions(in context: SourceContext) -> SubscriptionMaker {
    let memory = Memory(retry: configuration.retry, isIdempotent: configuration.isIdempotent)
    if let position { memory.position = position }
    return { HTTPStreamSubscription(self, context, memory, $0) }
  }

  /// The state that outlives a subscription. Confined to the source thread.
  fileprivate final class Memory: SourceMemory<RestartMachine>, @unchecked Sendable {
    var position = LastEventID()
    var lastEventID: [UInt8] {
      get { position.id }
      set { position.id = newValue }
    }
    var doubt = Doubt.none
  }
}

/// The id of the last server-sent event; empty: there is none. Confined to the source thread.
///
/// Sources that take each other's place have it in common. Once one of them has asked for what follows the id, no other one reads.
final class LastEventID: @unchecked Sendable {
  var id: [UInt8] = []
  /// The subscription that alone may read; nil: all may.
  weak var reader: AnyObject?
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
  private let driver: HTTPStream
  private let memory: HTTPStream.Memory
  private let resumption: SourceResumption?
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
  /// The body of a single request, once it is sent.
  private var body: HTTPBody?
  /// The response to a single request, if it is not the stream.
  private var refused: RefusedRequest?
  /// How a single request has ended; nil: it has not.
  private var ending: (failure: String?, refusal: SingleRequest.Refusal?)?

  init(
    _ driver: HTTPStream, _ context: SourceContext, _ memory: HTTPStream.Memory,
    _ down: AnySubscriber<EventBatch, Never>
  ) {
    (self.driver, self.memory) = (driver, memory)
    let continues = driver.format == .serverSentEvents && driver.single == nil
    resumption = continues ? context.resumption(.stream) : nil
    fingerprint = driver.configuration.fingerprint(["sse"])
    super.init(driver.configuration, context, memory, to: down)
  }

  override func begin() {
    super.begin()
    continueSchedule()
    resume()
  }

  override func end() {
    super.end()
    letGo()
    letOthersRead()
  }

  private func letOthersRead() { if memory.position.reader === self { memory.position.reader = nil } }

  /// Resumes after the last event in the log. An event that was delivered but is not in the log is fetched again.
  private func resume() {
    memory.doubt = .none
    guard let resumption else { return }
    memory.lastEventID = []
    position = resumption.checkpoint().flatMap { SourcePosition($0, fingerprint) }
    guard case .serverSentEvents(let id, let time)? = position else { return }
    memory.lastEventID = id
    machine?.reconnectionTime = time
  }

  /// The checkpoint of a batch, if it differs from the last one.
  private var newCheckpoint: Checkpoint? {
    let id = memory.lastEventID
    guard resumption != nil, position != nil || !id.isEmpty else { return nil }
    let new = SourcePosition.serverSentEvents(lastEventID: id, reconnectionTime: machine?.reconnectionTime)
    guard new != position else { return nil }
    position = new
    return new.checkpoint(fingerprint)
  }

  override func advance() {
    guard isLive else { return }
    if mayRead, let last = takeHeld() { deliver(last) }
    if held.isEmpty, let ending, let single = driver.single {
      single.ended(ending.failure, ending.refusal)
      return complete()
    }
    if isPaused, mayRead {
      isPaused = false
      heardAt = now
      transfer?.resume()
    }
    super.advance()
  }

  override func perform(_ action: RestartMachine.Action) {
    perform(action) {
      guard let single = driver.single else { return connect() }
      single.turn { [weak self] begins in
        guard let self else { return }
        thread.loop.execute { [self] in
          guard isLive else { return }
          if begins { connect() } else { complete() }
        }
      }
    }
  }

  private func connect() {
    if driver.position != nil, !memory.lastEventID.isEmpty, memory.position.reader == nil {
      memory.position.reader = self
    }
    do throws(SourceFailure) {
      var request = try driver.configuration.request(nil)
      request.isEndless = true
      switch driver.format {
      case .lines: splitter = LineSplitter(maximumBytes: driver.configuration.maximumBodyBytes, end: driver.lineEnd)
      case .serverSentEvents:
        splitter = ServerSentEventSplitter(
          maximumBytes: driver.configuration.maximumBodyBytes, form: driver.form, lastEventID: memory.lastEventID
        )
        request.askForEvents(after: memory.doubt == .asking ? [] : memory.lastEventID)
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
      ended(SourceFailure("no data within \(limit.inWords)"))
    }
  }

  private func letGo() {
    transfer = nil
    isPaused = false
    cancelTimer()
    if let idleTimer { thread.loop.cancel(idleTimer) }
    idleTimer = nil
  }

  /// Whether a piece of the response is taken now.
  private var mayRead: Bool { isWanted && (memory.position.reader.map { $0 === self } ?? true) }

  private func ended(_ failure: SourceFailure?) {
    letOthersRead()
    letGo()
    guard isLive else { return }  // cancelled, and its own end is under way
    guard let single = driver.single else {
      conclude(failure.map(doubted))
      return noteHalt()
    }
    let secrets = single.secrets + [bearer].compactMap { $0 }
    ending = refused.map { ($0.sentence(without: secrets), $0.refusal(without: secrets)) } ?? (failure?.sentence, nil)
    advance()
  }

  private func deliver(_ events: EventBatch) {
    if let parser = splitter as? ServerSentEventSplitter {
      memory.lastEventID = parser.lastEventID
      if parser.hasDroppedID {
        reportLimit(
          "an id of more than \(ServerSentEventSplitter.longestID >> 10) KiB is not used: "
            + "a reconnection sends the one before, and events may come again")
      }
      if let time = parser.reconnectionTime { machine?.reconnectionTime = time }
    }
    give(events, newCheckpoint)
  }

  // MARK: Transfer.Handler

  func transferMayBegin(_ transfer: Transfer) -> Bool {
    guard let single = driver.single else { return true }
    // With another token, the body is the same.
    if let body {
      transfer.setBody(body)
      return true
    }
    single.body { [weak self] body in
      guard let self else { return }
      thread.loop.execute { [self] in
        guard isLive else { return }
        guard var body else { return complete() }
        if body.type.isEmpty { body.type = single.standardType }
        self.body = body
        self.transfer?.setBody(body)
        self.transfer?.begin()
      }
    }
    return false
  }

  func transferReceived(_ head: UpstreamResponse) -> Transfer.Plan {
    note(head.status)
    if driver.single != nil { return answered(head) }
    guard head.isContent else { return .discard }
    if driver.format == .serverSentEvents, !head.isEventStream {
      var failure = SourceFailure(Self.noEventStream)
      failure.status = head.status
      return .refuse(failure)
    }
    if memory.doubt == .asking {
      memory.doubt = .confirming
      return .refuse(SourceFailure("it responds without Last-Event-ID; the next request has it again"))
    }
    memory.doubt = .none
    if let failure = head.refusal(as: content) { return .refuse(failure) }
    begin(head)
    return .take
  }

  private func begin(_ head: UpstreamResponse) {
    (self.head, charset, isAtStart, hasBody) = (head, nil, true, false)
    report(machine?.answered(at: now))
    heardAt = now
    if let idleTimeout = driver.idleTimeout { awaitSilence(of: idleTimeout, after: idleTimeout) }
  }

  /// The response to a single request. What is not the stream is read as well, because it says why.
  private func answered(_ head: UpstreamResponse) -> Transfer.Plan {
    let isContent = 200..<300 ~= head.status && head.status != 204
    if !isContent {
      refused = RefusedRequest(head)
    } else if driver.format == .serverSentEvents, !head.isEventStream {
      refused = RefusedRequest(head, reason: Self.noEventStream)
    } else if let failure = head.refusal(as: content) {
      refused = RefusedRequest(head, reason: failure.sentence)
    }
    begin(head)
    return .take
  }

  func transferReceived(_ bytes: UnsafeRawBufferPointer) -> Transfer.Flow {
    heardAt = now
    if refused != nil {
      let goesOn = unsafe refused?.append(bytes) == true
      return goesOn ? .next : .stop(SourceFailure("the rest is not read"))
    }
    guard mayRead else {
      isPaused = true
      return .pause
    }
    var events = EventBatch()
    var failure: SourceFailure?
    do throws(SourceFailure) {
      try unsafe split(bytes, into: &events)
    } catch {
      failure = error
    }
    // Also those before one that is too long: they may have come in another piece as well.
    deliver(events)
    if let failure { return .stop(failure) }
    return isLive ? .next : .stop(SourceFailure("cancelled"))
  }

  func transferEnded(_ result: Result<UpstreamResponse, SourceFailure>) {
    if isRenewed(self) {
      refused = nil
      return
    }
    if refused != nil { return ended(nil) }
    switch result {
    case .success(let head) where head.isContent || driver.single != nil:
      var last = EventBatch()
      do throws(EventTooLong) {
        if let charset {
          var rest: [UInt8] = []
          charset.end(into: &rest)
          try unsafe rest.span.withUnsafeBytes { bytes throws(EventTooLong) in
            try unsafe splitter.split(bytes, into: &last)
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
  private static let noEventStream = "not an event stream: its Content-Type is not text/event-stream"

  /// Server-sent events are in UTF-8, whatever the response says. Source: WHATWG HTML, 9.2.6.
  private var content: HTTPContent { driver.format == .lines ? driver.configuration.content : .any }

  private func split(_ bytes: UnsafeRawBufferPointer, into events: inout EventBatch) throws(SourceFailure) {
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
      guard let charset else { return try unsafe splitter.split(bytes, into: &events) }
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
        try unsafe splitter.split(bytes, into: &events)
      }
    } catch {
      throw tooLong(error)
    }
  }

  private func tooLong(_ error: EventTooLong) -> SourceFailure {
    .over(error.maximumBytes, driver.format == .lines ? "line" : "event")
  }

  /// The server responded with something other than the stream.
  private func refused(_ head: UpstreamResponse) {
    var failure = SourceFailure.status(head.status, retryAfter: head.retryAfter)
    // These statuses show that the request is the reason; without a reset it would fail for ever.
    let hadID = !memory.lastEventID.isEmpty && memory.doubt != .asking
    if hadID, [400, 412, 431].contains(head.status) { forgetID(&failure) }
    ended(failure)
  }

  private func forgetID(_ failure: inout SourceFailure) {
    memory.lastEventID = []
    memory.doubt = .none
    failure.sentence += "; the next request is without Last-Event-ID, so events may be missing"
  }

  /// The failure, and its consequence for the event id. Only the server's responses count, except 204: with that status
  /// the server ends the stream.
  private func doubted(_ failure: SourceFailure) -> SourceFailure {
    guard let machine, driver.configuration.isIdempotent, !memory.lastEventID.isEmpty, let status = failure.status,
      status != 204
    else {
      return failure
    }
    var failure = failure
    switch memory.doubt {
    case .none where (machine.failures + 1) % Doubt.patience == 0:
      memory.doubt = .asking
      failure.sentence += "; the next request is without Last-Event-ID, as a test"
    case .none: break
    case .asking: memory.doubt = .none
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
