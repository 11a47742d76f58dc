import Events
import RSocket

/// Names one publisher of a stream. A name is its user's own: another user's publisher of that name is another one.
struct PublisherKey: Hashable, Sendable {
  /// Of a client without credentials.
  static let noUser = UInt32.max

  let user: UInt32
  /// 1 to ``PublisherEntry/maximumNameBytes`` bytes.
  let name: [UInt8]

  init(_ name: [UInt8], of credentials: PeerCredentials?) {
    self.init(user: credentials?.user ?? Self.noUser, name: name)
  }

  /// Of a run that no other continues: it is forgotten before others once its last value is confirmed. Source: WIRE.md,
  /// "Named publishers".
  var isOfOneRun: Bool { name.first == 0 }

  fileprivate init(user: UInt32, name: [UInt8]) { (self.user, self.name) = (user, name) }
}

/// The number of the last value that a stream has of each named publisher. It is the checkpoint of a stream that clients
/// publish to, and so it is committed with the events.
///
/// Holds ``capacity`` publishers. Where there is no room for another one, a finished one of one run is forgotten, else of
/// the user with the most the one that has not published for longest: no user takes the room of another with fewer.
struct PublisherMarks: Equatable, Sendable {
  private struct Mark: Equatable {
    let key: PublisherKey
    var number: UInt64
    /// Its request was answered with COMPLETE. Not kept with the log.
    var isFinished = false
  }

  /// Those that published last come last.
  private var marks: [Mark] = []

  /// Publishers: as many as fit into a checkpoint, whatever the length of their names.
  static let capacity = 64
  /// "PUBM" and the version.
  private static let head: [UInt8] = [0x50, 0x55, 0x42, 0x4D, 1]
  private static let markBytes = 13

  /// None.
  init() {}

  /// Those of a checkpoint; none if it is another source's, or damaged.
  init(_ checkpoint: Checkpoint?) {
    guard var rest = checkpoint?.bytes[...], rest.starts(with: Self.head) else { return }
    rest = rest.dropFirst(Self.head.count)
    func number(_ count: Int) -> UInt64 {
      defer { rest = rest.dropFirst(count) }
      return rest.prefix(count).reduce(0) { $0 << 8 | UInt64($1) }
    }
    var found: [Mark] = []
    while !rest.isEmpty {
      guard rest.count > Self.markBytes, found.count < Self.capacity else { return }
      let (user, mark, count) = (UInt32(number(4)), number(8), Int(number(1)))
      guard (1...PublisherEntry.maximumNameBytes).contains(count), rest.count >= count, mark < 1 << 63 else { return }
      found.append(Mark(key: PublisherKey(user: user, name: Array(rest.prefix(count))), number: mark))
      rest = rest.dropFirst(count)
    }
    marks = found
  }

  /// - Returns: nil for a publisher that is not known, or not any more.
  subscript(key: PublisherKey) -> UInt64? { marks.last { $0.key == key }?.number }

  /// Notes the number of a publisher's last value.
  /// - Parameter isNeeded: whether a publisher must not be forgotten; not all of them.
  mutating func set(_ key: PublisherKey, to number: UInt64, sparing isNeeded: (PublisherKey) -> Bool) {
    if let last = marks.indices.last, marks[last].key == key {
      marks[last].number = number
      marks[last].isFinished = false
      return
    }
    if let index = marks.firstIndex(where: { $0.key == key }) {
      marks.remove(at: index)
    } else if marks.count == Self.capacity {
      marks.remove(at: indexToForget(sparing: isNeeded))
    }
    marks.append(Mark(key: key, number: number))
  }

  private func indexToForget(sparing isNeeded: (PublisherKey) -> Bool) -> Int {
    let candidates = marks.indices.filter { !isNeeded(marks[$0].key) }
    if let index = candidates.first(where: { marks[$0].isFinished }) { return index }
    let counts = marks.reduce(into: [:]) { $0[$1.key.user, default: 0] += 1 }
    let most = candidates.reduce(0) { max($0, counts[marks[$1].key.user] ?? 0) }
    return candidates.first { counts[marks[$0].key.user] == most } ?? 0
  }

  /// The publisher has been told that all is in the stream, and does not come back.
  mutating func finish(_ key: PublisherKey) {
    guard key.isOfOneRun, let index = marks.firstIndex(where: { $0.key == key }) else { return }
    marks[index].isFinished = true
  }

  /// Whether a user may publish under one more name at a time, when it has `count` and `free` are left: a dynamic threshold
  /// as for connections (`ServerLimits`). One without any may while there is one.
  static func admits(userWith count: Int, free: Int) -> Bool { free > 0 && (count == 0 || count < 3 * free) }

  /// As it is kept with the log.
  var checkpoint: Checkpoint? {
    var bytes = Self.head
    for mark in marks {
      bytes.append(bigEndian: mark.key.user)
      bytes.append(bigEndian: mark.number)
      bytes.append(UInt8(mark.key.name.count))
      bytes += mark.key.name
    }
    return Checkpoint(bytes)
  }
}
