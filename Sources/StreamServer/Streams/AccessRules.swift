import CLinux
import Glibc

/// The peer of a connection, as recorded by the kernel when it connected.
public struct PeerCredentials: Equatable, Sendable {
  /// The peer's process at that time; 0 if it is in another namespace. For log lines, never for decisions.
  public let process: Int32
  /// The peer's effective user.
  public let user: UInt32
  /// The peer's effective group. Its supplementary groups are read when a rule needs them.
  public let group: UInt32

  init(process: Int32, user: UInt32, group: UInt32) {
    self.process = process
    self.user = user
    self.group = group
  }

  /// - Returns: nil for a peer over TCP, which has no credentials.
  package init?(of descriptor: CInt) {
    var credentials = ucred()
    var length = socklen_t(MemoryLayout<ucred>.size)
    guard unsafe getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &credentials, &length) == 0,
      credentials.uid != .max
    else {
      return nil
    }
    process = credentials.pid
    user = credentials.uid
    group = credentials.gid
  }

  /// The supplementary groups, from the kernel (SO_PEERGROUPS, Linux 4.13), independent of name services and of later
  /// changes of `/etc/group`.
  static func supplementaryGroups(of descriptor: CInt) -> [UInt32] {
    var groups = [gid_t](repeating: 0, count: 32)
    while true {
      var length = socklen_t(groups.count * MemoryLayout<gid_t>.stride)
      if unsafe getsockopt(descriptor, SOL_SOCKET, SO_PEERGROUPS, &groups, &length) == 0 {
        return Array(groups.prefix(Int(length) / MemoryLayout<gid_t>.stride))
      }
      guard errno == ERANGE else { return [] }
      groups = [gid_t](repeating: 0, count: Int(length) / MemoryLayout<gid_t>.stride)
    }
  }
}

/// The clients that may read or write a stream: those that match one of the rules.
public struct AccessRules: Equatable, Sendable {
  /// One rule.
  public enum Rule: Hashable, Sendable {
    /// Every client.
    case anyone
    /// The peer's effective user.
    case user(UInt32)
    /// The peer's effective group or one of its supplementary ones.
    case group(UInt32)
    /// The clients with the token of this name.
    case token(String)
    /// Who has made the stream. It stands for one of the others, and admits nobody by itself.
    case owner
  }

  let rules: Set<Rule>
  /// The groups in them.
  private let groups: [UInt32]

  /// Creates rules, any of which admits a client. Without rules, no client is admitted.
  public init(_ rules: [Rule] = [.anyone]) { self.init(Set(rules)) }

  init(_ rules: Set<Rule>) {
    self.rules = rules
    groups = rules.compactMap { if case .group(let id) = $0 { id } else { nil } }.sorted()
  }

  /// The user of this process, and root.
  public static let owner = AccessRules([.user(geteuid()), .user(0)])

  /// These rules, and those for the clients with tokens of these names.
  public func adding(tokens: [String]) -> AccessRules {
    tokens.isEmpty ? self : AccessRules(rules + tokens.map { .token($0) })
  }

  /// These rules, with the one who has made the stream in place of `Rule.owner`.
  package func with(owner: StreamOwner?) -> AccessRules {
    guard rules.contains(.owner) else { return self }
    var rules = rules
    rules.remove(.owner)
    if let rule = owner?.rule { rules.insert(rule) }
    return AccessRules(rules)
  }

  /// The rules that admit who any of both admits.
  package func joined(with others: AccessRules) -> AccessRules { AccessRules(rules.union(others.rules)) }

  /// Whether there are rules for clients besides tokens and those of the default, `owner`.
  var hasOwnRules: Bool {
    let clients = rules.filter { if case .token = $0 { false } else { true } }
    return !clients.isEmpty && clients != Self.owner.rules
  }

  /// - Parameters:
  ///   - peer: the client's credentials; nil: it has none.
  ///   - token: the token of a client without credentials.
  ///   - groups: called at most once, and only if no other rule matches.
  func admit(_ peer: PeerCredentials?, token: ClientToken? = nil, groups: () -> [UInt32]) -> Bool {
    if rules.contains(.anyone) { return true }
    if let token, rules.contains(.token(token.name)) { return true }
    guard let peer else { return false }
    if rules.contains(.user(peer.user)) { return true }
    guard !self.groups.isEmpty else { return false }
    if rules.contains(.group(peer.group)) { return true }
    // A client may be in 65,536 groups, in which a search is faster than a look-up of each.
    let groups = groups()
    return self.groups.contains { groups.contains($0) }
  }

  /// The rules that admit a client.
  func matching(_ peer: PeerCredentials?, token: ClientToken?, groups: () -> [UInt32]) -> Set<Rule> {
    var own: Set<Rule> = [.anyone]
    if let token { own.insert(.token(token.name)) }
    if let peer { own.formUnion([.user(peer.user), .group(peer.group)]) }
    var matching = rules.intersection(own)
    guard peer != nil, !self.groups.isEmpty else { return matching }
    let groups = groups()
    for id in self.groups where groups.contains(id) { matching.insert(.group(id)) }
    return matching
  }
}
