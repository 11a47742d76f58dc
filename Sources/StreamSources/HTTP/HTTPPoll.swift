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
  private let (every, most): (Duration, Duration?)
  fileprivate let isJSON: Bool
  /// Makes the requests of each interval; nil: there is one, that of the configuration.
  private let divisionReference: WeakReference?
  fileprivate var division: (any PollDivision)? { divisionReference?.object as? any PollDivision }

  /// - Parameters:
  ///   - configuration: the request, and the limits of its answer.
  ///   - every: the time from one fetch to the next; greater than zero.
  ///   - most: after each answer without news the time doubles up to this one; news end that. nil: the time stays.
  ///   - isJSON: whether the page must be JSON: an empty page, which is not, is then a failure. Otherwise it is no
  ///     event.
  public init(_ configuration: HTTPConfiguration, every: Duration, most: Duration? = nil, isJSON: Bool = false) {
    self.init(configuration, every: every, most: most, isJSON: isJSON, division: nil)
  }

  /// - Parameter division: must outlive the subscriptions.
  init(
    _ configuration: HTTPConfiguration, every: Duration, most: Duration? = nil, isJSON: Bool = false,
    division: (any PollDivision)?
  ) {
    precondition(every > .zero, "an interval must be greater than zero, it is \(every)")
    (self.configuration, self.every, self.most, self.isJSON) = (configuration, every, most, isJSON)
    divisionReference = division.map { WeakReference($0) }
  }

  /// Makes the subscriptions of one source.
  public func subscriptions(in context: SourceContext) -> SubscriptionMaker {
    let memory = Memory {
      PollMachine(
        every: every, most: most, retry: configuration.retry, phaseKey: context.name ?? configuration.url,
        seed: UInt64.random(in: 0...UInt64.max), isIdempotent: configuration.isIdempotent,
        pages: configuration.cursor?.pages ?? 1)
    }
    memory.position = configuration.cursor.map { PollPosition($0) }
    return { PollSubscription(self, context, memory, $0) }
  }

  /// The state that outlives a subscription. Confined to the source thread.
  fileprivate final class Memory: SourceMemory<PollMachine>, @unchecked Sendable {
    /// The position of the next request; nil: there is no cursor.
    var position: PollPosition?
  }
}

/// Divides what a poll asks for in one interval among several requests, made one after the other. Confined to the source thread.
protocol PollDivision: AnyObject, Sendable {
  /// The next request; nil: there is none in this interval.
  func next() -> HTTPConfiguration?
  /// Takes the answer to it.
  ///
  /// - Parameters:
  ///   - body: empty unless the answer is a page.
  ///   - completed: called once, perhaps within this call, with the result of the interval so far, and whether another
  ///     request follows at once.
  func take(
    _ answer: PollMachine.Answer, _ body: [UInt8],
    completed: @escaping (_ result: PollMachine.Answer, _ goesOn: Bool) -> Void)
}

/// A subscription: connects the machine to an HTTP client.
private final class PollSubscription: HTTPSubscription<PollMachine>, Transfer.Handler, @unchecked Sendable {
  private let driver: HTTPPoll
  private let memory: HTTPPoll.Memory
  private let resumption: SourceResumption?
  /// Finds positions, if the cursor has a program.
  private var examiner: JQExaminer?
  /// The answer to the last request, while its position is not known.
  private var located: PollMachine.Answer?
  private let fingerprint: BodyDigest
  private var body: [UInt8] = []
  /// Decodes a body that is not in UTF-8.
  private var charset: CharsetDecoder?
  /// Whether the body has begun.
  private var hasBody = false
  /// Whether the last page was not in the charset that it declared.
  private var isGarbled = false
  private var head: UpstreamResponse?
  /// The pause that the response has asked for.
  private var pause: RequestPause?

  init(
    _ driver: HTTPPoll, _ context: SourceContext, _ memory: HTTPPoll.Memory,
    _ down: AnySubscriber<EventBatch, Never>
  ) {
    let configuration = driver.configuration
    (self.driver, self.memory) = (driver, memory)
    // A position is valid without the events before it, an unchanged page is not.
    resumption = context.resumption(configuration.cursor == nil ? .event : .stream)
    fingerprint =
      configuration.cursor.map { configuration.fingerprint(of: $0) }
      ?? configuration.fingerprint(["poll", resumption?.pipeline ?? ""])
    super.init(configuration, context, memory, to: down)
  }

  override func begin() {
    super.begin()
    continueSchedule()
    resume()
  }

  override func end() {
    super.end()
    examiner?.end()
    (body, examiner, located) = ([], nil, nil)
  }

  /// Resumes from the page of the last event, if there is a checkpoint of it.
  private func resume() {
    guard let resumption else { return }
    memory.position = driver.configuration.cursor.map { PollPosition($0) }
    guard let kept = resumption.checkpoint(),
      case .poll(let digest, let tag, let date, let position)? = SourcePosition(kept, fingerprint)
    else { return }
    if let position { memory.position?.current = position }
    var validators: Validators?
    if tag != nil || date != nil, let home {
      validators = Validators(url: home, entityTag: tag, lastModified: date)
    }
    machine?.resume(validators, digest)
  }

  /// The URL of the next request.
  private var home: String? { try? request(nil).url.string }

  /// The checkpoint of an event, for the next process or subscription.
  private func checkpoint(_ validators: Validators?, _ digest: BodyDigest?) -> Checkpoint? {
    guard resumption != nil, let digest else { return nil }
    let ours = validators?.url == home ? validators : nil
    return SourcePosition.poll(
      digest, entityTag: ours?.entityTag, lastModified: ours?.lastModified, position: memory.position?.current
    ).checkpoint(fingerprint)
  }

  override func perform(_ action: PollMachine.Action) {
    perform(action) { [weak self] in self?.fetch($0) }
  }

  private func fetch(_ validators: Validators?) {
    do throws(SourceFailure) {
      if let division = driver.division {
        guard let configuration = division.next() else { return conclude(.nothing) }
        return try start(configuration.request(nil), self)
      }
      try start(request(validators), self)
    } catch {
      receive(.failed(error))
    }
  }

  private func request(_ validators: Validators?) throws(SourceFailure) -> UpstreamRequest {
    var request = try driver.configuration.request(validators)
    guard let position = memory.position else { return request }
    try position.apply(to: &request, adding: driver.configuration.query)
    request.wantedFields = position.field.map { [$0] } ?? []
    return request
  }

  private func receive(_ answer: PollMachine.Answer) {
    transfer = nil
    let (bytes, pause) = (body, pause)
    (body, charset, hasBody, head, self.pause) = ([], nil, false, nil, nil)
    guard isLive else { return }
    if let division = driver.division {
      return division.take(answer, bytes) { [weak self] answer, goesOn in
        guard let self, isLive else { return }
        // Values that wait for a pause of the host are asked for later, in the same interval of the division.
        if goesOn, pause == nil { fetch(nil) } else { conclude(answer, pause: pause) }
      }
    }
    conclude(answer, pause: pause) { validators, digest in
      var events: EventBatch = [bytes]
      events.checkpoint = checkpoint(validators, digest)
      return events
    }
    noteHalt()
  }

  /// Takes the result of all requests of an interval, whose events the division has.
  private func conclude(_ answer: PollMachine.Answer, pause: RequestPause? = nil) {
    conclude(answer, pause: pause) { _, _ in EventBatch() }
  }

  // MARK: Transfer.Handler

  func transferReceived(_ head: UpstreamResponse) -> Transfer.Plan {
    note(head.status)
    pause = head.pause
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
    if isRenewed(self) { return }
    switch result {
    case .success(let head) where head.isContent:
      if let charset { reportFaults(of: charset) }
      if body.starts(with: [0xEF, 0xBB, 0xBF]) { body.removeFirst(3) }
      if driver.isJSON, body.isWhiteSpace { return refuse(SourceFailure("the body is empty, which is not JSON")) }
      if body.isEmpty { return locate(.nothing, head) }
      if driver.configuration.content == .json, let failure = head.documentFailure, !Self.isJSON(body) {
        return refuse(failure)
      }
      if let field = head.oversizedValidators.first {
        reportLimit("its \(field) of more than \(Validators.limit) bytes is not used: polls transfer the full response")
      }
      let validators = driver.configuration.method == .get ? head.validators : nil
      if let machine { locate(machine.answer(validators, digest), head) }
    case .success(let head) where head.status == 204: locate(.nothing, head)
    case .success(let head) where head.status == 304: receive(.unchanged)
    case .success(let head): receive(.failed(.status(head.status, retryAfter: head.retryAfter)))
    case .failure(let failure): receive(.failed(failure))
    }
  }

  /// The digest by which a page is known. With a cursor it is another page at another position, and to another pipeline.
  private var digest: BodyDigest {
    let digest = BodyDigest(body)
    guard let position = memory.position else { return digest }
    return BodyDigest(parts: ["\(digest.value)", context.pipeline, position.current?.text ?? ""])
  }

  /// The response cannot be used.
  private func refuse(_ failure: SourceFailure) {
    var failure = failure
    failure.wasSent = true
    receive(.failed(failure))
  }

  /// Finds the position that the response has brought.
  private func locate(_ answer: PollMachine.Answer, _ head: UpstreamResponse) {
    guard let position = memory.position else { return receive(answer) }
    do throws(SourceFailure) {
      if case .program(let program) = position.cursor.origin, !body.isEmpty {
        located = answer
        return try ask(program, position.cursor.variables)
      }
      let configuration = driver.configuration
      let origin = try HTTPURL(configuration.url).origin
      found(try position.position(in: head, from: origin, without: configuration.query), answer)
    } catch {
      refuse(error)
    }
  }

  /// Runs the program on the body, in a process of its own.
  private func ask(_ program: String, _ variables: [String: String]) throws(SourceFailure) {
    if examiner == nil {
      var transform = JQTransform(program: program)
      transform.variables = variables
      examiner = try JQExaminer(
        transform, for: "cursor.from", in: context, report: { [weak self] in self?.report($0) }
      ) { [weak self] in self?.examined($0) }
    }
    examiner?.examine(EventBatch(of: body))
  }

  private func examined(_ result: Result<[JQAnswer], SourceFailure>) {
    guard isLive, let answer = located.take() else { return }
    if case .failure = result { examiner = nil }
    do throws(SourceFailure) {
      let outputs = try result.get().first ?? JQAnswer()
      found(try memory.position?.position(in: outputs, of: body), answer)
    } catch {
      refuse(error)
    }
  }

  /// - Parameter position: nil: the one before stays.
  private func found(_ position: HTTPCursor.Position?, _ answer: PollMachine.Answer) {
    guard let position, position != memory.position?.current else { return receive(answer) }
    memory.position?.current = position
    // The next request is another one, for which no validators are valid.
    switch answer {
    case .event(_, let digest, _): receive(.event(nil, digest, goesOn: true))
    case .repeated: receive(.repeated(nil))
    case .unchanged, .nothing, .failed: receive(answer)
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
