import StreamRuntime

import func HTTP.sha256

/// A token with which clients over TCP become one user.
///
/// A class, so that a connection holds only a reference.
public final class ClientToken: Sendable {
  /// The name of the user, for access, limits and the names of publishers.
  public let name: String
  /// The SHA-256 of the token itself, which is not kept.
  private let digest: [UInt8]

  /// Maximum bytes of a token: a client cannot make the server digest more.
  public static let maximumByteCount = 1024

  /// - Parameters:
  ///   - name: the name of the client, which stands for its user.
  ///   - secret: the token that the client sends, at most ``maximumByteCount`` bytes.
  public convenience init(name: String, secret: String) {
    self.init(name: name, digest: sha256(Array(secret.utf8)))
  }

  private init(name: String, digest: [UInt8]) { (self.name, self.digest) = (name, digest) }

  /// A token of which only the saved part is known.
  fileprivate convenience init(_ saved: Saved) { self.init(name: saved.name, digest: []) }

  /// Whether the digests are equal, in a time that does not depend on where they differ.
  fileprivate func has(_ digest: [UInt8]) -> Bool {
    digest.count == self.digest.count && zip(digest, self.digest).reduce(0) { $0 | ($1.0 ^ $1.1) } == 0
  }

  /// The part of a token that is saved for the next process.
  struct Saved: Equatable, Sendable {
    var name = ""
    /// The start of the digest, so that a connection does not outlive its token.
    var version: UInt64 = 0
  }

  var saved: Saved { Saved(name: name, version: digest.prefix(8).reduce(0) { $0 << 8 | UInt64($1) }) }
}

extension ClientToken: Equatable {
  /// Whether names and tokens are equal.
  public static func == (one: ClientToken, other: ClientToken) -> Bool {
    one === other || one.name == other.name && one.digest == other.digest
  }
}

/// The tokens that are valid now.
final class ClientTokens: Sendable {
  private let tokens = Locked<[ClientToken]>([])
  /// The tickets that their users have.
  let tickets = ClientTickets()

  /// Whether there are no tokens. The server then ignores tokens that clients send.
  var isEmpty: Bool { tokens.withLock { $0.isEmpty } }

  func replace(by tokens: [ClientToken]) {
    self.tokens.withLock { $0 = tokens }
    tickets.keep { ticket in tokens.contains { $0.saved == ticket } }
  }

  func contains(_ token: ClientToken) -> Bool { tokens.withLock { $0.contains(token) } }

  /// - Parameter secret: the token that a client has sent.
  subscript(secret: some Collection<UInt8>) -> ClientToken? {
    guard secret.count <= ClientToken.maximumByteCount else { return nil }
    let digest = sha256(Array(secret))
    return tokens.withLock { $0.reduce(nil as ClientToken?) { found, token in token.has(digest) ? token : found } }
  }

  /// The token of a connection of another process. If there is no such token any more, the result is one that is not
  /// valid.
  func restored(_ saved: ClientToken.Saved) -> ClientToken {
    tokens.withLock { $0.first { $0.saved == saved } } ?? ClientToken(saved)
  }
}

extension Connection {
  /// Continues as the user of a token, or, without one, of the client's host. The connection must have no request.
  ///
  /// - Returns: the limit of connections that the user has reached, as a sentence; nil: done.
  func become(_ token: ClientToken?) -> String? {
    worker.loop.assertOnLoop()
    guard token != identity.token else { return nil }
    var identity = identity
    identity.token = token
    let user = identity.user(of: socket.raw)
    if user != share.account.user {
      let open = worker.counts.open.load(ordering: .relaxed) - 1
      do throws(UserAccounts.Refusal) {
        move(to: try worker.accounts.enter(user, within: worker.limits, besides: open))
      } catch {
        let refusal = worker.limits.connectionRefusal(of: identity, for: error)
        worker.report(refusal.report)
        return refusal.sentence
      }
    }
    self.identity = identity
    return nil
  }

  /// Whether the client must send a token to get more access.
  var needsToken: Bool { identity.credentials == nil && identity.token == nil && !worker.tokens.isEmpty }

  /// Ends the connection if its token is not valid any more.
  func reapplyToken() {
    guard phase == .open, let token = identity.token, !worker.tokens.contains(token) else { return }
    let reason = "token \"\(token.name)\" is not valid any more"
    drop(reason)
    stop(.init(.tokenRemoved, reason))
  }
}
