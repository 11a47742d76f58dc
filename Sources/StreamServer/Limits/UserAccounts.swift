import StreamRuntime
import Reactive
import Synchronization

/// What the connections of one user hold together, on all loops.
final class UserAccount: Sendable {
  let user: ClientUser
  /// Requests under way.
  let requests = Atomic(0)
  /// Bytes of what was received in part or not handled, and of answers that were not read.
  let heldBytes = Atomic(0)

  init(_ user: ClientUser) {
    self.user = user
  }
}

/// The users that have connections, and what all of them hold.
final class UserAccounts: Sendable {
  /// Bytes as in `UserAccount.heldBytes`, of all.
  let heldBytes = Atomic(0)
  let memory = MemoryReturn()
  private let accounts = Locked<[ClientUser: (account: UserAccount, connections: Int)]>([:])

  /// Counts a connection in.
  ///
  /// - Parameter isAdmitted: whether a user that has so many connections may have another.
  /// - Returns: no account when it may not, and how many connections it had.
  func enter(
    _ user: ClientUser, isAdmitted: (Int) -> Bool = { _ in true }
  ) -> (account: UserAccount?, connections: Int) {
    accounts.withLock { accounts in
      let (account, connections) = accounts[user] ?? (UserAccount(user), 0)
      guard isAdmitted(connections) else { return (nil, connections) }
      accounts[user] = (account, connections + 1)
      return (account, connections)
    }
  }

  /// Counts a connection out. It holds nothing any more.
  func leave(_ account: UserAccount) {
    accounts.withLock { accounts in
      guard let (_, connections) = accounts[account.user] else { return }
      accounts[account.user] = connections > 1 ? (account, connections - 1) : nil
    }
  }

  /// Counts bytes in, or out.
  func hold(_ bytes: Int, _ account: UserAccount) {
    heldBytes.add(bytes, ordering: .relaxed)
    account.heldBytes.add(bytes, ordering: .relaxed)
    memory.note(released: -bytes)
  }
}

/// What one connection counts for in its user's account.
struct HeldByConnection {
  private var requests: Int32 = 0
  /// In units of `unit`, rounded down: what is less is part of what any connection costs.
  private var units: Int32 = 0

  private static let unit = 1024

  /// - Returns: whether more bytes are held than before.
  mutating func settle(requests: Int, bytes: Int, _ accounts: UserAccounts, _ account: UserAccount) -> Bool {
    let (newRequests, newUnits) = (Int32(clamping: requests), Int32(clamping: bytes / Self.unit))
    if newRequests != self.requests {
      account.requests.add(Int(newRequests - self.requests), ordering: .relaxed)
      self.requests = newRequests
    }
    guard newUnits != units else { return false }
    defer { units = newUnits }
    accounts.hold(Int(newUnits - units) * Self.unit, account)
    return newUnits > units
  }

  /// Requests of the connection that the account has not counted yet.
  func uncounted(_ requests: Int) -> Int { requests - Int(self.requests) }
}
