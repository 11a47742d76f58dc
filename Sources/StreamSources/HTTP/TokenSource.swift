import HTTP
import StreamRuntime

/// The token of sources with equal `OAuth2`. Confined to the source thread.
final class TokenSource: Transfer.Handler, @unchecked Sendable {  // confined, which is checked
  /// A request that needs the token.
  private struct Waiter {
    let waits: (String) -> Void
    let completed: (Result<String, SourceFailure>) -> Void
  }

  let definition: OAuth2
  private unowned let thread: SourceThread
  private let store: TokenStore?
  private var machine: TokenMachine
  private var waiters: [Waiter] = []
  private var transfer: Transfer?
  private var body: [UInt8] = []

  private static let bodyLimit = 64 << 10

  init(_ definition: OAuth2, on thread: SourceThread, _ store: TokenStore?) {
    (self.definition, self.thread, self.store) = (definition, thread, store)
    var refreshToken: String?
    if case .refreshToken(let own) = definition.grant {
      refreshToken = Self.stored(store?.load(definition.name) ?? [], for: own) ?? own
    }
    machine = TokenMachine(refreshToken: refreshToken, seed: UInt64.random(in: 0...UInt64.max))
  }

  /// Calls `completed` once, now or later, with a token.
  /// - Parameter waits: called while the request for a token waits for its host, with the reason.
  func withToken(waits: @escaping (String) -> Void, completed: @escaping (Result<String, SourceFailure>) -> Void) {
    thread.loop.assertOnLoop()
    let (answer, action) = machine.ask(at: now)
    switch answer {
    case .token(let token): completed(.success(token))
    case .failed(let failure): completed(.failure(failure))
    case .wait: waiters.append(Waiter(waits: waits, completed: completed))
    }
    perform(action)
  }

  /// Takes the status of an answer to a request with a token.
  /// - Returns: whether the request may be sent again with another one.
  func isRenewable(_ token: String, after status: Int) -> Bool {
    if status == 401 { return machine.refused(token) }
    machine.accepted(token)
    return false
  }

  private var now: Duration { EventLoop.monotonicTime }

  private func perform(_ action: TokenMachine.Action) {
    switch action {
    case .none: break
    case .store(let refreshToken): save(refreshToken)
    case .fetch(let refreshToken):
      do throws(SourceFailure) {
        guard let client = thread.httpClient else { throw SourceFailure("the source thread has stopped") }
        transfer = client.start(try definition.request(refreshToken), handler: self)
      } catch { fail(error) }
    }
  }

  private func fail(_ failure: SourceFailure) {
    machine.failed(SourceFailure("no token: \(failure.sentence)"), at: now)
    settle()
  }

  /// Answers those that wait, unless a fetch or a write is under way.
  private func settle() {
    let waiters = waiters
    self.waiters = []
    for waiter in waiters { withToken(waits: waiter.waits, completed: waiter.completed) }
  }

  // MARK: The stored refresh token

  /// - Returns: nil for the content of another credential's token.
  private static func stored(_ content: [UInt8], for own: String) -> String? {
    let lines = String(decoding: content, as: UTF8.self).split(separator: "\n")
    guard lines.count == 2, lines[0] == OAuth2.hexadecimal(sha256(Array(own.utf8))) else { return nil }
    return String(lines[1])
  }

  private func save(_ refreshToken: String) {
    guard case .refreshToken(let own) = definition.grant else { return }
    guard let store else { return stored("there is no state directory") }
    let content = "\(OAuth2.hexadecimal(sha256(Array(own.utf8))))\n\(refreshToken)\n"
    let loop = thread.loop
    store.save(definition.name, Array(content.utf8)) { [weak self] reason in
      loop.execute { [weak self] in self?.stored(reason) }
    }
  }

  private func stored(_ reason: String?) {
    let failure = reason.map {
      SourceFailure("no token: the server has replaced the refresh token, and the new one cannot be stored: \($0)")
    }
    machine.stored(failure, at: now)
    settle()
  }

  // MARK: Transfer.Handler

  func transferWaits(_ reason: String) { for waiter in waiters { waiter.waits(reason) } }

  func transferReceived(_ head: UpstreamResponse) -> Transfer.Plan { .take }

  func transferReceived(_ bytes: UnsafeRawBufferPointer) -> Transfer.Flow {
    guard body.count + bytes.count <= Self.bodyLimit else { return .stop(.over(Self.bodyLimit, "the answer is")) }
    unsafe body.append(contentsOf: bytes)
    return .next
  }

  func transferEnded(_ result: Result<UpstreamResponse, SourceFailure>) {
    let body = body
    (self.body, transfer) = ([], nil)
    do throws(SourceFailure) {
      let head = try result.get()
      guard head.status == 200 else {
        var failure = SourceFailure.status(head.status, retryAfter: nil)
        let known =
          ["client", "grant", "request", "scope"].map { "invalid_\($0)" } + [
            "unauthorized_client", "unsupported_grant_type",
          ]
        if let code = TokenGrant.values(["error"], in: body)[0], known.contains(code) {
          failure.sentence += " (\(code))"
        }
        throw failure
      }
      let action = machine.granted(try TokenGrant(body), at: now)
      perform(action)
      if action == .none { settle() }
    } catch {
      fail(SourceFailure("\(error.sentence), from \(host)"))
    }
  }

  private var host: String { (try? HTTPURL(definition.tokenURL).origin.authority) ?? "the token endpoint" }
}
