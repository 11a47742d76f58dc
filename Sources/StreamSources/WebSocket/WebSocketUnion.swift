import Events
import Reactive
import StreamRuntime

/// WebSockets for the values of many streams: as few connections as their number allows.
public final class WebSocketUnion: ValueUnion, @unchecked Sendable {
  /// The connections, what is said on them, and how messages are read.
  public struct Definition: Sendable, Equatable {
    var connection: WebSocketConfiguration
    var terms: UnionMachine.Terms
    /// nil: the upstream sends what it has, whatever is wanted.
    var subscribe: UnionText?
    var unsubscribe: UnionText?
    var programs: UnionParts.Programs

    /// - Parameters:
    ///   - most: values of a connection; at least 1.
    ///   - pace: messages of a connection in a second; at least 1.
    ///   - subscribe: has the place of the values. `unsubscribe` is there as well, then, and has it in the same form.
    package init(
      _ connection: WebSocketConfiguration, most: Int, pace: Int, expectEvery: Duration?, subscribe: UnionText?,
      unsubscribe: UnionText?, programs: UnionParts.Programs
    ) {
      precondition(most > 0 && pace > 0, "\(most) values, \(pace) messages: expected at least 1")
      (self.connection, self.subscribe, self.unsubscribe) = (connection, subscribe, unsubscribe)
      terms = UnionMachine.Terms(
        most: most, pace: pace, gathers: subscribe?.extent == .many, speaks: subscribe != nil,
        retry: connection.request.retry, expectEvery: expectEvery)
      self.programs = programs
    }
  }

  private var definition: Definition
  private var machine: UnionMachine
  /// Also those that are closed: a connection continues the pauses of the one before.
  private var sockets: [Int: UnionSocket] = [:]
  private var timer: TimerID?

  /// Begins with the first member.
  public init(_ definition: Definition, in context: SourceContext) {
    self.definition = definition
    machine = UnionMachine(definition.terms, seed: UInt64.random(in: 0...UInt64.max))
    super.init(in: context)
  }

  /// Continues with another definition. Thread-safe.
  ///
  /// Connections stay if they are as before and what was said on them would be said again.
  public func change(to definition: Definition) {
    context.thread.loop.execute { [self] in
      let former = self.definition
      guard definition != former else { return }
      self.definition = definition
      machine.change(to: definition.terms)
      if definition.connection != former.connection || definition.subscribe != former.subscribe {
        for socket in sockets.values { socket.end() }
        sockets = [:]
        machine.restart()
      } else if definition.programs != former.programs {
        for socket in sockets.values { socket.setPrograms(definition.programs) }
      }
      changed()
    }
  }

  // MARK: ValueUnion

  override func added(_ slot: Slot) {
    machine.want(slot.value, at: now)
    if let place = machine.place(of: slot.value), let failure = sockets[place]?.failure { slot.share(failure) }
  }

  override func removed(_ slot: Slot) { machine.leave(slot.value, at: now) }

  override func refresh(completed: @escaping @Sendable (RefreshRefusal?) -> Void) { completed(.running) }

  override func refused(_ slot: Slot) {
    guard let refusal = machine.refused(slot.value, at: now) else { return }
    slot.isFailing = true
    slot.report(
      .failing("the upstream refuses the value", attempt: refusal.count, retryIn: refusal.retryIn))
    changed()
  }

  override func advance() {
    if let timer { context.thread.loop.cancel(timer) }
    timer = nil
    while true {
      switch machine.next(at: now) {
      case .open(let place):
        let socket = sockets[place] ?? UnionSocket(place, of: self, definition.connection, definition.programs)
        sockets[place] = socket
        socket.open()
      case .close(let place): sockets[place]?.close()
      case .subscribe(let values, let place): sockets[place]?.say(definition.subscribe?.text(values))
      case .unsubscribe(let values, let place): sockets[place]?.say(definition.unsubscribe?.text(values))
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

  // MARK: For its sockets

  fileprivate func opened(_ place: Int, after count: Int) {
    machine.opened(place, at: now, sent: count)
    changed()
  }

  fileprivate func ended(_ place: Int) { machine.ended(place) }

  /// Gives the streams what was routed.
  fileprivate func pass() {
    let now = now
    for slot in deliver() {
      slot.isFound = false
      guard machine.heard(slot.value, at: now) || slot.isFailing else { continue }
      slot.isFailing = false
      slot.report(.recovered(afterFailures: 1))
    }
  }

  /// Reports on one connection: once for the union, and in the status of its streams.
  fileprivate func report(_ report: SourceReport, of place: Int) {
    context.report(report)
    switch report {
    case .failing, .halted, .waiting, .recovered: break
    case .limited, .lost, .complete, .said, .missed, .current: return
    }
    share(report, of: machine.values(of: place).lazy.compactMap { self.slots[$0] })
  }
}

/// One connection of a union. Confined to the source thread.
private final class UnionSocket: WebSocketCaller, @unchecked Sendable {
  private let place: Int
  private weak var union: WebSocketUnion?
  private let configuration: WebSocketConfiguration
  private let context: SourceContext
  private var programs: UnionParts.Programs
  private var parts: UnionParts
  /// One for all subscriptions; nil: not made yet.
  private var source: Source<WebSocketSource>?
  private var link: UnionLink?
  private var say: ((String) -> Void)?
  /// Its state, if it does not work.
  private(set) var failure: SourceReport?

  init(
    _ place: Int, of union: WebSocketUnion, _ configuration: WebSocketConfiguration, _ programs: UnionParts.Programs
  ) {
    (self.place, self.union, self.configuration, self.programs) = (place, union, configuration, programs)
    var inner = union.context
    inner.refresh = SourceRefresh()
    inner.name = union.context.name.map { place == 0 ? $0 : "\($0) \(place)" }
    parts = UnionParts(programs, in: inner)
    inner.progress = { [weak union] in union?.progress($0) }
    context = inner
  }

  func open() {
    let source = source ?? makeSource()
    self.source = source
    let link = UnionLink { [weak self] in self?.take($0) }
    self.link = link
    source.receive(subscriber: link)
    link.request(.max(1))
  }

  private func makeSource() -> Source<WebSocketSource> {
    var inner = context
    inner.report = { [weak self] in self?.take($0) }
    return Source(WebSocketSource(configuration, caller: self), in: inner)
  }

  /// It may be opened again.
  func close() {
    link?.cancel()
    (link, say) = (nil, nil)
    setPrograms(programs)
  }

  func end() {
    union = nil
    close()
  }

  func say(_ text: String?) { if let text { say?(text) } }

  /// Reads later messages with other programs.
  func setPrograms(_ programs: UnionParts.Programs) {
    self.programs = programs
    let isBusy = parts.isBusy
    parts.end()
    parts = UnionParts(programs, in: context)
    if isBusy { link?.request(.max(1)) }
  }

  private func take(_ report: SourceReport) {
    switch report {
    case .failing, .halted, .waiting: failure = report
    case .recovered: failure = nil
    case .limited, .lost, .complete, .said, .missed, .current: break
    }
    union?.report(report, of: place)
  }

  private func take(_ messages: EventBatch) {
    parts.separate(messages, for: union) { [weak self] failure in
      guard let self else { return }
      if let failure { union?.report(.lost(failure.sentence, count: messages.count), of: place) }
      union?.pass()
      // The next messages, once these are taken apart.
      link?.request(.max(1))
    }
  }

  // MARK: WebSocketCaller

  func webSocketOpened(after count: Int, say: @escaping (String) -> Void) {
    self.say = say
    union?.opened(place, after: count)
  }

  func webSocketEnded() {
    say = nil
    union?.ended(place)
  }
}
