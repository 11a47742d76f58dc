import StreamRuntime
import StreamProtocol

import func HTTP.base64
import func HTTP.sha256

/// The tickets that are open. Each admits one request as the user of a token, soon: for clients that cannot send a token, as
/// EventSource and WebSocket in a browser.
///
/// Only the digest of a ticket is kept. Thread-safe.
final class ClientTickets: Sendable {
  /// A ticket as it is kept, also for the next process.
  struct Open: Equatable, Sendable {
    var digest: [UInt8] = []
    var token = ClientToken.Saved()
    /// On the monotonic clock of the system, in nanoseconds.
    var end: UInt64 = 0
  }

  private struct State {
    var tickets: [[UInt8]: Open] = [:]
    /// The digests of a token's tickets, at most ``mostOfUser``; some may be used up.
    var byName: [String: [[UInt8]]] = [:]

    mutating func add(_ ticket: Open, at now: UInt64) -> Bool {
      let open = byName[ticket.token.name, default: []].filter { digest in
        guard let end = tickets[digest]?.end, end <= now else { return tickets[digest] != nil }
        tickets[digest] = nil
        return false
      }
      let isAdded = open.count < mostOfUser && tickets[ticket.digest] == nil
      if isAdded { tickets[ticket.digest] = ticket }
      byName[ticket.token.name] = isAdded ? open + [ticket.digest] : open
      return isAdded
    }
  }

  private let state = Locked(State())

  /// For how long a ticket is open.
  static let lifetime = Duration.seconds(30)
  /// The most tickets of one user that are open.
  static let mostOfUser = 64
  /// Bytes of a ticket, before it becomes text.
  private static let byteCount = 32
  /// The characters of a ticket.
  private static let characterCount = 43

  /// Issues a ticket.
  /// - Returns: nil if the user has the most that are open.
  func issue(to token: ClientToken, at now: UInt64 = EventLoop.monotonicNow()) -> String? {
    var random = SystemRandomNumberGenerator()
    let bytes = (0..<Self.byteCount).map { _ in UInt8.random(in: .min ... .max, using: &random) }
    // base64url without padding. Source: RFC 4648, section 5.
    let ticket = base64(bytes).replacing("+", with: "-").replacing("/", with: "_").replacing("=", with: "")
    let end = now + UInt64(Self.lifetime.wholeNanoseconds)
    let open = Open(digest: sha256(Array(ticket.utf8)), token: token.saved, end: end)
    return state.withLock { $0.add(open, at: now) } ? ticket : nil
  }

  /// The token of an open ticket.
  /// - Parameter isUsed: whether the ticket is used up now.
  func token(of ticket: String, isUsed: Bool, at now: UInt64 = EventLoop.monotonicNow()) -> ClientToken.Saved? {
    guard ticket.utf8.count == Self.characterCount else { return nil }
    let digest = sha256(Array(ticket.utf8))
    let open = state.withLock { isUsed ? $0.tickets.removeValue(forKey: digest) : $0.tickets[digest] }
    return open.flatMap { $0.end > now ? $0.token : nil }
  }

  /// Drops the tickets of all other tokens.
  func keep(_ isValid: (ClientToken.Saved) -> Bool) {
    state.withLock { state in
      state.tickets = state.tickets.filter { isValid($1.token) }
      state.byName = state.byName.compactMapValues { digests in
        let open = digests.filter { state.tickets[$0] != nil }
        return open.isEmpty ? nil : open
      }
    }
  }

  // MARK: From one process to the next

  /// The open tickets, for the next process.
  var open: [Open] {
    let now = EventLoop.monotonicNow()
    return state.withLock { $0.tickets.values.filter { $0.end > now } }
  }

  /// Takes over tickets of another process.
  func restore(_ tickets: [Open]) {
    let now = EventLoop.monotonicNow()
    let latest = now + UInt64(Self.lifetime.wholeNanoseconds)
    state.withLock { state in
      for ticket in tickets where ticket.end > now && ticket.end <= latest { _ = state.add(ticket, at: now) }
    }
  }
}

extension ClientTokens {
  /// The token for whose user a ticket admits a request; nil: the ticket is used up, too old, or none of this server's, or its
  /// token is not valid any more.
  /// - Parameter isUsed: whether the ticket is used up now.
  func token(ofTicket ticket: String, isUsed: Bool) -> ClientToken? {
    tickets.token(of: ticket, isUsed: isUsed).map { restored($0) }.flatMap { contains($0) ? $0 : nil }
  }
}
