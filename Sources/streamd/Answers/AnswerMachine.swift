import Reactive

/// The requests of clients whose answers are streams: which of them is made, and what has become of each.
///
/// A pure value: names in, actions out. It knows neither bodies nor files. A request is sent only after it is stored that it is,
/// so that a process after a kill knows each that the upstream may have.
struct AnswerMachine {
  /// What has become of a request.
  enum Phase: Equatable, Sendable {
    /// Its turn has not come. Can become: ready.
    case waiting
    /// Its turn has come, and it may wait for its host. Can become: marking, closing.
    case ready
    /// It is to be sent now, and it is being stored that the upstream may have it. Can become: answering, closing.
    case marking
    /// The upstream may have it. Can become: closing.
    case answering
    /// The answer has come, or its failure, but the stream does not have all of it yet. Can become: ended.
    case closing(failure: String?)
    /// The stream has all that there will be.
    case ended(failure: String?)
  }

  /// The action that the caller must perform.
  enum Action: Equatable {
    /// Begin the request, up to its turn at its host.
    case begin(String)
    /// Store that the upstream may have the request, then call `marked`.
    case mark(String)
    /// Send the request.
    case send(String)
    /// The stream of the request ends without the upstream.
    case end(String)
    /// Store what has become of it.
    case store(String)
  }

  private struct Request {
    var phase: Phase
    let template: String
    /// Its place among those that wait.
    let number: UInt64
    /// Whether its source waits for its turn.
    var isInLine = false
    /// Whether its answer waits for a reader.
    var waitsForReader = false

    /// Whether it counts for the limit. An answer that waits for a reader, perhaps for ever, keeps no other one waiting.
    var hasPlace: Bool {
      switch phase {
      case .ready, .marking, .answering: !waitsForReader
      case .waiting, .closing, .ended: false
      }
    }
  }

  private struct Line {
    /// The most places at a time. Readers that come back may make it more.
    var limit: Int
    var places = 0
    /// Requests in line, by their numbers, with the lowest one last.
    var waiting: [(number: UInt64, name: String)] = []
  }

  private var requests: [String: Request] = [:]
  private var lines: [String: Line] = [:]

  /// What has become of a request; nil: there is none.
  func phase(of name: String) -> Phase? { requests[name]?.phase }

  func template(of name: String) -> String? { requests[name]?.template }

  /// The most requests of a template that are answered at a time.
  mutating func setLimit(_ limit: Int, of template: String) -> [Action] {
    lines[template, default: Line(limit: limit)].limit = limit
    return next(in: template)
  }

  /// A request is there: a new one that waits, or one of a former process.
  /// - Parameter number: higher than that of all before it.
  mutating func add(_ name: String, of template: String, number: UInt64, _ phase: Phase = .waiting) {
    precondition(requests[name] == nil, "\(name) is there already")
    requests[name] = Request(phase: phase, template: template, number: number)
  }

  /// The source of a request asks for its turn.
  mutating func ask(_ name: String) -> [Action] {
    guard let request = requests[name] else { return [.end(name)] }
    switch request.phase {
    case .waiting:
      guard !request.isInLine else { return [] }
      requests[name]?.isInLine = true
      let waiting = lines[request.template]?.waiting ?? []
      let index = waiting.lastIndex { $0.number > request.number }.map { $0 + 1 } ?? 0
      lines[request.template, default: Line(limit: 1)].waiting.insert((request.number, name), at: index)
      return next(in: request.template)
    case .ready: return [.begin(name)]
    case .marking, .answering:
      // Another source has sent the request: its answer cannot continue in this one.
      return close(name, failure: Self.cutOff) + [.end(name)]
    case .closing, .ended: return [.end(name)]
    }
  }

  /// The request has its turn at its host.
  mutating func send(_ name: String) -> [Action] {
    guard requests[name]?.phase == .ready else { return [.end(name)] }
    requests[name]?.phase = .marking
    return [.mark(name)]
  }

  private static let cutOff = "cut off by a change of the configuration"

  /// It is stored that the upstream may have the request, or cannot be stored.
  mutating func marked(_ name: String, failure: String?) -> [Action] {
    guard requests[name]?.phase == .marking else { return [] }
    if let failure { return close(name, failure: failure) + [.end(name)] }
    requests[name]?.phase = .answering
    return [.send(name)]
  }

  /// The answer has come, or the request has failed before it was sent.
  /// - Parameter failure: one sentence; nil: it is complete.
  mutating func answered(_ name: String, failure: String?) -> [Action] {
    switch requests[name]?.phase {
    case .ready, .answering: return close(name, failure: failure)
    case .waiting, .marking, .closing, .ended, nil: return []
    }
  }

  /// The answer has begun or ended to wait for a reader.
  mutating func note(_ name: String, waits: Bool) -> [Action] {
    guard let request = requests[name], request.waitsForReader != waits else { return [] }
    return change(name, from: request) { $0.waitsForReader = waits }
  }

  /// The stream has all that there will be.
  mutating func ended(_ name: String) -> [Action] {
    guard case .closing(let failure)? = requests[name]?.phase else { return [] }
    requests[name]?.phase = .ended(failure: failure)
    return [.store(name)]
  }

  /// The stream is gone, and the request with it.
  mutating func remove(_ name: String) -> [Action] {
    guard let request = requests.removeValue(forKey: name) else { return [] }
    if request.phase == .waiting { lines[request.template]?.waiting.removeAll { $0.name == name } }
    guard request.hasPlace else { return [] }
    lines[request.template]?.places -= 1
    return next(in: request.template)
  }

  private mutating func close(_ name: String, failure: String?) -> [Action] {
    guard let request = requests[name] else { return [] }
    return change(name, from: request) { $0.phase = .closing(failure: failure) }
  }

  private mutating func change(_ name: String, from former: Request, _ body: (inout Request) -> Void) -> [Action] {
    var request = former
    body(&request)
    requests[name] = request
    lines[request.template]?.places += (request.hasPlace ? 1 : 0) - (former.hasPlace ? 1 : 0)
    return next(in: request.template)
  }

  private mutating func next(in template: String) -> [Action] {
    var actions: [Action] = []
    while let line = lines[template], line.places < line.limit, let (_, name) = line.waiting.last {
      lines[template]?.waiting.removeLast()
      requests[name]?.phase = .ready
      if requests[name]?.hasPlace == true { lines[template]?.places += 1 }
      actions.append(.begin(name))
    }
    return actions
  }
}
