import ReplayLog
import StreamProtocol
import StreamServer

@testable import streamd

/// What the configuration says of a stream, and what the simulation does with it.
struct StreamSpecification: Equatable {
  enum Keep { case no, memory, disk }

  let name: String
  /// Clients publish to it; else it has an upstream.
  let isPublished: Bool
  var isServed = true
  var keep = Keep.memory
  var events = 16
  var bytes = 16 << 10
  var replay = 4
  var blocks = false
  var blockTimeout: Duration? = .seconds(20)
  var onLag = LagPolicy.skip
  var start = Configuration.Start.subscribed
  var linger = Duration.zero
  var age: Duration?
  /// Users that may; nil: anyone.
  var readers: [UInt32]?
  var writers: [UInt32]?

  init(_ name: String, isPublished: Bool) { (self.name, self.isPublished) = (name, isPublished) }

  func admits(reader user: Int64) -> Bool { Self.admits(readers, user) }
  func admits(writer user: Int64) -> Bool { Self.admits(writers, user) }

  private static func admits(_ users: [UInt32]?, _ user: Int64) -> Bool {
    users.map { users in users.contains { Int64($0) == user } } ?? true
  }

  /// As the configuration file has it.
  var configuration: Configuration.Stream {
    var stream = Configuration.Stream(
      name: name, source: isPublished ? .publish : .timer(.init(every: .seconds(1))))
    stream.replay = min(replay, events)
    stream.buffer = .init(events: events, bytes: bytes, age: age)
    stream.start = start
    stream.linger = linger
    stream.onLag = onLag
    stream.overflow = blocks ? .block : .drop
    stream.blockTimeout = blockTimeout
    stream.keep = keep == .no ? .no : keep == .memory ? .memory : .disk
    stream.read = readers.map { $0.map { .user($0) } } ?? [.anyone]
    stream.write = writers.map { $0.map { .user($0) } } ?? [.anyone]
    return stream
  }

  /// Data bytes of the largest event.
  var largestEvent: Int { EventLog.Limits(configuration.buffer).maximumEventBytes }

  static let users: [UInt32] = [1000, 1001, 1002]

  /// Another one, as an operator may write it next.
  mutating func change(_ random: inout Random, keepsRules: Bool = false) {
    switch random.below(9) {
    case 0: readers = random.chance(50) ? nil : [random.pick(Self.users)]
    case 1: writers = random.chance(50) ? nil : [random.pick(Self.users)]
    case 2: events = random.pick([1, 2, 3, 8, 16, 64])
    case 3: bytes = random.pick([4096, 8192, 16 << 10, 160 << 10])
    case 4: keep = random.pick([.no, .memory, .memory, .disk, .disk])
    case 5: blocks.toggle()
    case 6: onLag = random.pick([.skip, .latest, .fail])
    case 7:
      start = random.pick([.subscribed, .subscribed, .first, .always])
      linger = random.pick([.zero, .zero, .seconds(5)])
    default:
      blockTimeout = random.pick([nil, .seconds(5), .seconds(20)])
      replay = random.pick([0, 1, 4, 64])
      age = random.chance(80) ? nil : .seconds(30)
    }
  }

  static func random(_ name: String, isPublished: Bool, _ random: inout Random) -> Self {
    var made = Self(name, isPublished: isPublished)
    for _ in 0..<random.below(8) { made.change(&random) }
    if random.chance(70) { made.readers = nil }
    if random.chance(70) { made.writers = nil }
    return made
  }
}
