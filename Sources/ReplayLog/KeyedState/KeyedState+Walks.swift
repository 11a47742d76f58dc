import CLinux

extension KeyedState {
  /// Begins a walk through the state of the events below an end. Until `finish`, the versions that it needs are kept as
  /// long as there is space.
  ///
  /// - Parameters:
  ///   - position: the first id that is visited.
  ///   - end: the log's `endPosition`, or an earlier one: the walk has then fallen behind if versions are gone.
  ///   - begin: the begin of the walk that this one continues; nil: `end`.
  public func walk(from position: UInt64 = 0, asOf end: UInt64, begin: UInt64? = nil) -> StateWalk {
    let walk = StateWalk(self, position: position, end: end, begin: begin ?? end)
    if end >= horizon { walkEnds.insert(end) }
    if canRenew(walk) { walkBegins.insert(walk.begin) }
    return walk
  }

  /// Continues a walk of another state at the walk's end position. This state has taken over the versions that the walk
  /// needs.
  ///
  /// - Parameters:
  ///   - former: continues at most once, and must not be used afterwards.
  ///   - position: the first id that is visited.
  ///   - end: the log's `endPosition`.
  public func walk(continuing former: StateWalk, from position: UInt64, in end: UInt64) -> StateWalk {
    let walk = walk(from: position, asOf: min(former.end, end), begin: former.begin)
    if expectedWalks.count > 0, canRenew(walk) {
      expectedWalks.count -= 1
      if expectedWalks.count == 0 { walkBegins.remove(expectedWalks.begin) }
    }
    return walk
  }

  /// Keeps the tombstones that the walks of another state need, until all of these walks have continued in this state
  /// or the space is needed.
  func expectWalks(of other: KeyedState) {
    let count = other.walkBegins.count - (other.expectedWalks.count > 0 ? 1 : 0) + other.expectedWalks.count
    guard count > 0 else { return }
    expectedWalks = (count, other.walkBegins.lowest)
    walkBegins.insert(expectedWalks.begin)
  }

  /// Whether the state still has all tombstones from the walk's begin on, so that the walk can be renewed.
  public func canRenew(_ walk: StateWalk) -> Bool { walk.begin >= tombstoneHorizon }

  /// Whether the state certainly has the tombstones of all keys that were removed from an id on. An earlier process may
  /// have freed tombstones, and tombstones of another log are missing.
  public func hasTombstones(from id: UInt64) -> Bool {
    id >= max(tombstoneHorizon, description.begin, processStart)
  }

  /// Continues a walk that has fallen behind, from its position on, as of a newer end. The walk then also visits the
  /// tombstones of keys that were removed after its begin: it may have visited these keys before.
  /// - Returns: false if that is not possible, because a tombstone may be gone.
  public func renew(_ walk: StateWalk, asOf end: UInt64) -> Bool {
    guard canRenew(walk) else { return false }
    walkEnds.remove(walk.end)
    walk.end = end
    if end >= horizon { walkEnds.insert(end) }
    return true
  }

  /// Moves a walk: it visits events again from a lower id on, or skips the events before a higher id.
  /// - Complexity: O(events between).
  public func move(_ walk: StateWalk, to position: UInt64) {
    var node = node(of: walk)
    while node != 0, id(node) >= position { node = unsafe nodes[Int(node)].former }
    put(walk, behind: node)
    walk.position = position
  }

  /// Releases the versions that the walk needs. The walk must be one of this state that has not been finished.
  public func finish(_ walk: StateWalk) {
    precondition(walk.state === self, "not a walk of this state")
    put(walk, behind: 0)
    walkEnds.remove(walk.end)
    walkBegins.remove(walk.begin)
    walk.state = nil
  }

  /// The last version that the walk has passed; 0 if none is left.
  private func node(of walk: StateWalk) -> UInt32 {
    guard let place = walk.place else { return 0 }
    return place.last.node
  }

  private func put(_ walk: StateWalk, behind node: UInt32) {
    if let place = walk.place?.last {
      if place.node == node { return }
      place.walkCount -= 1
      if place.walkCount == 0, place.node != 0 { places[place.node] = nil }
      walk.place = nil
    }
    guard node != 0 else { return }
    let place = places[node] ?? StatePlace(node)
    place.walkCount += 1
    walk.place = place
    places[node] = place
    unsafe nodes[Int(node)].hash |= Node.hasWalk
  }

  /// Moves the walks behind a version to the version before it, because the version is freed.
  /// - Complexity: O(1), for any number of walks.
  func moveWalks(from node: UInt32, to former: UInt32) {
    guard let place = places.removeValue(forKey: node) else { return }
    guard former != 0, let other = places[former] else {
      place.node = former
      if former != 0 {
        places[former] = place
        unsafe nodes[Int(former)].hash |= Node.hasWalk
      }
      return
    }
    let (small, large) = place.walkCount < other.walkCount ? (place, other) : (other, place)
    small.successor = large
    large.walkCount += small.walkCount
    large.node = former
    places[former] = large
  }

  /// The number of versions between the one that a walk visits and the one whose record is prefetched. Versions and
  /// their records are anywhere in the state's memory: a walk that reads one after the other waits twice for each.
  private static let prefetchDistance = 16

  /// Prefetches the record of the version after this one, of a usual size.
  /// - Returns: that version, or the same one at the end of all.
  @inline(__always) private func approach(after node: UInt32) -> UInt32 {
    let next = unsafe nodes[Int(node)].next
    guard next != 0 else { return node }
    let record = unsafe area.heap + (Int(nodes[Int(next)].offset) - 1) * StateHeap.unitBytes
    unsafe prefetch(record)
    unsafe prefetch(record + 64)
    return next
  }

  /// Visits the next events of a walk, in the order of their ids. Generic, so that the compiler specialises it with a visitor of
  /// another module.
  ///
  /// - Parameters:
  ///   - steps: maximum number of versions that are considered.
  ///   - visit: receives the record, valid during the call, and its id. Returns false
  ///     for an event that it does not take: the next call begins there.
  /// - Complexity: O(steps); after a walk's first calls, which find its position, each step is one version.
  public func advance<Failure: Error>(
    _ walk: StateWalk, atMost steps: Int, _ visit: (_ record: StateEvent, _ id: UInt64) throws(Failure) -> Bool
  ) throws(Failure) -> StateWalk.Progress {
    guard walk.end >= horizon else { return .fellBehind }
    var node = node(of: walk)
    defer { put(walk, behind: node) }
    var ahead = node
    for _ in 0..<min(steps, Self.prefetchDistance) { ahead = approach(after: ahead) }
    for _ in 0..<steps {
      let next = unsafe nodes[Int(node)].next
      guard next != 0 else { return .finished }
      ahead = approach(after: ahead)
      let id = id(next)
      guard id < walk.end else { return .finished }
      if id >= walk.position {
        let version = unsafe nodes[Int(next)]
        if !version.has(Node.isTombstone) || id >= walk.begin,
          !version.has(Node.isReplaced) || self.id(version.link) >= walk.end
        {
          guard try visit(record(next), id) else { return .more }
        }
        walk.position = id + 1
      }
      node = next
    }
    return .more
  }
}

/// A reading position in a state, which keeps the versions that it needs. Confined as its log is.
public final class StateWalk {
  /// What a call has achieved.
  public enum Progress: Equatable, Sendable {
    /// Every event of the state as of the walk's end was visited.
    case finished
    /// There may be more, or an event was not taken.
    case more
    /// Versions that the walk needs are gone: `renew` the walk as of the present end.
    case fellBehind
  }

  /// The first id that is not visited yet.
  public fileprivate(set) var position: UInt64
  /// The walk reads the state of the events with lower ids.
  public fileprivate(set) var end: UInt64
  /// The walk's first `end`: from this id on the walk also visits tombstones.
  public let begin: UInt64
  /// The last version before `position` that was passed; nil: none.
  var place: StatePlace?

  /// The state that the walk reads; nil once the state is released, for example by a reload: the walk must not be used
  /// then.
  public fileprivate(set) weak var state: KeyedState?

  fileprivate init(_ state: KeyedState, position: UInt64, end: UInt64, begin: UInt64) {
    (self.state, self.position, self.end, self.begin) = (state, position, end, begin)
  }
}

@available(*, unavailable) extension StateWalk: Sendable {}

/// Where walks stand: behind a version. When that version is freed, all of them stand behind the one before it.
final class StatePlace {
  fileprivate var node: UInt32
  fileprivate var walkCount = 0
  /// The place with which this one was united; it had at least as many walks. So the number of places that a walk goes
  /// through is at most the logarithm of the number of walks.
  fileprivate var successor: StatePlace?

  fileprivate init(_ node: UInt32) { self.node = node }

  fileprivate var last: StatePlace {
    var place = self
    while let next = place.successor { place = next }
    return place
  }
}

/// A multiset of ids.
struct CountedIDs {
  /// In the order of the ids.
  private var counts: [(id: UInt64, count: Int)] = []

  /// The lowest id; `UInt64.max` if there is none.
  var lowest: UInt64 { counts.first?.id ?? .max }

  /// The number of ids, counting repetitions.
  var count: Int { counts.reduce(0) { $0 + $1.count } }

  /// - Complexity: that of an array's `insert`; O(log n) for an id that is present, and for the highest one.
  mutating func insert(_ id: UInt64) {
    let index = index(of: id)
    if index < counts.count, counts[index].id == id {
      counts[index].count += 1
    } else {
      counts.insert((id, 1), at: index)
    }
  }

  /// Removes one occurrence of an id, if there is any.
  mutating func remove(_ id: UInt64) {
    let index = index(of: id)
    guard index < counts.count, counts[index].id == id else { return }
    counts[index].count -= 1
    if counts[index].count == 0 { counts.remove(at: index) }
  }

  /// Removes all occurrences of lower ids.
  mutating func removeAll(below id: UInt64) { counts.removeSubrange(..<index(of: id)) }

  /// The index of the first entry that is not below an id.
  private func index(of id: UInt64) -> Int {
    var (low, high) = (0, counts.count)
    while low < high {
      let middle = (low + high) / 2
      if counts[middle].id < id { low = middle + 1 } else { high = middle }
    }
    return low
  }
}
