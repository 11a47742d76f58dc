import Reactive
import StreamProtocol
import StreamRuntime
import Synchronization

// Requests of clients whose answers are streams.

extension StreamServer {
  /// Makes the stream of an answer for a client, which has the right to; once for each request. From any thread.
  /// - Parameter completed: called once, on any thread.
  func ask(
    _ name: String, _ request: StreamRequest, for user: ClientUser,
    admits: @escaping @Sendable (StreamTemplate, NameValues) -> RequestFailure?,
    completed: @escaping @Sendable (_ outcome: MakingOutcome) -> Void
  ) {
    perform(for: user) { [self] isEnding in
      guard !isEnding else { return completed(.init(failure: .restarting)) }
      guard let match = templates.match(name), match.template.terms.takesRequests, let maker = presentMaker else {
        return completed(.init(failure: .noStream(name)))
      }
      if let failure = admits(match.template.terms, match.values) { return completed(.init(failure: failure)) }
      do throws(RequestFailure) {
        let isNew = try begin(request, name, match, for: user, maker)
        let use = streams[name]?.use
        use?.hold()
        completed(.init(isNew: isNew, use: use))
      } catch {
        completed(.init(failure: error))
      }
    }
  }

  /// - Returns: false if the stream is the answer to this request already.
  private func begin(
    _ request: StreamRequest, _ name: String, _ match: ServedTemplates.Match, for user: ClientUser,
    _ maker: any StreamMaker
  ) throws(RequestFailure) -> Bool {
    if let stream = streams[name] {
      guard match.template.has(name), match.template.owner(of: name) == user else { throw .otherRequest(name) }
      switch maker.relation(of: request, to: name) {
      case .other: throw .otherRequest(name)
      case .same: return false
      case .again: try delete(stream, of: match.template)
      }
    }
    do throws(StreamFailure) {
      try maker.store(request, for: name, of: match.template.name, by: StreamOwner(user: user))
    } catch {
      throw .init(.notKept, error.message)
    }
    if let failure = make(name, match, for: user) {
      maker.forget([name])
      throw failure
    }
    return true
  }
}

/// Notes when the stream of an answer ends, and when it begins or ends to wait for a reader. A stream that waits is unused.
final class AnswerWatcher: LogReader {
  private weak let stream: ServedStream?
  private weak let server: StreamServer?
  private let hasEnded = Atomic(false)
  private let isHeld = Atomic(false)

  init(_ stream: ServedStream, of server: StreamServer) { (self.stream, self.server) = (stream, server) }

  func logDidChange() {
    guard let stream else { return }
    if stream.log.hasEnded {
      guard !hasEnded.exchange(true, ordering: .relaxed) else { return }
      let last = stream.log.read { storage, _ in storage.newestID }
      server?.presentMaker?.answerEnded(stream.name, lastID: last ?? 0)
    } else {
      let isHeldNow = stream.log.isHeld
      guard isHeld.exchange(isHeldNow, ordering: .relaxed) != isHeldNow else { return }
    }
    stream.use?.end()
  }
}

extension ServedStream {
  /// Whether it is an answer without a reader, whose upstream is not read before a reader comes.
  var waitsForReader: Bool { configuration.isAnswer && !log.hasEnded && log.isHeld && log.subscriberCount == 0 }

  /// Whether it has a subscriber, a publisher or a waiting value, or an answer comes that nobody need read yet.
  var isInUse: Bool {
    if log.subscriberCount > 0 || use?.isHeld == true { return true }
    if configuration.isAnswer { return !log.hasEnded && !log.isHeld }
    return publishSource?.isInUse == true || isFull
  }
}

extension StreamOwner {
  /// The rule that admits the one who has made a stream; nil: nothing identifies it.
  package var rule: AccessRules.Rule? {
    switch user {
    case .uid(let id): .user(id)
    case .token(let name): .token(name)
    case .ipv4, .ipv6, .unknown: nil
    }
  }

  /// The text for another process.
  package var saved: String { user.saved }

  /// - Returns: nil for a text that is not of a process.
  package init?(saved: String) {
    guard let user = ClientUser(saved: saved) else { return nil }
    self.init(user: user)
  }
}

extension RequestFailure {
  fileprivate static func otherRequest(_ name: String) -> Self {
    Self(.otherRequest, "\"\(name)\" is the answer to another request")
  }

  /// Only a request makes the stream.
  static func notAsked(_ name: String) -> Self {
    Self(.noStream, "no stream named \"\(name)\" yet: a request makes it (PUT, streamctl request)")
  }
}
