import Events
import ReplayLog

@testable import streamd

/// What the keys of a stream's events are, and which of them are tombstones.
struct Keys: Hashable, CaseIterable, CustomStringConvertible {
  enum Member: String, CaseIterable {
    /// Few strings.
    case k
    /// Ten numbers, each of them written in one of several ways.
    case m
    /// Another number for each event of a maker.
    case n
  }

  let member: Member
  let hasTombstones: Bool

  static let allCases = Member.allCases.flatMap {
    [Self(member: $0, hasTombstones: false), Self(member: $0, hasTombstones: true)]
  }

  static func random(_ random: inout Random) -> Self {
    Self(member: random.pick([.k, .k, .m, .m, .n]), hasTombstones: random.chance(70))
  }

  var definition: KeyDefinition {
    KeyDefinition(key: ".\(member.rawValue)", tombstone: hasTombstones ? ".gone" : nil)
  }

  /// The key of an event; nil: it has none.
  func key(of content: Content?) -> UInt64? {
    guard let content, content.form == .object else { return nil }
    return switch member {
    case .k: content.keyNumber
    case .m: content.quarters
    case .n: content.number
    }
  }

  func isTombstone(_ content: Content?) -> Bool { hasTombstones && content?.isGone == true }

  var description: String { "key .\(member.rawValue)\(hasTombstones ? ", tombstone .gone" : "")" }

  /// The definition that a state has.
  static func of(digest: UInt64) -> Self? { byDigest[digest] }

  private static let byDigest = Dictionary(
    uniqueKeysWithValues: allCases.map { keys in
      var stream = Configuration.Stream(name: "", source: .init(Configuration.Publish()))
      stream.key = keys.definition
      return (EventLog.Limits(stream).state?.keyDigest ?? 0, keys)
    })
}

/// The events of a stream in order, for the state of its keys.
struct History {
  struct Entry {
    let id: UInt64
    let content: Content?
    /// The number of the loss by which it went; nil: it counts.
    var lostAt: Int?
  }

  private var present: [Entry] = []
  private var lost: [Entry] = []
  /// How often events were lost so far.
  private(set) var losses = 0

  /// An event that was appended, or found in a log.
  mutating func add(_ id: UInt64, _ content: Content?) {
    var index = present.count
    while index > 0, present[index - 1].id >= id { index -= 1 }
    guard index == present.count || present[index].id != id else { return }
    present.insert(Entry(id: id, content: content), at: index)
  }

  /// The log does not have the events after this one any more, nor does anything else.
  mutating func lose(after id: UInt64) {
    losses += 1
    let count = present.count { $0.id <= id }
    lost += present[count...].map { Entry(id: $0.id, content: $0.content, lostAt: losses) }
    present.removeSubrange(count...)
  }

  /// - Parameter former: the value of `losses` before which events were lost that do not count.
  func entries(since former: Int) -> [Entry] {
    guard former < losses else { return present }
    let later = lost.filter { $0.lostAt! > former }
    return later.isEmpty ? present : (present + later).sorted { $0.id < $1.id }
  }

  /// The id of each key's newest event.
  func state(of keys: Keys, from first: UInt64, below end: UInt64, since former: Int) -> [UInt64: UInt64] {
    var state: [UInt64: UInt64] = [:]
    for entry in entries(since: former) where entry.id >= first && entry.id < end {
      guard let key = keys.key(of: entry.content) else { continue }
      state[key] = keys.isTombstone(entry.content) ? nil : entry.id
    }
    return state
  }
}
