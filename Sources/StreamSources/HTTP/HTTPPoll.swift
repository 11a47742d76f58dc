import Events
import Reactive
import StreamRuntime

/// Polls a URL while there is demand.
///
/// Each value is a batch of one event: the body of a 200 response, byte for byte except for a byte order mark at its
/// beginning, unless it equals the previous body.
/// One unit of demand is one fetch that yields an event; without demand there is no fetch. A 304 or 204 response, an
/// unchanged page and a failure yield no event and use no demand. Never completes.
/// For one subscription at a time, such as a shared log's: each continues the schedule and the backoff of the previous
/// one.
public struct HTTPPoll: Publisher, Sendable {
  /// A batch of events, each its bytes.
  public typealias Output = EventBatch
  /// A failed fetch is reported and retried.
  public typealias Failure = Never

  fileprivate let configuration: HTTPConfiguration
  fileprivate let isJSON: Bool
  fileprivate let thread: SourceThread
  fileprivate let report: @Sendable (SourceReport) -> Void
  fileprivate let memory: SourceMemory<PollMachine>
  fileprivate let links: PollLinks

  /// - Parameters:
  ///   - every: the time from one fetch to the next; greater than zero.
  ///   - isJSON: whether the page must be JSON: an empty page, which is not, is then a failure. Otherwise it is no
  ///     event.
  ///   - phaseKey: determines the offset of the fetches within the interval: a stream's name. nil: the URL.
  ///   - resumption: each subscription fetches only what differs from the page that it names, and each event carries a
  ///     checkpoint for later; nil: each subscription treats its first page as new.
  ///   - admission: asked before each fetch; nil: demand is enough.
  ///   - handover: continues the schedule of another process; nil: there is none.
  ///   - refresh: makes the source fetch before the next tick.
  ///   - succeeded: called on the source thread for each fetch that did not fail, before its event if it has one.
  ///   - progress: called with each change that the source's counters record.
  ///   - report: called with each failure and at the end of a series of failures, on the source thread; must return
  ///     promptly.
  public init(
    _ configuration: HTTPConfiguration, every: Duration, isJSON: Bool = false, phaseKey: String? = nil,
    resumption: SourceResumption? = nil,
    admission: FetchAdmission? = nil, handover: SourceHandover? = nil, refresh: SourceRefresh = SourceRefresh(),
    on thread: SourceThread, succeeded: @escaping @Sendable () -> Void = {},
    progress: @escaping @Sendable (SourceProgress) -> Void = { _ in },
    report: @escaping @Sendable (SourceReport) -> Void
  ) {
    precondition(every > .zero, "an interval must be greater than zero, it is \(every)")
    self.configuration = configuration
    self.isJSON = isJSON
    self.thread = thread
    self.report = report
    links = PollLinks(
      resumption: resumption, admission: admission, handover: handover, succeeded: succeeded, progress: progress)
    memory = SourceMemory(refresh) {
      PollMachine(
        every: every, retry: configuration.retry, phaseKey: phaseKey ?? configuration.url,
        seed: UInt64.random(in: 0...UInt64.max))
    }
  }

  /// Subscribes. Values are delivered on the source thread.
  public func receive<S: Subscriber>(subscriber: S) where S.Input == Output, S.Failure == Failure {
    subscriber.receive(subscription: PollSubscription(self, AnySubscriber(subscriber)))
  }
}

/// Decides, at the moment of a fetch, whether anything wants its event: demand may be known elsewhere. Called on the source
/// thread with a closure that must be called there once, now or later. If it is called with false there is no fetch, and
/// no demand until it is requested again.
public typealias FetchAdmission = @Sendable (@escaping @Sendable (_ isWanted: Bool) -> Void) -> Void

/// A subscription: connects the machine to an HTTP client.
private final class PollSubscription: HTTPSubscription<PollMachine>, Transfer.Handler, @unchecked Sendable {
  private let source: HTTPPoll
  private let fingerprint: BodyDigest
  private var body: [UInt8] = []
  /// Decodes a body that is not in UTF-8.
  private var charset: CharsetDecoder?
  /// Whether the body has begun.
  private var hasBody = false
  /// Whether the last page was not in the charset that it declared.
  private var isGarbled = false
  private var head: UpstreamResponse?

  init(_ source: HTTPPoll, _ down: AnySubscriber<EventBatch, Never>) {
    self.source = source
    fingerprint = source.configuration.fingerprint(["poll", source.links.resumption?.pipeline ?? ""])
    super.init(
      on: source.thread, source.memory, progress: source.links.progress, report: source.report, to: down)
  }

  override func begin() {
    super.begin()
    continueSchedule(source.links)
    resume()
  }

  override func end() {
    super.end()
    body = []
  }

  /// Resumes from the page of the last event, if there is a checkpoint of it.
  private func resume() {
    guard let kept = source.links.resumption?.checkpoint(),
      case .poll(let digest, let tag, let date)? = SourcePosition(kept, fingerprint)
    else { return }
    var validators: Validators?
    if tag != nil || date != nil, let home = try? HTTPURL(source.configuration.url, adding: source.configuration.query)
    {
      validators = Validators(url: home.string, entityTag: tag, lastModified: date)
    }
    machine?.resume(validators, digest)
  }

  /// The checkpoint of an event, for the next process or subscription.
  private func checkpoint(_ validators: Validators?, _ digest: BodyDigest?) -> Checkpoint? {
    guard source.links.resumption != nil, let digest else { return nil }
    let home = try? HTTPURL(source.configuration.url, adding: source.configuration.query).string
    let ours = validators?.url == home ? validators : nil
    return SourcePosition.poll(digest, entityTag: ours?.entityTag, lastModified: ours?.lastModified)
      .checkpoint(fingerprint)
  }

  override func perform(_ action: PollMachine.Action) {
    perform(action, source.links) { [weak self] in self?.fetch($0) }
  }

  private func fetch(_ validators: Validators?) {
    do throws(HTTPFailure) {
      try start(source.configuration.request(validators), self)
    } catch {
      receive(.failed(error))
    }
  }

  private func receive(_ answer: PollMachine.Answer) {
    transfer = nil
    let bytes = body
    (body, charset, hasBody, head) = ([], nil, false, nil)
    guard isLive else { return }
    conclude(answer, source.links) { validators, digest in
      var events: EventBatch = [bytes]
      events.checkpoint = checkpoint(validators, digest)
      return events
    }
  }

  // MARK: Transfer.Handler

  func transferReceived(_ head: UpstreamResponse) -> Transfer.Plan {
    guard head.isContent else { return .discard }
    let length = head.contentLength ?? 0
    guard length <= source.configuration.maximumBodyBytes else { return .refuse(tooLarge) }
    if let failure = head.refusal(as: source.configuration.content) { return .refuse(failure) }
    self.head = head
    body.reserveCapacity(length)
    return .take
  }

  func transferReceived(_ bytes: UnsafeRawBufferPointer) -> Transfer.Flow {
    do throws(HTTPFailure) { try unsafe take(bytes) } catch { return .stop(error) }
    return .next
  }

  private func take(_ bytes: UnsafeRawBufferPointer) throws(HTTPFailure) {
    if !hasBody, source.configuration.content != .any { charset = try unsafe .of(head, bytes) }
    hasBody = true
    // Before it is stored; also a body in another charset has at most a character of three bytes for each.
    guard bytes.count <= source.configuration.maximumBodyBytes - body.count else { throw tooLarge }
    if let charset { unsafe charset.decode(bytes, into: &body) } else { unsafe body.append(contentsOf: bytes) }
    guard body.count <= source.configuration.maximumBodyBytes else { throw tooLarge }
  }

  func transferEnded(_ result: Result<UpstreamResponse, HTTPFailure>) {
    switch result {
    case .success(let head) where head.isContent:
      if let charset { reportFaults(of: charset) }
      if body.starts(with: [0xEF, 0xBB, 0xBF]) { body.removeFirst(3) }
      if source.isJSON, body.isWhiteSpace {
        return receive(.failed(HTTPFailure("the body is empty, which is not JSON")))
      }
      if body.isEmpty { return receive(.nothing) }
      if source.configuration.content == .json, let failure = head.documentFailure, !Self.isJSON(body) {
        return receive(.failed(failure))
      }
      if let field = head.oversizedValidators.first, !source.memory.hasReportedLimit {
        source.memory.hasReportedLimit = true
        report(
          .limited("its \(field) of more than \(Validators.limit) bytes is not used: polls transfer the full response"))
      }
      if let machine { receive(machine.answer(head.validators, BodyDigest(body))) }
    case .success(let head) where head.status == 204: receive(.nothing)
    case .success(let head) where head.status == 304: receive(.unchanged)
    case .success(let head): receive(.failed(.status(head.status, retryAfter: head.retryAfter)))
    case .failure(let failure): receive(.failed(failure))
    }
  }

  private static func isJSON(_ bytes: [UInt8]) -> Bool { JSONSyntax.holds(for: bytes.span) }

  private func reportFaults(of charset: CharsetDecoder) {
    charset.end(into: &body)
    let count = charset.takeFaultCount()
    if count > 0 {
      report(.lost("a page is not \(charset.name), as it says", count: 1))
    } else if isGarbled {
      report(.complete)
    }
    isGarbled = count > 0
  }

  private var tooLarge: HTTPFailure { .over(source.configuration.maximumBodyBytes, "body") }
}
