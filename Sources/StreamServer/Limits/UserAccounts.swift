import StreamRuntime
import Reactive
import Synchronization

/// The resources that all connections of one user use, on all loops.
final class UserAccount: Sendable {
  let user: ClientUser
  /// Live requests.
  let requests = Atomic(0)
  /// Bytes of partially received and unprocessed input, and of unread replies.
  let heldBytes = Atomic(0)
  /// Bytes of the different filters of its subscriptions. They do not count as input: no connection is closed because
  /// of them.
  let filterBytes = Atomic(0)

  init(_ user: ClientUser) {
    self.user = user
  }
}

/// The users with connections, and their total resources.
final class UserAccounts: Sendable {
  /// As `UserAccount.heldBytes`, of all users.
  let heldBytes = Atomic(0)
  /// As `UserAccount.filterBytes`, of all users.
  let filterBytes = Atomic(0)
  let memory = MemoryReturn()
  let maps = MapsInFlight()
  private let accounts = Locked<[ClientUser: (account: UserAccount, connections: Int)]>([:])

  /// Adds a connection.
  ///
  /// - Parameter isAdmitted: whether a user with this number of connections may have another one.
  /// - Returns: the account, or nil if the user may not; and the previous number of connections.
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

  /// Removes a connection, which holds no bytes any more.
  func leave(_ account: UserAccount) {
    accounts.withLock { accounts in
      guard let (_, connections) = accounts[account.user] else { return }
      accounts[account.user] = connections > 1 ? (account, connections - 1) : nil
    }
  }

  /// Adds bytes, or removes them if negative.
  func hold(_ bytes: Int, _ account: UserAccount) {
    heldBytes.add(bytes, ordering: .relaxed)
    account.heldBytes.add(bytes, ordering: .relaxed)
    memory.note(released: -bytes)
  }

  /// Adds bytes of a filter, unless the user then exceeds a limit.
  ///
  /// - Parameter limits: nil: the subscription exists already, and continues.
  /// - Returns: the exceeded limit, as a sentence; nil: the bytes are added.
  func holdFilter(_ bytes: Int, _ account: UserAccount, within limits: ServerLimits?) -> String? {
    let total = filterBytes.add(bytes, ordering: .relaxed).newValue
    let own = account.filterBytes.add(bytes, ordering: .relaxed).newValue
    guard let sentence = limits?.excess(ofFilters: own, ofAll: total, account.user) else { return nil }
    releaseFilter(bytes, account)
    return sentence
  }

  /// Removes bytes of a filter that the user does not use any more.
  func releaseFilter(_ bytes: Int, _ account: UserAccount) {
    filterBytes.subtract(bytes, ordering: .relaxed)
    account.filterBytes.subtract(bytes, ordering: .relaxed)
    memory.note(released: bytes)
  }
}

extension ServerLimits {
  /// The limit that a user's filters exceed, as a sentence; nil: none.
  fileprivate func excess(ofFilters bytes: Int, ofAll total: Int, _ user: ClientUser) -> String? {
    if bytes > inputBytesPerUser {
      return "\(user) would have filters of more than \(inputBytesPerUser) bytes (max_input_per_user)"
    }
    guard exceedsInputShare(bytes, ofAll: total) else { return nil }
    return "\(user) would have filters of more bytes than are free of \(inputBytes) (max_input)"
  }
}

/// The part of one connection in its user's account.
struct HeldByConnection {
  private var requests: Int32 = 0
  /// The bytes in units of `unit`, rounded down: the rest is part of the cost of any connection.
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

  /// The connection's requests that the account does not include yet.
  func uncounted(_ requests: Int) -> Int { requests - Int(self.requests) }
}
