import StreamRuntime
import Reactive
import Synchronization

/// The resources that all connections of one user use, on all loops.
final class UserAccount: Sendable {
  let user: ClientUser
  let standing: ClientUser.Standing
  /// Live requests.
  let requests = Atomic(0)
  /// Bytes of partially received and unprocessed input, and of unread replies.
  let heldBytes = Atomic(0)
  /// Bytes of the different filters of its subscriptions. They do not count as input: no connection is closed because
  /// of them.
  let filterBytes = Atomic(0)
  /// For a host, the account of all hosts, which has the sums; else nil.
  let hosts: UserAccount?

  init(_ user: ClientUser, hosts: UserAccount? = nil) {
    (self.user, standing, self.hosts) = (user, user.standing, hosts)
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
  private let hosts = UserAccount(.unknown)

  private struct Table {
    var accounts: [ClientUser: (account: UserAccount, connections: Int)] = [:]
    /// The connections of all hosts.
    var hostCount = 0
  }

  private let table = Locked(Table())

  /// Why a user gets no connection.
  enum Refusal: Error {
    /// The server has as many as there can be for the user.
    case full
    /// The user has this number of connections, or all hosts have it, while so many are free.
    case share(count: Int, free: Int, isOfAllHosts: Bool)
  }

  /// Adds a connection.
  ///
  /// - Parameters:
  ///   - limits: nil: the connection exists already, and continues.
  ///   - open: the number of other connections.
  func enter(_ user: ClientUser, within limits: ServerLimits? = nil, besides open: Int = 0) throws(Refusal)
    -> UserAccount
  {
    let isHost = user.standing == .host
    return try table.withLock { table -> Result<UserAccount, Refusal> in
      let (account, count) = table.accounts[user] ?? (UserAccount(user, hosts: isHost ? hosts : nil), 0)
      if let limits {
        let free = limits.connections(for: user.standing) - open
        guard free > 0 else { return .failure(.full) }
        let given = limits.connectionsPerUser
        let isHostsShare = isHost && ServerLimits.admitsOne(after: count, ofHosts: nil, free: free, given: given)
        guard
          ServerLimits.admitsOne(after: count, ofHosts: isHost ? table.hostCount : nil, free: free, given: given)
        else {
          return .failure(
            .share(count: isHostsShare ? table.hostCount : count, free: free, isOfAllHosts: isHostsShare))
        }
      }
      table.accounts[user] = (account, count + 1)
      if isHost { table.hostCount += 1 }
      return .success(account)
    }.get()
  }

  /// Removes a connection, which holds no bytes any more.
  func leave(_ account: UserAccount) {
    table.withLock { table in
      guard let (_, connections) = table.accounts[account.user] else { return }
      table.accounts[account.user] = connections > 1 ? (account, connections - 1) : nil
      if account.hosts != nil { table.hostCount -= 1 }
    }
  }

  /// Adds bytes, or removes them if negative.
  func hold(_ bytes: Int, _ account: UserAccount) {
    heldBytes.add(bytes, ordering: .relaxed)
    account.heldBytes.add(bytes, ordering: .relaxed)
    account.hosts?.heldBytes.add(bytes, ordering: .relaxed)
    memory.note(released: -bytes)
  }

  /// Adds bytes of a filter, unless the user then exceeds a limit.
  ///
  /// - Parameter limits: nil: the subscription exists already, and continues.
  /// - Returns: the exceeded limit, as a sentence; nil: the bytes are added.
  func holdFilter(_ bytes: Int, _ account: UserAccount, within limits: ServerLimits?) -> String? {
    let total = filterBytes.add(bytes, ordering: .relaxed).newValue
    let own = account.filterBytes.add(bytes, ordering: .relaxed).newValue
    let hosts = account.hosts?.filterBytes.add(bytes, ordering: .relaxed).newValue
    guard let sentence = limits?.excess(ofFilters: own, ofHosts: hosts, ofAll: total, account.user) else { return nil }
    releaseFilter(bytes, account)
    return sentence
  }

  /// Removes bytes of a filter that the user does not use any more.
  func releaseFilter(_ bytes: Int, _ account: UserAccount) {
    filterBytes.subtract(bytes, ordering: .relaxed)
    account.filterBytes.subtract(bytes, ordering: .relaxed)
    account.hosts?.filterBytes.subtract(bytes, ordering: .relaxed)
    memory.note(released: bytes)
  }
}

extension ServerLimits {
  /// The limit that a user's filters exceed, as a sentence; nil: none.
  fileprivate func excess(ofFilters bytes: Int, ofHosts hosts: Int?, ofAll total: Int, _ user: ClientUser) -> String? {
    if bytes > inputBytesPerUser {
      return "\(user) would have filters of more than \(inputBytesPerUser) bytes (max_input_per_user)"
    }
    guard exceedsInputShare(bytes, ofHosts: hosts, ofAll: total, user.standing) else { return nil }
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
      account.hosts?.requests.add(Int(newRequests - self.requests), ordering: .relaxed)
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
