import Events
import Reactive
import StreamRuntime

/// Polls a URL while there is demand.
///
/// Each batch is one event: the body of a 200 response, byte for byte except for a byte order mark at its beginning, unless
/// it equals the previous body. One unit of demand is one fetch that yields an event; without demand there is no fetch. A
/// 304 or 204 response, an unchanged page and a failure yield no event and use no demand. A subscription with a checkpoint
/// fetches only what differs from the page that it names.
public struct HTTPPoll: SourceDriver {
  fileprivate let configuration: HTTPConfiguration
  private let every: Duration
  fileprivate let isJSON: Bool

  /// - Parameters:
  ///   - every: the time from one fetch to the next; greater than zero.
  ///   - isJSON: whether the page must be JSON: an empty page, which is not, is then a failure. Otherwise it is no
  ///     event.
  public init(_ configuration: HTTPConfiguration, every: Duration, isJSON: Bool = false) {
    precondition(every > .zero, "an interval must be greater than zero, it is \(every)")
    (self.configuration, self.every, self.isJSON) = (configuration, every, isJSON)
  }

  /// Makes the subscriptions of one source.
  public func subscriptions(in context: SourceContext) -> SubscriptionMaker {
    let memory = SourceMemory {
      PollMachine(
        every: every, retry: configuration.retry, phaseKey: context.name ?? configuration.url,
        seed: UInt64.random(in: 0...UInt64.max))
    }
    return { PollSubscription(self, context, memory, $0) }
  }
}

/// A subscription: connects the machine to an HTTP client.
private final class PollSubscription: HTTPSubscription<PollMachine>, Transfer.Handler, @unchecked Sendable {
  private let driver: HTTPPoll
  private let resumption: SourceResumption?
  private let fingerprint: BodyDigest
  private var body: [UInt8] = []
  /// Decodes a body that is not in UTF-8.
  private var charset: CharsetDecoder?
  /// Whether the body has begun.
  private var hasBody = false
  /// Whether the last page was not in the charset that it declared.
  private var isGarbled = false
  private var head: UpstreamResponse?

  init(
    _ driver: HTTPPoll, _ context: SourceContext, _ memory: SourceMemory<PollMachine>,
    _ down: AnySubscriber<EventBatch, Never>
  ) {
    (self.driver, resumption) = (driver, context.resumption(.event))
    fingerprint = driver.configuration.fingerprint(["poll", resumption?.pipeline ?? ""])
    super.init(context, memory, to: down)
  }

  override func begin() {
    super.begin()
    continueSchedule()
    resume()
  }

  override func end() {
    super.end()
    body = []
  }

  /// Resumes from the page of the last event, if there is a checkpoint of it.
  private func resume() {
    guard let kept = resumption?.checkpoint(),
      case .poll(let digest, let tag, let date)? = SourcePosition(kept, fingerprint)
    else { return }
    var validators: Validators?
    if tag != nil || date != nil, let home = try? HTTPURL(driver.configuration.url, adding: driver.configuration.query)
    {
      validators = Validators(url: home.string, entityTag: tag, lastModified: date)
    }
    machine?.resume(validators, digest)
  }

  /// The checkpoint of an event, for the next process or subscription.
  private func checkpoint(_ validators: Validators?, _ digest: BodyDigest?) -> Checkpoint? {
    guard resumption != nil, let digest else { return nil }
    let home = try? HTTPURL(driver.configuration.url, adding: driver.configuration.query).string
    let ours = validators?.url == home ? validators : nil
    return SourcePosition.poll(digest, entityTag: ours?.entityTag, lastModified: ours?.lastModified)
      .checkpoint(fingerprint)
  }

  override func perform(_ action: PollMachine.Action) {
    perform(action) { [weak self] in self?.fetch($0) }
  }

  private func fetch(_ validators: Validators?) {
    do throws(SourceFailure) {
      try start(driver.configuration.request(validators), self)
    } catch {
      receive(.failed(error))
    }
  }

  private func receive(_ answer: PollMachine.Answer) {
    transfer = nil
    let bytes = body
    (body, charset, hasBody, head) = ([], nil, false, nil)
    guard isLive else { return }
    conclude(answer) { validators, digest in
      var events: EventBatch = [bytes]
      events.checkpoint = checkpoint(validators, digest)
      return events
    }
  }

  // MARK: Transfer.Handler

  func transferReceived(_ head: UpstreamResponse) -> Transfer.Plan {
    guard head.isContent else { return .discard }
    let length = head.contentLength ?? 0
    guard length <= driver.configuration.maximumBodyBytes else { return .refuse(tooLarge) }
    if let failure = head.refusal(as: driver.configuration.content) { return .refuse(failure) }
    self.head = head
    body.reserveCapacity(length)
    return .take
  }

  func transferReceived(_ bytes: UnsafeRawBufferPointer) -> Transfer.Flow {
    do throws(SourceFailure) { try unsafe take(bytes) } catch { return .stop(error) }
    return .next
  }

  private func take(_ bytes: UnsafeRawBufferPointer) throws(SourceFailure) {
    if !hasBody, driver.configuration.content != .any { charset = try unsafe .of(head, bytes) }
    hasBody = true
    // Before it is stored; also a body in another charset has at most a character of three bytes for each.
    guard bytes.count <= driver.configuration.maximumBodyBytes - body.count else { throw tooLarge }
    if let charset { unsafe charset.decode(bytes, into: &body) } else { unsafe body.append(contentsOf: bytes) }
    guard body.count <= driver.configuration.maximumBodyBytes else { throw tooLarge }
  }

  func transferEnded(_ result: Result<UpstreamResponse, SourceFailure>) {
    switch result {
    case .success(let head) where head.isContent:
      if let charset { reportFaults(of: charset) }
      if body.starts(with: [0xEF, 0xBB, 0xBF]) { body.removeFirst(3) }
      if driver.isJSON, body.isWhiteSpace {
        return receive(.failed(SourceFailure("the body is empty, which is not JSON")))
      }
      if body.isEmpty { return receive(.nothing) }
      if driver.configuration.content == .json, let failure = head.documentFailure, !Self.isJSON(body) {
        return receive(.failed(failure))
      }
      if let field = head.oversizedValidators.first {
        reportLimit("its \(field) of more than \(Validators.limit) bytes is not used: polls transfer the full response")
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

  private var tooLarge: SourceFailure { .over(driver.configuration.maximumBodyBytes, "body") }
}
