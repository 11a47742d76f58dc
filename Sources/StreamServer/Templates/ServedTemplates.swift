import Reactive
import StreamRuntime
import Synchronization

/// One template of a server, with its streams. Thread-safe.
final class ServedTemplate: Sendable {
  private struct State {
    var terms: StreamTemplate
    var streams: MadeStreams
  }

  private let state: Locked<State>
  let madeCount = Atomic<UInt64>(0)
  let forgottenCount = Atomic<UInt64>(0)
  let refusedCount = Atomic<UInt64>(0)
  let unroutedCount = Atomic<UInt64>(0)
  private let nextWarning = Atomic<UInt64>(0)

  /// The time between two warnings that clients get no streams, in nanoseconds.
  private static let warningPause: UInt64 = 60_000_000_000

  init(_ terms: StreamTemplate) {
    state = Locked(
      State(terms: terms, streams: MadeStreams(limit: terms.limit, forgetTime: Self.nanoseconds(terms.forgetTime))))
  }

  private static func nanoseconds(_ time: Duration?) -> UInt64? { time.map { UInt64(max(0, $0.wholeNanoseconds)) } }

  var terms: StreamTemplate { state.withLock { $0.terms } }
  var name: NameTemplate { terms.name }
  var count: Int { state.withLock { $0.streams.count } }
  var streamNames: [String] { state.withLock { $0.streams.names } }

  func change(to terms: StreamTemplate) {
    state.withLock { state in
      state.terms = terms
      (state.streams.limit, state.streams.forgetTime) = (terms.limit, Self.nanoseconds(terms.forgetTime))
    }
  }

  func has(_ name: String) -> Bool { state.withLock { $0.streams.contains(name) } }
  func owner(of name: String) -> ClientUser? { state.withLock { $0.streams.owner(of: name) } }

  func withStreams<R>(_ body: (inout MadeStreams) -> R) -> R { state.withLock { body(&$0.streams) } }

  /// Whether it is to be reported now that a client gets no stream.
  func warns(at now: UInt64) -> Bool {
    guard now >= nextWarning.load(ordering: .relaxed) else { return false }
    nextWarning.store(now + Self.warningPause, ordering: .relaxed)
    return true
  }
}

/// The templates of a server. Thread-safe.
final class ServedTemplates: Sendable {
  private struct State {
    var all: [ServedTemplate] = []
    var names = NameTemplates([])
  }

  /// A name that a template fits, and that no stream need have.
  struct Match: Sendable {
    let template: ServedTemplate
    let values: NameValues
  }

  /// Makes a stream: see `StreamServer.make`.
  typealias Make =
    @Sendable (
      _ name: String, _ user: ClientUser, _ admits: @escaping @Sendable (StreamTemplate, NameValues) -> RequestFailure?,
      _ completed: @escaping @Sendable (_ outcome: MakingOutcome) -> Void
    ) -> Void
  /// Makes a stream at once: see `StreamServer.makeAtOnce`.
  typealias MakeAtOnce =
    @Sendable (_ name: String, _ user: ClientUser, _ admits: (StreamTemplate, NameValues) -> RequestFailure?) ->
    StreamUse?
  /// Makes the stream of an answer: see `StreamServer.ask`.
  typealias Ask =
    @Sendable (
      _ name: String, _ request: StreamRequest, _ user: ClientUser,
      _ admits: @escaping @Sendable (StreamTemplate, NameValues) -> RequestFailure?,
      _ completed: @escaping @Sendable (_ outcome: MakingOutcome) -> Void
    ) -> Void
  /// Deletes a stream: see `StreamServer.delete`.
  typealias Delete =
    @Sendable (
      _ name: String, _ user: ClientUser,
      _ admits: @escaping @Sendable (StreamTemplate, NameValues, _ isOwner: Bool) -> RequestFailure?,
      _ completed: @escaping @Sendable (RequestFailure?) -> Void
    ) -> Void

  private let state = Locked(State())
  private let hasNone = Atomic(true)
  private let functions = Locked<Functions?>(nil)

  /// In a tuple, each access through the lock would wrap the functions once more.
  private struct Functions {
    let make: Make
    let makeAtOnce: MakeAtOnce
    let ask: Ask
    let delete: Delete
  }

  /// Where the ends of uses of their streams are listed.
  let ends = StreamUse.Ends()
  var isEmpty: Bool { hasNone.load(ordering: .relaxed) }
  var all: [ServedTemplate] { state.withLock { $0.all } }

  /// The template that fits a name; nil: none does.
  func match(_ name: String) -> Match? {
    guard !isEmpty else { return nil }
    return state.withLock { state in
      state.names.match(name).map { Match(template: state.all[$0.index], values: $0.values) }
    }
  }

  /// The rule of a template that a value in a name breaks; nil: the name does not have the form of any.
  func rule(brokenBy name: String) -> (template: ServedTemplate, sentence: String)? {
    guard !isEmpty else { return nil }
    return state.withLock { state in
      state.names.rule(brokenBy: name).map { (state.all[$0.index], $0.sentence) }
    }
  }

  /// Notes the uses that have ended.
  /// - Returns: the answers among their streams.
  func noteEnds(_ table: StreamTable) -> [ServedStream] {
    var answers: [ServedStream] = []
    for name in ends.take() {
      guard let stream = table[name], let use = stream.use else { continue }
      use.wasTaken()
      match(name)?.template.withStreams { $0.release(name, at: use.time) }
      if stream.configuration.isAnswer { answers.append(stream) }
    }
    return answers
  }

  /// Sets the functions of the server.
  func setFunctions(
    make: @escaping Make, makeAtOnce: @escaping MakeAtOnce, ask: @escaping Ask, delete: @escaping Delete
  ) {
    functions.withLock { $0 = Functions(make: make, makeAtOnce: makeAtOnce, ask: ask, delete: delete) }
  }

  func ask(
    _ name: String, _ request: StreamRequest, for user: ClientUser,
    admits: @escaping @Sendable (StreamTemplate, NameValues) -> RequestFailure?,
    completed: @escaping @Sendable (_ outcome: MakingOutcome) -> Void
  ) {
    functions.withLock { $0 }?.ask(name, request, user, admits, completed)
  }

  func makeAtOnce(
    _ name: String, for user: ClientUser, admits: (StreamTemplate, NameValues) -> RequestFailure?
  ) -> StreamUse? {
    functions.withLock { $0 }?.makeAtOnce(name, user, admits)
  }

  func make(
    _ name: String, for user: ClientUser, admits: @escaping @Sendable (StreamTemplate, NameValues) -> RequestFailure?,
    completed: @escaping @Sendable (_ outcome: MakingOutcome) -> Void
  ) {
    functions.withLock { $0 }?.make(name, user, admits, completed)
  }

  func delete(
    _ name: String, for user: ClientUser,
    admits: @escaping @Sendable (StreamTemplate, NameValues, _ isOwner: Bool) -> RequestFailure?,
    completed: @escaping @Sendable (RequestFailure?) -> Void
  ) {
    functions.withLock { $0 }?.delete(name, user, admits, completed)
  }

  func replace(with templates: [ServedTemplate]) {
    state.withLock { $0 = State(all: templates, names: NameTemplates(templates.map(\.name))) }
    hasNone.store(templates.isEmpty, ordering: .relaxed)
  }
}
