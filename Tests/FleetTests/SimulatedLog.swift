@testable import Fleet

/// The log of one shard, as an engine has it.
struct SimulatedLog {
  /// The oldest one first.
  private(set) var entries: [[UInt8]] = []
  /// The entries before them, which were removed.
  private var removedCount = 0
  private(set) var byteCount = 0

  /// The sequence number of the last entry.
  var last: Int { removedCount + entries.count }
  private var first: UInt64 { last == 0 ? 0 : UInt64(removedCount + 1) }
  var newest: FleetNewest { FleetNewest(last: UInt64(last), entry: entries.last) }

  /// Appends an entry if the last one has the expected number: the fence.
  mutating func append(_ bytes: [UInt8], after: UInt64) -> ShardMachine.AppendResult {
    guard after == UInt64(last) else { return .refused(last: UInt64(last)) }
    entries.append(bytes)
    byteCount += bytes.count
    return .stored
  }

  /// - Parameters:
  ///   - last: the last entry of the replica that answers.
  ///   - limit: the maximum number of entries.
  func read(after: UInt64, upTo last: Int, limit: Int) -> FleetEntries {
    let start = max(min(Int(clamping: after), last), removedCount)
    let found = (start..<max(start, min(last, start + limit))).map { (UInt64($0 + 1), entries[$0 - removedCount]) }
    return FleetEntries(entries: found, first: last == 0 ? 0 : first, last: UInt64(last))
  }

  /// The newest claim.
  /// - Parameter last: as for `read`.
  func findClaim(upTo last: Int) -> FleetClaim {
    let place = entries.indices.prefix(max(0, last - removedCount)).last {
      if case .claim = (try? ShardEntry(entries[$0]))?.content { true } else { false }
    }
    return place.map { .found(entries[$0], sequence: UInt64(removedCount + $0 + 1)) } ?? .none(last: UInt64(last))
  }

  /// Removes the oldest entries if there are more bytes than this, so that an eighth is free again.
  mutating func limit(toBytes limit: Int) {
    guard byteCount > limit else { return }
    var count = 0
    while byteCount > limit - limit / 8 {
      byteCount -= entries[count].count
      count += 1
    }
    entries.removeFirst(count)
    removedCount += count
  }

  /// The engine loses its last entries.
  mutating func lose(_ count: Int) {
    byteCount -= entries.suffix(count).reduce(0) { $0 + $1.count }
    entries.removeLast(count)
  }
}
