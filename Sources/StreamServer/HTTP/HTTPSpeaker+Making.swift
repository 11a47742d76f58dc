import HTTP
import StreamProtocol

// Requests for streams that a template makes.

extension HTTPSpeaker {
  /// Has a stream made for a request for events, which begins again then. A request for the newest event makes none, unless
  /// it waits for one, and neither does one that ends with the events that there are.
  func make(
    _ name: String, of names: [String], for request: HTTPRequest, _ query: StreamQuery, _ head: RequestHead
  ) throws(Rejection) {
    var isForEvents = query.wait != nil
    if !isForEvents, query.follows { isForEvents = try isStreaming(names, query, head) }
    try make(name, for: .reading, isMade: isForEvents && head.method == .get, request, head)
  }

  private func isStreaming(_ names: [String], _ query: StreamQuery, _ head: RequestHead) throws(Rejection) -> Bool {
    guard query.format == nil else { return true }  // a WebSocket has one, too
    let types = names.map { name in
      worker.streams[name]?.configuration.type ?? worker.templates.match(name)?.template.terms.type ?? ""
    }
    return try Self.format(types, head["Accept"]) != nil
  }

  /// Has a stream made for values, which are read then.
  func make(_ name: String, forValuesOf request: HTTPRequest, _ head: RequestHead) throws(Rejection) {
    try make(name, for: .writing, isMade: true, request, head)
  }

  private func make(
    _ name: String, for purpose: NeededStream.Purpose, isMade: Bool, _ request: HTTPRequest, _ head: RequestHead
  ) throws(Rejection) {
    let needed = try needed(name, for: purpose, isMade: isMade)
    madeNames.insert(name)
    if let hold = connection.makeAtOnce(needed) {
      madeHolds.append(hold)
      return begin(head)
    }
    AwaitedStream.begin(needed, for: request.withoutBody(of: head), head, on: self) { [self] _ in
      if let use = worker.streams[name]?.use { madeHolds.append(StreamUse.Hold(use)) }
      begin(head)
    }
  }

  /// Begins a request again, for which a stream was made.
  private func begin(_ head: RequestHead) {
    let count = madeNames.count
    respond(to: head)
    // No other one is being made.
    if madeNames.count == count { madeHolds = [] }
  }

  /// PUT: makes a stream, unless it exists.
  func put(_ name: String, _ request: HTTPRequest, _ head: RequestHead) throws(Rejection) {
    try refuseParameters(of: head)
    let needed = try needed(name, for: .any)
    if connection.makeAtOnce(needed) != nil {
      return respond(.created, to: request, "text/plain; charset=utf-8", [])
    }
    AwaitedStream.begin(needed, for: request, head, on: self) { [self] isNew in
      respond(isNew ? .created : .ok, to: request, "text/plain; charset=utf-8", [])
    }
  }

  /// DELETE: the requests of the stream's clients end.
  func delete(_ name: String, _ request: HTTPRequest, _ head: RequestHead) throws(Rejection) {
    try refuseParameters(of: head)
    AwaitedStream.delete(name, for: request, head, on: self)
  }

  /// PUT or DELETE of a stream that no template makes.
  func refuseChange(of name: String, _ request: HTTPRequest, _ methods: String) throws(Rejection) {
    _ = try visibleStream(name, adding: 0)
    let rejection = Rejection(
      .methodNotAllowed, "\"\(name)\" is configured: only streams of templates are made and deleted")
    countRefusal(rejection)
    respond(rejection, to: request) { $0.add("Allow", methods) }
  }

  private func needed(
    _ name: String, for purpose: NeededStream.Purpose, isMade: Bool = true
  ) throws(Rejection) -> NeededStream {
    do throws(Connection.Refusal) {
      guard let needed = try connection.neededStream(name, for: purpose, isMade: isMade) else {
        throw Connection.Refusal(nil, .noStream(name))
      }
      return needed
    } catch {
      throw rejection(error)
    }
  }
}
