import Events
import RSocket

/// Identifies one named publisher of a stream. Names of different users are independent.
struct PublisherKey: Hashable, Sendable {
  let user: ClientUser
  /// 1 to ``PublisherEntry/maximumNameBytes`` bytes.
  let name: [UInt8]

  init(_ name: [UInt8], of user: ClientUser) { (self.user, self.name) = (user, name) }

  /// Whether the name belongs to one run: it is discarded first once its last value is confirmed. Source: WIRE.md,
  /// "Named publishers".
  var isOfOneRun: Bool { name.first == 0 }
}

/// The number of the last value that a stream has of each named publisher. It is the checkpoint of a stream that
/// clients publish to, so it is committed with the events.
///
/// Has at most ``capacity`` publishers. For a further one, a finished publisher of one run is discarded. If there is
/// none, the user with the most publishers loses the one that has not published for the longest time; all hosts count as
/// one user, and of users with as many, an owner is the last to lose one.
struct PublisherMarks: Equatable, Sendable {
  private struct Mark: Equatable {
    let key: PublisherKey
    var number: UInt64
    /// Whether its request was answered with COMPLETE. Not stored in the log.
    var isFinished = false
  }

  /// The marks, in the order of the publishers' last values.
  private var marks: [Mark] = []

  /// The number of publishers that fit into a checkpoint, regardless of the length of their names.
  static let capacity = 64
  /// "PUBM"; a byte with the version follows. Marks of version 1 have the numbers of users of the machine.
  private static let head: [UInt8] = [0x50, 0x55, 0x42, 0x4D]
  /// The user of other clients in version 1.
  private static let noUser = UInt32.max
  /// Maximum bytes of the name of a token in version 2.
  static let maximumTokenBytes = 48

  /// No marks.
  init() {}

  /// The marks of a checkpoint; none if it is another source's, or damaged.
  init(_ checkpoint: Checkpoint?) {
    guard var rest = checkpoint?.bytes[...], rest.starts(with: Self.head) else { return }
    rest = rest.dropFirst(Self.head.count)
    guard let version = rest.popFirst(), (1...2).contains(version) else { return }
    var found: [Mark] = []
    while !rest.isEmpty {
      guard found.count < Self.capacity, let user = version == 1 ? Self.user(in: &rest) : ClientUser(encodedIn: &rest),
        let mark = rest.number(8), mark < 1 << 63, let name = rest.text(atMost: PublisherEntry.maximumNameBytes)
      else { return }
      found.append(Mark(key: PublisherKey(Array(name), of: user), number: mark))
    }
    marks = found
  }

  private static func user(in bytes: inout ArraySlice<UInt8>) -> ClientUser? {
    bytes.number(4).map { $0 == UInt64(noUser) ? .unknown : .uid(UInt32($0)) }
  }

  /// - Returns: nil for a publisher without a mark.
  subscript(key: PublisherKey) -> UInt64? { marks.last { $0.key == key }?.number }

  /// Sets the number of a publisher's last value.
  /// - Parameter isNeeded: whether a publisher must not be discarded; it must not be true for all of them.
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
    func loser(_ index: Int) -> ClientUser {
      let user = marks[index].key.user
      return user.standing == .host ? .unknown : user
    }
    let counts = marks.indices.reduce(into: [:]) { $0[loser($1), default: 0] += 1 }
    let most = candidates.reduce(0) { max($0, counts[loser($1)] ?? 0) }
    let losers = candidates.filter { counts[loser($0)] == most }
    return losers.first { marks[$0].key.user.standing != .owner } ?? losers.first ?? 0
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

  /// The encoding in the log. Finished runs come first, except the newest: of one user's names, another process then discards
  /// them first as well, although it does not know that they have finished.
  var checkpoint: Checkpoint? {
    let former = marks.dropLast()
    let marks = former.filter(\.isFinished) + former.filter { !$0.isFinished } + marks.suffix(1)
    // As long as all users have numbers, earlier versions can read the marks, too, in the log and in the records of a
    // fleet.
    let numbers = marks.compactMap(\.key.user.number)
    let version: UInt8 = numbers.count == marks.count ? 1 : 2
    var bytes = Self.head + [version]
    for (index, mark) in marks.enumerated() {
      if version == 1 { bytes.append(bigEndian: numbers[index]) } else { mark.key.user.encode(into: &bytes) }
      bytes.append(bigEndian: mark.number)
      bytes.append(UInt8(mark.key.name.count))
      bytes += mark.key.name
    }
    return Checkpoint(bytes)
  }
}

/// Users in marks of version 2: a byte for the kind, and its content.
extension ClientUser {
  /// The number of the user in version 1; nil: version 1 has no such users.
  fileprivate var number: UInt32? {
    switch self {
    case .uid(let id): id
    case .unknown: .max
    case .ipv4, .ipv6, .token: nil
    }
  }

  fileprivate func encode(into bytes: inout [UInt8]) {
    switch self {
    case .unknown: bytes.append(0)
    case .uid(let id):
      bytes.append(1)
      bytes.append(bigEndian: id)
    case .ipv4(let address):
      bytes.append(2)
      bytes.append(bigEndian: address)
    case .ipv6(let prefix):
      bytes.append(3)
      bytes.append(bigEndian: prefix)
    case .token(let name): bytes += [4, UInt8(name.utf8.count)] + Array(name.utf8)
    }
  }

  fileprivate init?(encodedIn bytes: inout ArraySlice<UInt8>) {
    switch bytes.popFirst() {
    case 0: self = .unknown
    case 1:
      guard let id = bytes.number(4) else { return nil }
      self = .uid(UInt32(id))
    case 2:
      guard let address = bytes.number(4) else { return nil }
      self = ClientUser.ipv4(UInt32(address)).withOneLoopback
    case 3:
      guard let prefix = bytes.number(8) else { return nil }
      self = .ipv6(prefix)
    case 4:
      guard let name = bytes.text(atMost: PublisherMarks.maximumTokenBytes) else { return nil }
      self = .token(String(decoding: name, as: UTF8.self))
    default: return nil
    }
  }
}

extension ArraySlice<UInt8> {
  /// Removes a number, big endian; nil: it is cut off.
  fileprivate mutating func number(_ count: Int) -> UInt64? {
    guard self.count >= count else { return nil }
    defer { self = dropFirst(count) }
    return prefix(count).reduce(0) { $0 << 8 | UInt64($1) }
  }

  /// Removes 1 to `limit` bytes after their number.
  fileprivate mutating func text(atMost limit: Int) -> ArraySlice<UInt8>? {
    guard let count = popFirst().map(Int.init), (1...limit).contains(count), self.count >= count else { return nil }
    defer { self = dropFirst(count) }
    return prefix(count)
  }
}
