import Events
import Reactive
import StreamRuntime

/// Streaming responses for the values of many streams: as few as their number allows. Another union is another request, which
/// takes the place of the one before once it is answered.
///
/// While the new request is under way, a response whose events have ids is not read: the new one continues after the last id,
/// so that nothing is missing and nothing comes twice. Without ids both are read until the new one is answered.
public final class HTTPStreamUnion: ValueUnion, @unchecked Sendable {
  /// The requests of a union, and the form of their responses.
  public struct Definition: Sendable, Equatable {
    /// The requests, except for the values in them.
    var request: HTTPConfiguration
    var format: HTTPStreamFormat
    var form: ServerSentEventForm
    var lineEnd: LineEnd
    var idleTimeout: Duration?
    var terms: UnionMachine.Terms
    var places: UnionRequestText
    var programs: UnionParts.Programs

    /// - Parameters:
    ///   - most: values of a response; at least 1.
    ///   - pace: requests for one union in a second; at least 1.
    package init(
      _ request: HTTPConfiguration, format: HTTPStreamFormat, form: ServerSentEventForm, lineEnd: LineEnd,
      idleTimeout: Duration?, most: Int, pace: Int, places: UnionRequestText, programs: UnionParts.Programs
    ) {
      (self.request, self.format, self.form, self.lineEnd) = (request, format, form, lineEnd)
      (self.idleTimeout, self.places, self.programs) = (idleTimeout, places, programs)
      terms = UnionMachine.Terms(most: most, pace: pace, replaces: true, retry: request.retry)
    }
  }

  /// The response that is read, the request that will take its place, and the last id of both.
  private struct Place {
    var current: UnionResponse
    var next: UnionResponse?
    let position: LastEventID
  }

  private var definition: Definition
  private var machine: UnionMachine
  private var places: [Int: Place] = [:]
  private var timer: TimerID?

  /// Begins with the first member.
  public init(_ definition: Definition, in context: SourceContext) {
    self.definition = definition
    machine = UnionMachine(definition.terms, seed: UInt64.random(in: 0...UInt64.max))
    super.init(in: context)
  }

  /// Continues with another definition. Thread-safe.
  public func change(to definition: Definition) {
    context.thread.loop.execute { [self] in
      guard definition != self.definition else { return }
      let former = self.definition
      self.definition = definition
      machine.change(to: definition.terms)
      var (one, other) = (former, definition)
      (one.terms, other.terms) = (definition.terms, definition.terms)
      // Each request takes the place of the one before.
      if one != other { machine.restart() }
      changed()
    }
  }

  // MARK: ValueUnion

  override func added(_ slot: Slot) { machine.want(slot.value, at: now) }
  override func removed(_ slot: Slot) { machine.leave(slot.value, at: now) }
  override func refresh(completed: @escaping @Sendable (RefreshRefusal?) -> Void) { completed(.running) }

  override func advance() {
    if let timer { context.thread.loop.cancel(timer) }
    timer = nil
    while true {
      switch machine.next(at: now) {
      case .open, .unsubscribe: break
      case .close(let place):
        let former = places.removeValue(forKey: place)
        former?.current.close()
        former?.next?.close()
      case .subscribe(let values, let place): ask(for: values, on: place)
      case .wait(let due):
        // The timer retains the union, so that it finishes its work after its last stream has left.
        timer = context.thread.loop.schedule(after: due - now) { [self] in
          timer = nil
          advance()
        }
        return
      case .rest: return
      }
    }
  }

  private func ask(for values: [String], on place: Int) {
    let position = places[place]?.position ?? LastEventID()
    let response = UnionResponse(place, of: self, definition, values, after: position)
    if places[place] == nil {
      places[place] = Place(current: response, position: position)
    } else {
      places[place]?.next?.close()
      places[place]?.next = response
    }
    response.open()
  }

  // MARK: For its responses

  fileprivate func pass() { for slot in deliver() { slot.isFound = false } }

  fileprivate func take(_ progress: SourceProgress, of response: UnionResponse, on place: Int) {
    self.progress(progress)
    guard case .answered(let status, _) = progress, status == 200 || status == 203, let present = places[place],
      present.next === response
    else { return }
    present.current.close()
    // The response before may have connected again meanwhile.
    present.position.reader = nil
    places[place] = Place(current: response, position: present.position)
    response.proceed()
  }

  fileprivate func take(_ report: SourceReport, of response: UnionResponse, on place: Int) {
    // The response before is read on, until the next attempt.
    switch report {
    case .failing, .halted, .waiting:
      if let present = places[place], present.next === response {
        present.position.reader = nil
        present.current.proceed()
      }
    case .recovered, .limited, .lost, .complete, .said, .missed, .current: break
    }
    self.report(report)
  }
}

/// One request of a union. Confined to the source thread.
private final class UnionResponse: @unchecked Sendable {
  private let place: Int
  private weak var union: HTTPStreamUnion?
  private let context: SourceContext
  private let source: HTTPStream
  private let parts: UnionParts
  private var link: UnionLink?

  init(
    _ place: Int, of union: HTTPStreamUnion, _ definition: HTTPStreamUnion.Definition, _ values: [String],
    after position: LastEventID
  ) {
    (self.place, self.union) = (place, union)
    source = HTTPStream(
      definition.places.request(definition.request, values), format: definition.format, form: definition.form,
      lineEnd: definition.lineEnd, idleTimeout: definition.idleTimeout, position: position)
    var inner = union.context
    inner.refresh = SourceRefresh()
    inner.name = union.context.name.map { place == 0 ? $0 : "\($0) \(place)" }
    context = inner
    parts = UnionParts(definition.programs, in: inner)
  }

  func open() {
    var inner = context
    inner.report = { [weak self] in if let self { union?.take($0, of: self, on: place) } }
    inner.progress = { [weak self] in if let self { union?.take($0, of: self, on: place) } }
    let link = UnionLink { [weak self] in self?.take($0) }
    self.link = link
    Source(source, in: inner).receive(subscriber: link)
    link.request(.max(1))
  }

  func close() {
    link?.cancel()
    parts.end()
    (link, union) = (nil, nil)
  }

  /// Reads again, if it may.
  func proceed() { link?.request(.none) }

  private func take(_ events: EventBatch) {
    parts.separate(events, for: union) { [weak self] failure in
      guard let self else { return }
      if let failure { union?.take(.lost(failure.sentence, count: events.count), of: self, on: place) }
      union?.pass()
      link?.request(.max(1))
    }
  }
}
