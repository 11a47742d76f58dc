/// The streams of one template: who made each, which of them is forgotten next, and whether a user may make another one.
///
/// A machine. Whether a stream is in use is known outside, and asked for when it matters: a stream that turns out to be in use
/// leaves the order of those that may be forgotten, and returns to it with `release`. Times are nanoseconds of the monotonic
/// clock. A decision looks at each stream once for each end of its use, at most.
struct MadeStreams {
  /// Whether a stream is in use.
  enum Use: Equatable {
    case inUse
    /// Its last use ended at this time.
    case unused(since: UInt64)
  }

  /// What has to happen before a stream can be made.
  enum Admission: Equatable {
    case admitted
    /// This stream is forgotten first, and then the question is asked again.
    case forgets(String)
    /// Too many streams are in use.
    case refused(Refusal)
  }

  /// Why a user cannot make a stream.
  enum Refusal: Equatable {
    /// All streams of the template are in use.
    case full
    /// The user has this number of streams, or all hosts have it, and all of them are in use.
    case share(count: Int, isOfAllHosts: Bool)
  }

  private struct Made {
    /// nil: nobody knows who made it, because it is from before a kill.
    let owner: ClientUser?
    /// The time of its entries in the orders; nil: it is in use, as far as is known.
    var unusedSince: UInt64?
  }

  /// The most streams at a time.
  var limit: Int
  /// The time without use after which a stream is forgotten; nil: never.
  var forgetTime: UInt64?
  private var made: [String: Made] = [:]
  private var ownerCounts: [ClientUser: Int] = [:]
  private var hostCount = 0
  /// The streams that are not in use, as far as is known, and those of each user.
  private var order = UseOrder()
  private var ownerOrders: [ClientUser: UseOrder] = [:]

  init(limit: Int, forgetTime: UInt64?) { (self.limit, self.forgetTime) = (limit, forgetTime) }

  var count: Int { made.count }
  var names: [String] { Array(made.keys) }

  /// The entries in the orders, also those of former times.
  var entryCount: Int { ownerOrders.values.reduce(order.count) { $0 + $1.count } }

  func contains(_ name: String) -> Bool { made[name] != nil }

  /// Who made the stream; nil: nobody who is known.
  func owner(of name: String) -> ClientUser? { made[name]?.owner }

  // MARK: Making

  /// Whether a user may make a stream.
  mutating func admit(_ user: ClientUser, use: (String) -> Use) -> Admission {
    let free = limit - count
    if hasRoom(for: user) { return .admitted }
    // The limit of all is reached if the user's share would have room for one that another user loses.
    if free <= 0, admitsOne(of: user, free: 1) {
      return longestUnused(of: nil, use: use).map { .forgets($0) } ?? .refused(.full)
    }
    if let name = longestUnused(of: user, use: use) { return .forgets(name) }
    let (isHost, count) = (user.standing == .host, ownerCounts[user] ?? 0)
    return .refused(.share(count: isHost ? hostCount : count, isOfAllHosts: isHost && count < hostCount))
  }

  /// Whether a user may make a stream, and none has to be forgotten for it.
  func hasRoom(for user: ClientUser) -> Bool { admitsOne(of: user, free: limit - count) }

  /// Whether a share has room: a user has at most as many streams as are free, all hosts together count as one user, and
  /// root and the server's own user have no share.
  private func admitsOne(of user: ClientUser, free: Int) -> Bool {
    guard free > 0 else { return false }
    let count = ownerCounts[user] ?? 0
    return switch user.standing {
    case .owner: true
    case .named: count == 0 || count < free
    case .host: (hostCount == 0 || hostCount < free) && (count == 0 || count < free - (hostCount - count))
    }
  }

  /// A stream was made.
  mutating func add(_ name: String, by owner: ClientUser?, at now: UInt64) {
    remove(name)
    made[name] = Made(owner: owner)
    if let owner {
      ownerCounts[owner, default: 0] += 1
      if owner.standing == .host { hostCount += 1 }
    }
    release(name, at: now)
  }

  /// A stream is gone.
  mutating func remove(_ name: String) {
    guard let former = made.removeValue(forKey: name) else { return }
    compact()
    guard let owner = former.owner, let count = ownerCounts[owner] else { return }
    if owner.standing == .host { hostCount -= 1 }
    ownerCounts[owner] = count > 1 ? count - 1 : nil
    if count == 1 { ownerOrders[owner] = nil }
  }

  // MARK: Forgetting

  /// A use of a stream has ended. It may be in use again by now.
  mutating func release(_ name: String, at now: UInt64) {
    guard let stream = made[name], stream.unusedSince != now else { return }
    made[name]?.unusedSince = now
    order.insert(.init(time: now, name: name))
    if let owner = stream.owner {
      ownerOrders[owner, default: UseOrder()].insert(.init(time: now, name: name))
      compact(owner)
    }
    compact()
  }

  /// The streams whose time without use is over, at most `count` of them, which must be removed or released.
  mutating func due(at now: UInt64, atMost count: Int, use: (String) -> Use) -> [String] {
    guard let forgetTime, now >= forgetTime else { return [] }
    return longestUnused(since: now - forgetTime, atMost: count, use: use)
  }

  /// The streams without use since this time, the longest unused first, at most `count` of them, which must be removed or
  /// released.
  mutating func longestUnused(since time: UInt64 = .max, atMost count: Int, use: (String) -> Use) -> [String] {
    var names: [String] = []
    while names.count < count, let first = order.first, first.time <= time,
      let name = longestUnused(of: nil, use: use), let since = made[name]?.unusedSince, since <= time
    {
      names.append(name)
      made[name]?.unusedSince = nil
    }
    return names
  }

  /// When a stream may be due, at the earliest; nil: none will be.
  var nextDue: UInt64? { forgetTime.flatMap { time in order.first.map { $0.time + time } } }

  /// Since when the longest unused stream is unused; nil: all are in use.
  mutating func timeOfLongestUnused(use: (String) -> Use) -> UInt64? {
    longestUnused(of: nil, use: use).flatMap { made[$0]?.unusedSince }
  }

  /// The stream whose last use is longest ago, of all or of one user's; nil: all are in use.
  private mutating func longestUnused(of owner: ClientUser?, use: (String) -> Use) -> String? {
    func removeFirst() { if let owner { ownerOrders[owner]?.removeFirst() } else { order.removeFirst() } }
    while let first = owner.map({ ownerOrders[$0]?.first }) ?? order.first {
      guard made[first.name]?.unusedSince == first.time else {
        removeFirst()
        continue
      }
      switch use(first.name) {
      case .unused(let time) where time <= first.time: return first.name
      case .unused(let time):
        removeFirst()
        release(first.name, at: time)
      case .inUse:
        removeFirst()
        made[first.name]?.unusedSince = nil
      }
    }
    return nil
  }

  /// Removes the entries of former times and streams, which otherwise leave when they come first.
  private mutating func compact() {
    guard order.count > 2 * made.count + 64 else { return }
    order.keep { made[$0.name]?.unusedSince == $0.time }
    for owner in ownerOrders.keys { ownerOrders[owner]?.keep { made[$0.name]?.unusedSince == $0.time } }
  }

  /// The same for one user, whose entries stay while nothing asks for the user's longest unused stream.
  private mutating func compact(_ owner: ClientUser) {
    guard ownerOrders[owner]?.count ?? 0 > 2 * (ownerCounts[owner] ?? 0) + 64 else { return }
    ownerOrders[owner]?.keep { made[$0.name]?.unusedSince == $0.time }
  }
}

/// Streams in the order of the ends of their last uses: a binary heap.
private struct UseOrder {
  struct Entry {
    let time: UInt64
    let name: String
  }

  private var heap: [Entry] = []

  var count: Int { heap.count }
  var first: Entry? { heap.first }

  mutating func insert(_ entry: Entry) {
    heap.append(entry)
    var index = heap.count - 1
    while index > 0, heap[index].time < heap[(index - 1) / 2].time {
      heap.swapAt(index, (index - 1) / 2)
      index = (index - 1) / 2
    }
  }

  mutating func removeFirst() {
    heap.swapAt(0, heap.count - 1)
    heap.removeLast()
    sink(0)
  }

  mutating func keep(_ isKept: (Entry) -> Bool) {
    heap.removeAll { !isKept($0) }
    for index in (0..<heap.count / 2).reversed() { sink(index) }
  }

  private mutating func sink(_ start: Int) {
    var index = start
    while true {
      var least = index
      for child in [2 * index + 1, 2 * index + 2]
      where child < heap.count && heap[child].time < heap[least].time { least = child }
      guard least != index else { return }
      heap.swapAt(index, least)
      index = least
    }
  }
}
