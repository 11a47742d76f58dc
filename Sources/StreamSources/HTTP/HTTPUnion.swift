import Events
import Reactive
import StreamRuntime

/// A poll for the values of many streams: as few requests in each interval as their number allows.
public final class HTTPUnion: ValueUnion, PollDivision, @unchecked Sendable {
  /// The requests of a union, and the form of their answers.
  public struct Definition: Sendable, Equatable {
    /// The requests, except for the values in them.
    var request: HTTPConfiguration
    var every: Duration
    /// Values of a request.
    var most: Int
    var places: UnionRequestText
    var programs: UnionParts.Programs

    /// - Parameter most: at least 1.
    package init(
      _ request: HTTPConfiguration, every: Duration, most: Int, places: UnionRequestText, programs: UnionParts.Programs
    ) {
      precondition(most > 0, "a request has at least one value, not \(most)")
      (self.request, self.every, self.most) = (request, every, most)
      (self.places, self.programs) = (places, programs)
    }
  }

  private var definition: Definition
  private var requests: UnionRequests
  private var parts: UnionParts
  /// One for all subscriptions, which continue each other's schedule; nil: not made yet.
  private var poll: Source<HTTPPoll>?
  /// The running poll.
  private var link: UnionLink?
  private var hasAsked = false
  /// The first refusal of the interval, which is its result if nothing else has an answer.
  private var refusal: SourceFailure?

  /// Begins with the first member.
  public init(_ definition: Definition, in context: SourceContext) {
    self.definition = definition
    requests = Self.requests(definition)
    parts = UnionParts(definition.programs, in: context)
    super.init(in: context)
  }

  private static func requests(_ definition: Definition) -> UnionRequests {
    UnionRequests(most: definition.most, retry: definition.request.retry, seed: UInt64.random(in: 0...UInt64.max))
  }

  /// Continues with another definition. Thread-safe.
  public func change(to definition: Definition) {
    context.thread.loop.execute { [self] in
      guard definition != self.definition else { return }
      self.definition = definition
      requests = Self.requests(definition)
      disconnect()
      poll = nil
      for slot in slots.values { demandChanged(slot) }
      changed()
    }
  }

  private func disconnect() {
    link?.cancel()
    (link, hasAsked, refusal) = (nil, false, nil)
    parts.end()
    parts = UnionParts(definition.programs, in: context)
  }

  // MARK: ValueUnion

  override func demandChanged(_ slot: Slot) { requests.set(slot.value, isWanted: slot.hasDemand) }

  override func advance() {
    guard !slots.isEmpty else { return link == nil ? () : disconnect() }
    guard requests.isEmpty == hasAsked else { return }
    hasAsked.toggle()
    guard hasAsked else { return link?.retract() ?? () }
    if link == nil { connect() }
    link?.request(.unlimited)
  }

  private func connect() {
    let poll = poll ?? makePoll()
    self.poll = poll
    let link = UnionLink { _ in }
    self.link = link
    poll.receive(subscriber: link)
  }

  private func makePoll() -> Source<HTTPPoll> {
    var inner = context
    inner.report = { [weak self] in self?.report($0) }
    inner.progress = { [weak self] in self?.progress($0) }
    return Source(HTTPPoll(definition.request, every: definition.every, isJSON: true, division: self), in: inner)
  }

  // MARK: PollDivision

  func next() -> HTTPConfiguration? {
    guard let values = requests.next(at: now) else { return nil }
    return definition.places.request(definition.request, values)
  }

  func take(
    _ answer: PollMachine.Answer, _ body: [UInt8],
    completed: @escaping (_ result: PollMachine.Answer, _ goesOn: Bool) -> Void
  ) {
    switch answer {
    case .failed(let failure) where [400, 404, 422].contains(failure.status):
      if let found = requests.refused(at: now), let slot = slots[found.value] {
        slot.isFailing = true
        slot.report(
          .failing("the upstream refuses the value: \(failure.sentence)", attempt: found.count, retryIn: found.retryIn))
      }
      refusal = refusal ?? failure
      conclude(completed)
    case .failed:
      requests.failed()
      completed(answer, false)
    case .unchanged:
      // Requests have no validators.
      requests.failed()
      completed(answer, false)
    case .event, .repeated, .nothing:
      parts.separate(EventBatch(body.isEmpty ? [] : [body]), for: self) { [weak self] failure in
        self?.taken(failure, completed)
      }
    }
  }

  private func taken(
    _ failure: SourceFailure?, _ completed: (_ result: PollMachine.Answer, _ goesOn: Bool) -> Void
  ) {
    if failure == nil {
      for value in requests.answered() { if let slot = slots[value] { note(slot) } }
    } else {
      requests.failed()
    }
    for slot in deliver() { slot.isFound = false }
    guard let failure else { return conclude(completed) }
    completed(.failed(failure), false)
  }

  /// A value was answered, with a part of it or without.
  private func note(_ slot: Slot) {
    guard slot.isFound else {
      slot.isFailing = true
      return slot.share(
        .failing("the upstream's answer has no part for \(slot.value)", attempt: 1, retryIn: definition.every))
    }
    if slot.isFailing {
      slot.isFailing = false
      slot.report(.recovered(afterFailures: 1))
    }
    for member in slot.members { member.context.succeeded() }
  }

  private func conclude(_ completed: (_ result: PollMachine.Answer, _ goesOn: Bool) -> Void) {
    if requests.goesOn(at: now) { return completed(.nothing, true) }
    requests.end(at: now)
    defer { refusal = nil }
    guard let refusal, !requests.hasAnswer else { return completed(.event(nil), false) }
    completed(.failed(refusal), false)
  }
}

/// Where a request has the values of many streams.
public struct UnionRequestText: Sendable, Equatable {
  private let url: UnionText
  private let body: UnionText?

  /// - Parameter body: nil: that of the request.
  package init(url: UnionText, body: UnionText?) { (self.url, self.body) = (url, body) }

  /// The request for these values.
  func request(_ request: HTTPConfiguration, _ values: [String]) -> HTTPConfiguration {
    var request = request
    request.url = url.text(values)
    if let body { request.body?.bytes = Array(body.text(values).utf8) }
    return request
  }
}
