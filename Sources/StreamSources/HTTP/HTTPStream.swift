import Events
import Reactive
import StreamRuntime

/// How a response without end is cut into events.
public enum HTTPStreamFormat: String, Sendable, CaseIterable {
  /// An event per line, empty lines left out.
  case lines
  /// Server-sent events: an event's data. Reconnects with Last-Event-ID.
  case serverSentEvents = "sse"
}

/// One long response, an event per line or per server-sent event; asked for again when it ends.
///
/// Each value is a batch: the events that came with one piece of the response. A unit of demand is a batch; without demand
/// the response is not asked for, and one that is under way is not read on, which its server feels. Never completes: an
/// answer of 204, by which a server would end a browser's event source for good, is a failure that is tried again.
/// Made for one subscription at a time, as a shared log's.
public struct HTTPStream: Publisher, Sendable {
  /// A batch of events, each its bytes.
  public typealias Output = EventBatch
  /// A failed response is reported and tried again.
  public typealias Failure = Never

  fileprivate let configuration: HTTPConfiguration
  fileprivate let format: HTTPStreamFormat
  fileprivate let form: ServerSentEventForm
  fileprivate let idleTimeout: Duration?
  fileprivate let thread: SourceThread
  fileprivate let report: @Sendable (SourceReport) -> Void
  fileprivate let resumption: SourceResumption?
  fileprivate let memory: Memory

  /// - Parameters:
  ///   - configuration: `timeout` is for the head of the response, `maximumBodyBytes` for one event.
  ///   - form: what a server-sent event becomes.
  ///   - idleTimeout: a response that is read on, and brings nothing for so long, has failed; nil: it may be quiet.
  ///   - resumption: where each subscription begins, by Last-Event-ID, which each batch says for later. nil: after the last
  ///     event of the one before.
  ///   - report: told of each failure and of the end of a row of them, on the source thread; must return promptly.
  public init(
    _ configuration: HTTPConfiguration, format: HTTPStreamFormat, form: ServerSentEventForm = .data,
    idleTimeout: Duration? = nil,
    resumption: SourceResumption? = nil, on thread: SourceThread, report: @escaping @Sendable (SourceReport) -> Void
  ) {
    self.configuration = configuration
    self.format = format
    self.form = form
    self.idleTimeout = idleTimeout
    self.thread = thread
    self.resumption = format == .serverSentEvents ? resumption : nil
    self.report = report
    memory = Memory { RestartMachine(retry: configuration.retry, seed: UInt64.random(in: 0...UInt64.max)) }
  }

  /// As of any publisher. Values are delivered on the source thread.
  public func receive<S: Subscriber>(subscriber: S) where S.Input == Output, S.Failure == Failure {
    subscriber.receive(subscription: HTTPStreamSubscription(self, AnySubscriber(subscriber)))
  }

  /// What outlives a subscription. Belongs to the source thread.
  fileprivate final class Memory: SourceMemory<RestartMachine>, @unchecked Sendable {
    var lastEventID: [UInt8] = []
  }
}

/// A subscription: the machine with a client and a splitter.
private final class HTTPStreamSubscription: HTTPSubscription<RestartMachine>, Transfer.Handler, @unchecked Sendable {
  private let source: HTTPStream
  private var splitter: any EventSplitter = LineSplitter(maximumBytes: 0)
  private var isPaused = false
  /// Runs out when the next byte has not come.
  private var idleTimer: TimerID?
  private var heardAt = Duration.zero
  private let fingerprint: BodyDigest
  /// What the log says, or will once it has the last batch.
  private var position: SourcePosition?

  init(_ source: HTTPStream, _ down: AnySubscriber<EventBatch, Never>) {
    self.source = source
    fingerprint = source.configuration.fingerprint(["sse"])
    super.init(on: source.thread, source.memory, report: source.report, to: down)
  }

  override func begin() {
    super.begin()
    resume()
  }

  override func end() {
    super.end()
    letGo()
  }

  /// Begins after the last event that is in the log. One that was given and is not there is asked for again.
  private func resume() {
    guard let resumption = source.resumption else { return }
    source.memory.lastEventID = []
    position = resumption.checkpoint().flatMap { SourcePosition($0, fingerprint) }
    guard case .serverSentEvents(let id, let time)? = position else { return }
    source.memory.lastEventID = id
    machine?.reconnectionTime = time
  }

  /// What a batch is to say of the source, if that is not said already.
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
      case .lines: splitter = LineSplitter(maximumBytes: source.configuration.maximumBodyBytes)
      case .serverSentEvents:
        splitter = ServerSentEvents(
          maximumBytes: source.configuration.maximumBodyBytes, form: source.form, lastEventID: source.memory.lastEventID
        )
        request.askForEvents(after: source.memory.lastEventID)
      }
      try start(request, self)
    } catch {
      ended(error)
    }
  }

  /// Fails the response once nothing is heard for `limit`, while it is read.
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
    tell(machine?.ended(failure, at: now))
    thread.note(self, rests: failure?.retryAfter != nil)
    advance()
  }

  private func deliver(_ events: EventBatch) {
    if let parser = splitter as? ServerSentEvents {
      source.memory.lastEventID = parser.lastEventID
      if parser.hasDroppedID, !source.memory.hasReportedLimit {
        source.memory.hasReportedLimit = true
        report(
          .limited(
            "an id of more than \(Validators.limit) bytes is not used: "
              + "a reconnection sends no Last-Event-ID"))
      }
      if let time = parser.reconnectionTime { machine?.reconnectionTime = time }
    }
    give(events, newCheckpoint)
  }

  // MARK: Transfer.Handler

  func transferReceived(_ head: ResponseHead) -> Transfer.Plan {
    guard head.status == 200 else { return .discard }
    if source.format == .serverSentEvents, !head.isEventStream {
      return .refuse(HTTPFailure("not an event stream: its Content-Type is not text/event-stream"))
    }
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
    do throws(EventTooLong) {
      try splitter.feed(bytes, into: &events)
    } catch {
      return .stop(.over(error.maximumBytes, source.format == .lines ? "line" : "event"))
    }
    deliver(events)
    return isLive ? .next : .stop(HTTPFailure("cancelled"))
  }

  func transferEnded(_ result: Result<ResponseHead, HTTPFailure>) {
    switch result {
    case .success(let head) where head.status == 200:
      var last = EventBatch()
      splitter.end(into: &last)
      if isWanted { deliver(last) } else { held = last }
      ended(nil)
    case .success(let head): refused(head)
    case .failure(let failure): ended(failure)
    }
  }
}

extension HTTPStreamSubscription {
  /// The server has answered with something else than the stream.
  private func refused(_ head: ResponseHead) {
    var failure = HTTPFailure.status(head.status, retryAfter: head.retryAfter)
    // Maybe for the id that it was asked with, which would be so for ever.
    if !source.memory.lastEventID.isEmpty, [400, 412, 431].contains(head.status) {
      source.memory.lastEventID = []
      failure.sentence += "; the next request is without Last-Event-ID, so events may be missing"
    }
    ended(failure)
  }
}

extension HTTPRequest {
  /// The header fields of an event source, where the configuration has not set them. Source: WHATWG HTML, 9.2.2.
  fileprivate mutating func askForEvents(after lastEventID: [UInt8]) {
    var fields = [("Accept", "text/event-stream"), ("Cache-Control", "no-store")]
    // An id may be any text without line breaks; what a header field cannot hold is not sent back.
    let id = String(decoding: lastEventID, as: UTF8.self)
    if !id.isEmpty, id.utf8.allSatisfy({ $0 == 0x09 || ($0 >= 0x20 && $0 != 0x7F) }) {
      fields.append(("Last-Event-ID", id))
    }
    for (name, value) in fields where !headers.contains(where: { $0.name.lowercased() == name.lowercased() }) {
      headers.append(HTTPHeader(name: name, value: value))
    }
  }
}
