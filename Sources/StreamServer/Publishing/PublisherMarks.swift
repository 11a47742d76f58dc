import Events
import RSocket

/// Identifies one named publisher of a stream. Names of different users are independent.
struct PublisherKey: Hashable, Sendable {
  /// The user of clients without credentials.
  static let noUser = UInt32.max

  let user: UInt32
  /// 1 to ``PublisherEntry/maximumNameBytes`` bytes.
  let name: [UInt8]

  init(_ name: [UInt8], of credentials: PeerCredentials?) {
    self.init(user: credentials?.user ?? Self.noUser, name: name)
  }

  /// Whether the name belongs to one run: it is discarded first once its last value is confirmed. Source: WIRE.md,
  /// "Named publishers".
  var isOfOneRun: Bool { name.first == 0 }

  fileprivate init(user: UInt32, name: [UInt8]) { (self.user, self.name) = (user, name) }
}

/// The number of the last value that a stream has of each named publisher. It is the checkpoint of a stream that
/// clients publish to, so it is committed with the events.
///
/// Has at most ``capacity`` publishers. For a further one, a finished one of one run is discarded, otherwise, of
/// the user with the most, the one that has not published for the longest time.
struct PublisherMarks: Equatable, Sendable {
  private struct Mark: Equatable {
    let key: PublisherKey
    var number: UInt64
    /// Whether its request was answered with COMPLETE. In the log from the stream's next commit on.
    var isFinished = false
  }

  /// In the order of their last values.
  private var marks: [Mark] = []

  /// The number of publishers that fit into a checkpoint, whatever the length of their names.
  static let capacity = 64
  /// "PUBM" and the version.
  private static let head: [UInt8] = [0x50, 0x55, 0x42, 0x4D, 1]
  private static let markBytes = 13
  /// In a mark's number, whose values are below: its publisher has finished.
  private static let finished: UInt64 = 1 << 63

  /// No marks.
  init() {}

  /// The marks of a checkpoint; none if it is another source's, or damaged.
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
      guard (1...PublisherEntry.maximumNameBytes).contains(count), rest.count >= count else { return }
      let key = PublisherKey(user: user, name: Array(rest.prefix(count)))
      let isFinished = mark & Self.finished != 0
      guard key.isOfOneRun || !isFinished else { return }
      found.append(Mark(key: key, number: mark & ~Self.finished, isFinished: isFinished))
      rest = rest.dropFirst(count)
    }
    marks = found
  }

  /// - Returns: nil for a publisher without a mark.
  subscript(key: PublisherKey) -> UInt64? { marks.last { $0.key == key }?.number }

  /// Sets the number of a publisher's last value.
  /// - Parameter isNeeded: whether a publisher must not be discarded; not true for all of them.
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

  /// The publisher that has published last, and its number.
  var newest: (key: PublisherKey, number: UInt64)? { marks.last.map { ($0.key, $0.number) } }

  /// Takes over higher numbers, and publishers without a mark here.
  mutating func raise(to other: PublisherMarks, sparing isNeeded: (PublisherKey) -> Bool) {
    for mark in other.marks where mark.number > self[mark.key] ?? 0 {
      set(mark.key, to: mark.number, sparing: isNeeded)
    }
  }

  /// The publisher's completion was confirmed; it does not continue.
  mutating func finish(_ key: PublisherKey) {
    guard key.isOfOneRun, let index = marks.firstIndex(where: { $0.key == key }) else { return }
    marks[index].isFinished = true
  }

  /// Whether a user with `count` names may publish under one more while `free` are left: a dynamic threshold
  /// as for connections (`ServerLimits`). A first name is admitted while one is free.
  static func admits(userWith count: Int, free: Int) -> Bool { free > 0 && (count == 0 || count < 3 * free) }

  /// The encoding in the log.
  var checkpoint: Checkpoint? {
    var bytes = Self.head
    for mark in marks {
      bytes.append(bigEndian: mark.key.user)
      bytes.append(bigEndian: mark.number | (mark.isFinished ? Self.finished : 0))
      bytes.append(UInt8(mark.key.name.count))
      bytes += mark.key.name
    }
    return Checkpoint(bytes)
  }
}
