import Events
import Reactive
import StreamRuntime
import Synchronization

/// Fetches a URL again and again, while somebody wants what it says.
///
/// Each value is a batch of one event: the body of a 200 answer, byte for byte, unless it equals the one before. A unit of
/// demand is a fetch that gives one; without demand none is made. An answer of 304 or 204, a page that is the same, and a
/// failure give no event and use up no demand. Never completes.
/// Made for one subscription at a time, as a shared log's: each goes on with the schedule and the backoff of the last.
public struct HTTPPoll: Publisher, Sendable {
  /// A batch of events, each its bytes.
  public typealias Output = EventBatch
  /// A failed fetch is reported and tried again.
  public typealias Failure = Never

  private let configuration: HTTPConfiguration
  private let thread: SourceThread
  private let report: @Sendable (SourceReport) -> Void
  private let memory: PollMemory
  private let resumption: SourceResumption?

  /// - Parameters:
  ///   - every: from one fetch to the next; more than nothing.
  ///   - phaseKey: what fixes where in the interval the fetches fall: a stream's name. The URL when nil.
  ///   - resumption: each subscription asks for what differs from the page that is named there, and each event says how to
  ///     do that later; nil: each takes the first page that it gets as new.
  ///   - report: told of each failure and of the end of a row of them, on the source thread; must return promptly.
  public init(
    _ configuration: HTTPConfiguration, every: Duration, phaseKey: String? = nil, resumption: SourceResumption? = nil,
    on thread: SourceThread,
    report: @escaping @Sendable (SourceReport) -> Void
  ) {
    precondition(every > .zero, "an interval must be more than nothing, not \(every)")
    self.configuration = configuration
    self.thread = thread
    self.report = report
    self.resumption = resumption
    memory = PollMemory {
      PollMachine(
        every: every, retry: configuration.retry, phaseKey: phaseKey ?? configuration.url,
        seed: UInt64.random(in: 0...UInt64.max))
    }
  }

  /// As of any publisher. Values are delivered on the source thread.
  public func receive<S: Subscriber>(subscriber: S) where S.Input == Output, S.Failure == Failure {
    let poll = PollSubscription(
      configuration, on: thread, memory: memory, resumption: resumption, report: report, to: AnySubscriber(subscriber))
    subscriber.receive(subscription: poll)
  }
}

/// Where the machine rests between two subscriptions. Touched on the source thread alone.
private final class PollMemory: @unchecked Sendable {
  var machine: PollMachine?
  /// As the thread's, when the machine was put here.
  var endedRests = 0
  /// Of the fields that were too long.
  var hasReportedLimit = false
  let makeMachine: @Sendable () -> PollMachine

  init(_ makeMachine: @escaping @Sendable () -> PollMachine) {
    self.makeMachine = makeMachine
  }
}

/// A subscription: the machine with a clock, a client and a subscriber.
///
/// Sendable, as all of it but `isCancelled` is touched on the source thread alone; `request` and `cancel` go there.
private final class PollSubscription: RetractableSubscription, RestingSource, Transfer.Handler, @unchecked Sendable {
  private let configuration: HTTPConfiguration
  private let thread: SourceThread
  private let report: @Sendable (SourceReport) -> Void
  private let isCancelled = Atomic(false)
  private var down: AnySubscriber<EventBatch, Never>?
  private let memory: PollMemory
  private let resumption: SourceResumption?
  private let fingerprint: BodyDigest
  /// From the first demand on.
  private var machine: PollMachine?
  private var transfer: Transfer?
  private var timer: TimerID?
  private var body: [UInt8] = []

  init(
    _ configuration: HTTPConfiguration, on thread: SourceThread, memory: PollMemory, resumption: SourceResumption?,
    report: @escaping @Sendable (SourceReport) -> Void, to down: AnySubscriber<EventBatch, Never>
  ) {
    self.configuration = configuration
    self.thread = thread
    self.memory = memory
    self.resumption = resumption
    fingerprint = configuration.fingerprint(["poll", resumption?.pipeline ?? ""])
    self.report = report
    self.down = down
  }

  func request(_ demand: Subscribers.Demand) {
    thread.loop.execute { [self] in
      guard !isCancelled.load(ordering: .acquiring) else { return }
      if machine == nil {
        machine = memory.machine.take() ?? memory.makeMachine()
        if memory.endedRests != thread.endedRests { machine?.endRest(at: Self.now) }
        resume()
      }
      machine?.request(demand)
      advance()
    }
  }

  func retract() {
    thread.loop.execute { [self] in
      machine?.retract()
      guard let transfer, !transfer.hasBegun else { return }
      transfer.cancel()
      self.transfer = nil
      machine?.withdraw()
    }
  }

  func cancel() {
    guard !isCancelled.exchange(true, ordering: .acquiringAndReleasing) else { return }
    thread.loop.execute { [self] in
      transfer?.cancel()
      transfer = nil
      if let timer { thread.loop.cancel(timer) }
      timer = nil
      down = nil
      body = []
      machine?.suspend()
      if let machine { (memory.machine, memory.endedRests) = (machine, thread.endedRests) }
      machine = nil
      thread.note(self, rests: false)
    }
  }

  /// Goes on from the page that was the last event, if that is known.
  private func resume() {
    guard let kept = resumption?.checkpoint(),
      case .poll(let digest, let tag, let date)? = SourcePosition(kept, fingerprint)
    else { return }
    var validators: Validators?
    if tag != nil || date != nil, let home = try? HTTPURL(configuration.url, adding: configuration.query) {
      validators = Validators(url: home.string, entityTag: tag, lastModified: date)
    }
    machine?.resume(validators, digest)
  }

  /// What the next process, or the next subscription, is to know of an event.
  private func checkpoint(_ validators: Validators?, _ digest: BodyDigest?) -> Checkpoint? {
    guard resumption != nil, let digest else { return nil }
    let home = try? HTTPURL(configuration.url, adding: configuration.query).string
    let ours = validators?.url == home ? validators : nil
    return SourcePosition.poll(digest, entityTag: ours?.entityTag, lastModified: ours?.lastModified)
      .checkpoint(fingerprint)
  }

  private func advance() {
    guard !isCancelled.load(ordering: .acquiring) else { return }
    let now = Self.now
    switch machine?.next(at: now) {
    case .rest, nil: break
    case .wait(let due):
      guard timer == nil else { return }
      timer = thread.loop.schedule(after: due - now) { [weak self] in
        self?.timer = nil
        self?.advance()
      }
    case .fetch(let validators): fetch(validators)
    }
  }

  func endRest() {
    machine?.endRest(at: Self.now)
    if let timer { thread.loop.cancel(timer) }
    timer = nil
    advance()
  }

  private func fetch(_ validators: Validators?) {
    do throws(HTTPFailure) {
      let request = try configuration.request(validators)
      guard let client = thread.httpClient else { throw HTTPFailure("the source thread has stopped") }
      transfer = client.start(request, handler: self)
    } catch {
      receive(.failed(error))
    }
  }

  private func receive(_ answer: PollMachine.Answer) {
    transfer = nil
    let bytes = body
    body = []
    guard !isCancelled.load(ordering: .acquiring) else { return }
    if let news = machine?.receive(answer, at: Self.now) { report(news) }
    let asksForRest = if case .failed(let failure) = answer { failure.retryAfter != nil } else { false }
    thread.note(self, rests: asksForRest)
    if case .event(let validators, let digest) = answer, !isCancelled.load(ordering: .acquiring), let down {
      var events: EventBatch = [bytes]
      events.checkpoint = checkpoint(validators, digest)
      let more = down.receive(events)
      machine?.request(more)
    }
    advance()
  }

  private static var now: Duration { .nanoseconds(Int64(clamping: EventLoop.monotonicNow())) }

  // MARK: Transfer.Handler

  func transferWaits(_ reason: String) {
    if let news = machine?.waits(reason) { report(news) }
  }

  func transferReceived(_ head: ResponseHead) -> Transfer.Plan {
    guard head.status == 200 else { return .discard }
    let length = head.contentLength ?? 0
    guard length <= configuration.maximumBodyBytes else { return .refuse(tooLarge) }
    body.reserveCapacity(length)
    return .take
  }

  func transferReceived(_ bytes: UnsafeRawBufferPointer) -> Transfer.Flow {
    guard bytes.count <= configuration.maximumBodyBytes - body.count else { return .stop(tooLarge) }
    body.append(contentsOf: bytes)
    return .next
  }

  func transferEnded(_ result: Result<ResponseHead, HTTPFailure>) {
    switch result {
    case .success(let head) where head.status == 200:
      if let field = head.oversizedValidators.first, !memory.hasReportedLimit {
        memory.hasReportedLimit = true
        report(
          .limited("its \(field) of more than \(Validators.limit) bytes is not kept: each fetch brings the whole page"))
      }
      if let machine { receive(machine.answer(head.validators, BodyDigest(body))) }
    case .success(let head) where head.status == 204: receive(.nothing)
    case .success(let head) where head.status == 304: receive(.unchanged)
    case .success(let head): receive(.failed(.status(head.status, retryAfter: head.retryAfter)))
    case .failure(let failure): receive(.failed(failure))
    }
  }

  private var tooLarge: HTTPFailure { .over(configuration.maximumBodyBytes, "body") }
}
