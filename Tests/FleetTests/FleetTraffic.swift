/// The messages between the hosts of a fleet and its brokers, by kind: for each host, and between the brokers.
struct FleetTraffic {
  enum Kind: Int, CaseIterable {
    /// Entries of the logs, as every host receives them.
    case entries
    /// Entries that leaders append, and their acknowledgements.
    case appends
    case heartbeats
    /// Questions of leaders whether a host wants the next event, and the answers.
    case interest
    /// Requests to a leader to fetch, and its answers.
    case wants
    case comparisons
    /// Questions of a host that is about to claim a shard, and the answers of all hosts.
    case positions
    /// Requests for entries that a host has missed, and the answers.
    case reads
  }

  struct Count: Equatable {
    var messages = 0
    var bytes = 0

    static func + (one: Count, other: Count) -> Count {
      Count(messages: one.messages + other.messages, bytes: one.bytes + other.bytes)
    }

    static func - (one: Count, other: Count) -> Count {
      Count(messages: one.messages - other.messages, bytes: one.bytes - other.bytes)
    }
  }

  private static let kindCount = Kind.allCases.count

  let hostCount: Int
  let brokerCount: Int
  /// For each host the counts of all kinds.
  private var sentCounts: [Count]
  private var receivedCounts: [Count]
  private var betweenCounts: [Count]
  /// The messages that each host had received before this second.
  private var formerCounts: [Int]
  /// The most messages that all hosts, and that one host has received in a second.
  private var mostInSecond: [(all: Int, ofHost: Int)]

  init(hostCount: Int, brokerCount: Int) {
    (self.hostCount, self.brokerCount) = (hostCount, brokerCount)
    sentCounts = Array(repeating: Count(), count: hostCount * Self.kindCount)
    (receivedCounts, betweenCounts) = (sentCounts, Array(repeating: Count(), count: Self.kindCount))
    formerCounts = sentCounts.map(\.messages)
    mostInSecond = Array(repeating: (0, 0), count: Self.kindCount)
  }

  /// The bytes of NATS's protocol in a message of a fleet with a name of four letters, besides its content: subjects,
  /// sequence numbers, and the headers with which brokers publish an entry again. Counted on connections to nats-server
  /// 2.9.10; 2.10 and later add a header with the time (49 bytes), which is in the number.
  private static func frameByteCount(_ kind: Kind, isReceived: Bool) -> Int {
    switch kind {
    case .entries: 41 + 165 + 49 + 2
    case .appends: isReceived ? 105 : 155
    case .heartbeats: 40
    case .interest, .wants, .comparisons, .positions: 100
    case .reads: isReceived ? 335 : 190
    }
  }

  // MARK: Counting

  /// The broker to which a host is connected.
  func broker(of host: Int) -> Int { host % brokerCount }
  /// The broker that leads the stream of a shard.
  func broker(ofShard shard: Int) -> Int { shard % brokerCount }

  mutating func send(_ kind: Kind, by host: Int, _ byteCount: Int, count: Int = 1) {
    let bytes = byteCount + count * Self.frameByteCount(kind, isReceived: false)
    add(Count(messages: count, bytes: bytes), to: &sentCounts[host * Self.kindCount + kind.rawValue])
  }

  mutating func receive(_ kind: Kind, by host: Int, _ byteCount: Int, count: Int = 1) {
    let bytes = byteCount + count * Self.frameByteCount(kind, isReceived: true)
    add(Count(messages: count, bytes: bytes), to: &receivedCounts[host * Self.kindCount + kind.rawValue])
  }

  /// A message between two brokers; without effect if they are the same.
  mutating func pass(_ kind: Kind, from broker: Int, to other: Int, _ byteCount: Int) {
    guard broker != other else { return }
    let bytes = byteCount + Self.frameByteCount(kind, isReceived: true)
    add(Count(messages: 1, bytes: bytes), to: &betweenCounts[kind.rawValue])
  }

  /// A question of one host to another, and the answer, both without content.
  mutating func pass(_ kind: Kind, from host: Int, and other: Int) {
    pass(kind, from: broker(of: host), to: broker(of: other), 0)
    pass(kind, from: broker(of: other), to: broker(of: host), 0)
  }

  /// A message from a broker to each other broker.
  mutating func pass(_ kind: Kind, from broker: Int, _ byteCount: Int) {
    for other in 0..<brokerCount { pass(kind, from: broker, to: other, byteCount) }
  }

  private func add(_ more: Count, to count: inout Count) {
    count.messages += more.messages
    count.bytes += more.bytes
  }

  /// A second of the virtual time is over.
  mutating func endSecond() {
    var sums = Array(repeating: 0, count: Self.kindCount)
    for (place, count) in receivedCounts.enumerated() {
      let (kind, messages) = (place % Self.kindCount, count.messages - formerCounts[place])
      sums[kind] += messages
      mostInSecond[kind].ofHost = max(mostInSecond[kind].ofHost, messages)
      formerCounts[place] = count.messages
    }
    for kind in sums.indices { mostInSecond[kind].all = max(mostInSecond[kind].all, sums[kind]) }
  }

  // MARK: Results

  func sent(_ kind: Kind, by host: Int) -> Count { sentCounts[host * Self.kindCount + kind.rawValue] }
  func received(_ kind: Kind, by host: Int) -> Count { receivedCounts[host * Self.kindCount + kind.rawValue] }
  func sent(_ kind: Kind) -> Count { (0..<hostCount).reduce(Count()) { $0 + sent(kind, by: $1) } }
  func received(_ kind: Kind) -> Count { (0..<hostCount).reduce(Count()) { $0 + received(kind, by: $1) } }
  /// The most messages of a kind that all hosts, and that one host has received in a second of the whole time.
  func mostInSecond(_ kind: Kind) -> (all: Int, ofHost: Int) { mostInSecond[kind.rawValue] }
  func between(_ kind: Kind) -> Count { betweenCounts[kind.rawValue] }

  /// The traffic since an earlier time.
  func since(_ earlier: FleetTraffic) -> FleetTraffic {
    var difference = self
    difference.sentCounts = zip(sentCounts, earlier.sentCounts).map { $0 - $1 }
    difference.receivedCounts = zip(receivedCounts, earlier.receivedCounts).map { $0 - $1 }
    difference.betweenCounts = zip(betweenCounts, earlier.betweenCounts).map { $0 - $1 }
    return difference
  }
}
