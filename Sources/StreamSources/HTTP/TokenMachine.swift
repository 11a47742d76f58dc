import Events

/// Decides when a token is fetched and which one requests have. Works on times and answers; uses no socket, clock or thread.
///
/// A token is fetched at the first request, and renewed by the first one after 80 % of its time; until it ends, requests have the
/// former one meanwhile. After a 401 it is renewed once: if the new one is refused before it was accepted, the 401 stands. A
/// refresh token that the server has replaced is stored before its token is used.
struct TokenMachine {
  /// What a request gets.
  enum Answer: Equatable {
    case token(String)
    /// What is under way decides.
    case wait
    case failed(SourceFailure)
  }

  /// What the caller must do.
  enum Action: Equatable {
    case none
    case fetch(refreshToken: String?)
    case store(refreshToken: String)
  }

  private struct Token {
    let text: String
    let renewal: Duration
    let end: Duration
  }

  private enum Phase: Equatable {
    case idle  // can become: fetching, storing
    case fetching  // can become: idle, storing
    case storing  // can become: idle
  }

  private var phase = Phase.idle
  private var token: Token?
  /// A token that is not used before its refresh token is stored.
  private var unstored: TokenGrant?
  private(set) var refreshToken: String?
  /// Whether the token was renewed after a 401, and no request with it was accepted.
  private var isSecond = false
  private var failures = 0
  private var failure: (reason: SourceFailure, retry: Duration)?
  private var random: SplitMix

  private static let backoff = Backoff(first: .seconds(1), max: .seconds(300))
  /// The time of a token that has none, and the bounds of others.
  private static let (standardTime, leastTime) = (Duration.seconds(3600), Duration.seconds(10))
  private static let longestTime = Duration.seconds(86_400 * 365)

  init(refreshToken: String?, seed: UInt64) { (self.refreshToken, random) = (refreshToken, SplitMix(seed: seed)) }

  /// A request is to be sent.
  mutating func ask(at now: Duration) -> (Answer, Action) {
    if let token, now < token.end {
      return (.token(token.text), now >= token.renewal && failure.map { now >= $0.retry } ?? true ? begin() : .none)
    }
    guard phase == .idle else { return (.wait, .none) }
    if let failure, now < failure.retry { return (.failed(failure.reason), .none) }
    return (.wait, begin())
  }

  private mutating func begin() -> Action {
    guard phase == .idle else { return .none }
    if let kept = unstored?.refreshToken {
      phase = .storing
      return .store(refreshToken: kept)
    }
    phase = .fetching
    return .fetch(refreshToken: refreshToken)
  }

  /// The token endpoint has granted a token.
  mutating func granted(_ grant: TokenGrant, at now: Duration) -> Action {
    guard let new = grant.refreshToken, refreshToken != nil, new != refreshToken else {
      adopt(grant, at: now)
      return .none
    }
    // Also if it cannot be stored: the former one may be invalid from now on.
    (refreshToken, unstored, phase) = (new, grant, .storing)
    return .store(refreshToken: new)
  }

  /// The refresh token is stored; nil: it is.
  mutating func stored(_ reason: SourceFailure?, at now: Duration) {
    if let reason { return failed(reason, at: now) }
    guard let grant = unstored.take() else { return }
    adopt(grant, at: now)
  }

  private mutating func adopt(_ grant: TokenGrant, at now: Duration) {
    let time = min(max(grant.lifetime ?? Self.standardTime, Self.leastTime), Self.longestTime)
    if token != nil { isSecond = false }
    token = Token(text: grant.accessToken, renewal: now + time * 0.8, end: now + time)
    (phase, failures, failure) = (.idle, 0, nil)
  }

  /// There is no token, for this reason.
  mutating func failed(_ reason: SourceFailure, at now: Duration) {
    failures += 1
    failure = (reason, now + Self.backoff.delay(afterFailures: failures, fraction: random.fraction()))
    phase = .idle
  }

  /// A request with this token was answered with 401.
  /// - Returns: whether it may be sent again with another one.
  mutating func refused(_ text: String) -> Bool {
    guard let token, token.text == text else { return true }
    guard !isSecond else { return false }
    (self.token, isSecond) = (nil, true)
    return true
  }

  /// A request with this token was answered with another status.
  mutating func accepted(_ text: String) {
    if token?.text == text { isSecond = false }
  }
}

/// What a token endpoint answers. Source: RFC 6749, 5.1.
struct TokenGrant: Equatable {
  let accessToken: String
  /// nil: unknown.
  var lifetime: Duration?
  var refreshToken: String?

  /// Maximum bytes of a token.
  static let limit = 16 << 10

  init(accessToken: String, lifetime: Duration? = nil, refreshToken: String? = nil) {
    (self.accessToken, self.lifetime, self.refreshToken) = (accessToken, lifetime, refreshToken)
  }

  /// - Parameter body: untrusted.
  init(_ body: [UInt8]) throws(SourceFailure) {
    var values = Self.values(["access_token", "token_type", "refresh_token", "expires_in"], in: body)
    guard let token = values.removeFirst(), !token.isEmpty else {
      throw SourceFailure("the answer has no access_token")
    }
    if let type = values.removeFirst(), type.lowercased() != "bearer" {
      throw SourceFailure("the token is no bearer token")
    }
    for text in [token, values[0] ?? ""] {
      guard text.utf8.count <= Self.limit else { throw SourceFailure("a token is over \(Self.limit >> 10) KiB") }
      guard text.utf8.allSatisfy({ (0x21...0x7e).contains($0) }) else {
        throw SourceFailure("a token has a character that no token has")
      }
    }
    accessToken = token
    refreshToken = values.removeFirst().flatMap { $0.isEmpty ? nil : $0 }
    // Some servers send a text, or a fraction.
    lifetime = values.removeFirst().flatMap { Double($0) }.flatMap { seconds in
      seconds.isFinite ? .milliseconds(Int64(min(max(0, seconds), 1e9) * 1000)) : nil
    }
  }

  /// The texts and numbers of members.
  static func values(_ names: [String], in body: [UInt8]) -> [String?] {
    var finder = JSONFinder(JSONPaths(names.map { [JSONPaths.Step(name: Array($0.utf8))] }))
    guard finder.find(in: body.span) else { return names.map { _ in nil } }
    return names.indices.map { index in
      guard let value = finder.value(at: index, in: body.span), let first = value.first else { return nil }
      switch JSONScalar.kind(first) {
      case .number: return String(decoding: value, as: UTF8.self)
      case .string:
        var text: [UInt8] = []
        JSONScalar.appendUnescaped(value.span.extracting(1..<value.count - 1), to: &text)
        return String(validating: text, as: UTF8.self)
      case .boolean, .null, .array, .object: return nil
      }
    }
  }
}
