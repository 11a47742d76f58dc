import StreamProtocol
import StreamRuntime

// Requests for streams that do not exist yet, and that a template can make.

/// A stream that a request needs, and that a template can make.
struct NeededStream {
  let name: String
  let purpose: Purpose
  /// Whether the request makes it. If not, the request fails in the way that the client's rights demand.
  let isMade: Bool

  /// What the client does with a stream.
  enum Purpose {
    case reading
    case writing
    /// Publishing if clients publish to it, else reading.
    case any
    /// A request of the client, whose answer the stream is.
    case asking
  }
}

extension Connection {
  /// The stream that a request needs, if a template fits its name; nil: none does.
  ///
  /// - Parameter isMade: whether the request makes the stream.
  /// - Throws: if the client may not have the stream, as if it existed; else if the request does not make it.
  func neededStream(
    _ name: String, for purpose: NeededStream.Purpose, isMade: Bool = true
  ) throws(Refusal) -> NeededStream? {
    guard let match = worker.templates.match(name) else { return nil }
    let terms = match.template.terms
    if !terms.accessWaits {
      let failure = TemplateClient(self).refusal(of: name, for: purpose, terms, match.values)
      if let failure = failure ?? (isMade ? nil : .notMade(name)) { throw Refusal(name, failure) }
    }
    return NeededStream(name: name, purpose: purpose, isMade: isMade)
  }

  /// Whether a template makes the stream with the name, or has made it.
  func isOfTemplate(_ name: String) -> Bool {
    if let stream = worker.streams[name], stream.configuration.template == nil { return false }
    return worker.templates.match(name) != nil
  }

  /// Makes a stream now, if that needs no wait.
  /// - Returns: what keeps the stream until its request has begun; nil: `make` does the same, or says why not.
  func makeAtOnce(_ needed: NeededStream) -> StreamUse.Hold? {
    guard needed.isMade else { return nil }
    let client = TemplateClient(self)
    let use = worker.templates.makeAtOnce(needed.name, for: share.account.user) { terms, values in
      client.refusal(of: needed.name, for: needed.purpose, terms, values)
    }
    return use.map { StreamUse.Hold(taking: $0) }
  }

  /// Has a stream made, unless it exists.
  /// - Parameter completed: called on the loop if the connection is open then; nil: the stream exists.
  func make(_ needed: NeededStream, completed: @escaping (_ failure: RequestFailure?, _ isNew: Bool) -> Void) {
    worker.loop.assertOnLoop()
    let (client, loop) = (TemplateClient(self), worker.loop)
    let completion = OnLoop(self, completed)
    worker.templates.make(needed.name, for: share.account.user) { terms, values in
      client.refusal(of: needed.name, for: needed.purpose, terms, values)
        ?? (needed.isMade ? nil : .notMade(needed.name))
    } completed: { outcome in
      loop.execute {
        completion.complete(outcome.failure, outcome.isNew)
        outcome.use?.release()
      }
    }
  }

  /// Carries a completion to the loop, the only place where it is used.
  fileprivate final class OnLoop: @unchecked Sendable {
    private let connection: Connection
    private let completed: (RequestFailure?, Bool) -> Void
    init(_ connection: Connection, _ completed: @escaping (RequestFailure?, Bool) -> Void) {
      (self.connection, self.completed) = (connection, completed)
    }
    func complete(_ failure: RequestFailure?, _ isNew: Bool) {
      if connection.phase == .open { completed(failure, isNew) }
    }
  }

  /// Deletes a stream of a template, if the client may: who made it may, and who may publish to it.
  /// - Parameter completed: called on the loop if the connection is open then; nil: the stream is gone.
  func delete(_ name: String, completed: @escaping (RequestFailure?) -> Void) {
    worker.loop.assertOnLoop()
    let (client, loop) = (TemplateClient(self), worker.loop)
    let completion = OnLoop(self) { failure, _ in completed(failure) }
    worker.templates.delete(name, for: share.account.user) { terms, values, isOwner in
      if isOwner || client.isOwnerOfServer { return nil }
      return terms.takesRequests
        ? client.notOwner(of: name) : client.refusal(of: name, for: .writing, terms, values, isDeletion: true)
    } completed: { failure in
      loop.execute { completion.complete(failure, false) }
    }
  }
}

extension Connection {
  /// Has the stream of an answer made.
  ///
  /// - Parameter completed: called on the loop if the connection is open then; nil: the stream is the answer to the request. It
  ///   is not forgotten before this returns.
  func ask(
    _ name: String, _ request: StreamRequest, completed: @escaping (_ failure: RequestFailure?, _ isNew: Bool) -> Void
  ) {
    worker.loop.assertOnLoop()
    let (client, loop) = (TemplateClient(self), worker.loop)
    let completion = OnLoop(self, completed)
    worker.templates.ask(name, request, for: share.account.user) { terms, values in
      client.refusal(of: name, for: .asking, terms, values)
    } completed: { outcome in
      loop.execute {
        completion.complete(outcome.failure, outcome.isNew)
        outcome.use?.release()
      }
    }
  }

  /// The name of the stream of an answer, which a request names as it is, or without the value of its last parameter: that is
  /// made then. Nil: no template takes such a request.
  /// - Parameter isPath: whether the request names a path that may go on.
  func nameOfAnswer(_ text: String, isPath: Bool = false) -> String? {
    func fits(_ name: String) -> Bool { worker.templates.match(name)?.template.terms.takesRequests == true }
    guard !worker.templates.isEmpty, text.utf8.count <= 255 else { return nil }
    if !isPath, fits(text) { return text }
    let id = Self.newID()
    let whole = text.last == "/" ? String(text.dropLast()) : text
    guard isPath else { return fits("\(whole)/\(id)") ? "\(whole)/\(id)" : nil }
    let ends = whole.indices.filter { whole[$0] == "/" } + [whole.endIndex]
    return ends.lazy.map { "\(whole[..<$0])/\(id)" }.first(where: fits)
  }

  /// 128 random bits in base32 (RFC 4648), in small letters.
  private static func newID() -> String {
    var bits = UInt128.random(in: 0...UInt128.max)
    var id: [UInt8] = []
    for _ in 0..<26 {
      id.append(Array("abcdefghijklmnopqrstuvwxyz234567".utf8)[Int(bits & 31)])
      bits >>= 5
    }
    return String(decoding: id, as: UTF8.self)
  }
}

/// A client, as far as its access to streams of templates depends on it. It can be asked on any thread.
struct TemplateClient: Sendable {
  let identity: ClientIdentity
  private let groups: [UInt32]

  init(_ connection: Connection) {
    identity = connection.identity
    groups = identity.credentials == nil ? [] : connection.worker.groups(of: connection)
  }

  /// Whether the client is root or the server's own user.
  var isOwnerOfServer: Bool { AccessRules.owner.admit(identity.credentials, groups: { [] }) }

  func notOwner(of name: String) -> RequestFailure {
    .init(.mayNotWrite, "\(identity.user) may not end \"\(name)\": who has made it may, and root")
  }

  /// Why the client may not have a stream; nil: it may.
  func refusal(
    of name: String, for purpose: NeededStream.Purpose, _ terms: StreamTemplate, _ values: NameValues,
    isDeletion: Bool = false
  ) -> RequestFailure? {
    let (read, write) = terms.access(values)
    func admits(_ rules: AccessRules) -> Bool { rules.admit(identity.credentials, token: identity.token) { groups } }
    guard !terms.takesRequests || purpose == .asking else {
      return admits(read) || admits(write) ? .notAsked(name) : .mayNotRead(name, identity)
    }
    switch purpose {
    case .asking:
      guard admits(write) else { return .mayNotWrite(name, write, identity) }
      // Nothing identifies it as the owner of the answer, and it could not read it.
      let isNobody = identity.credentials == nil && identity.token == nil
      return isNobody && !admits(read) ? .mayNotRead(name, identity) : nil
    case .reading: return admits(read) ? nil : .mayNotRead(name, identity)
    case .writing:
      guard terms.takesValues || isDeletion else {
        return .init(.takesNoValues, "with the source \(terms.source), not publish, \"\(name)\" does not accept values")
      }
      return admits(write) ? nil : .mayNotWrite(name, write, identity)
    case .any:
      return terms.takesValues
        ? admits(write) ? nil : .mayNotWrite(name, write, identity)
        : admits(read) ? nil : .mayNotRead(name, identity)
    }
  }
}
