import ReplayLog
import StreamRuntime

/// The time from which a client of a pattern resumes after an event, so that it has every event of the streams once or more.
struct PatternPosition: Equatable {
  /// All events of the other streams before this time were sent.
  fileprivate var limit: UInt64
  /// After the newest event of its stream, the time is this one at least.
  fileprivate var floor: UInt64
  /// When the client began: before this time there is no position.
  fileprivate var start: UInt64

  /// - Parameter time: that of the event.
  /// - Returns: 0 for no position.
  func after(eventOf time: UInt64, isNewest: Bool) -> UInt64 {
    let position = min(limit, isNewest ? max(time, floor) : time)
    return position < start ? 0 : position
  }

  /// Drops what cannot matter to the events from `cursor` on, so that clients share a block; under the log's lock.
  mutating func settle(in storage: EventLog, at cursor: UInt64) {
    guard cursor >= storage.firstPosition, cursor < storage.endPosition, storage.skip(cursor) == cursor else { return }
    let time = storage.time(of: cursor)
    if limit >= max(floor, storage.newestTime ?? .max) { limit = .max }
    if floor <= time { floor = 0 }
    if start <= time { start = 0 }
  }
}

/// What a reader of a pattern knows about the times of events that were not sent.
///
/// Streams are not sent in the order of time, and an event is seen later than it is stored. The reader therefore looks at the
/// next event of each member, under the lock of its log: events that are stored later have later times. With many members
/// that takes long, so that there is a pause after it.
struct PatternClock {
  /// The time from which the client resumes before the first event.
  let start: UInt64
  /// Events of streams that hosts share may come this long after their time, in microseconds.
  var slack: UInt64 = 0
  private var measuredAt: UInt64 = 0
  /// The time before which all events of all members were sent; and if one member is behind the others, theirs.
  private var least: UInt64 = 0
  private var leastOfOthers: UInt64 = 0
  private var slowest: ObjectIdentifier?
  /// When it is worth to look again, on the monotonic clock.
  private(set) var nextMeasure: UInt64 = 0

  static let fleetSlack: UInt64 = 30_000_000
  /// The pause for each member, in nanoseconds: about 32 times what a look at it takes.
  private static let pause = 10_000
  /// With this number of members there is none.
  private static let fewMembers = 64
  /// Times within such a period are the same to events that are older.
  private static let period: UInt64 = 10_000_000

  init(start: UInt64) { self.start = start }

  /// Whether all events were sent that had been stored when the reader looked at the members.
  var isCurrent: Bool { measuredAt > 0 && least == measuredAt }

  /// The position when no event is being sent; 0: none.
  var position: UInt64 { least < start ? 0 : least }

  /// Looks at the next event of each member, unless it has done so shortly before, or a stream is not a member yet.
  mutating func measure(_ reader: PatternReader) {
    guard EventLoop.monotonicNow() >= nextMeasure else { return }
    let now = EventLoop.wallClock()  // before it is known that there is no other stream
    guard reader.hasAll else { return }
    measuredAt = now - min(now, slack)
    (least, leastOfOthers, slowest) = (measuredAt, measuredAt, nil)
    for (stream, member) in reader.members {
      guard let time = member.nextTime else { continue }
      if time < least {
        (leastOfOthers, least, slowest) = (least, time, stream)
      } else {
        leastOfOthers = min(leastOfOthers, time)
      }
    }
    let count = reader.members.count
    if count > Self.fewMembers { nextMeasure = EventLoop.monotonicNow() + UInt64(count * Self.pause) }
  }

  func position(for member: StreamSubscription) -> PatternPosition {
    let isSlowest = slowest == ObjectIdentifier(member.lane.stream)
    return PatternPosition(
      limit: isSlowest ? leastOfOthers : least, floor: max(measuredAt - measuredAt % Self.period, start), start: start)
  }
}

extension StreamSubscription {
  /// The time of the next event that it was not sent; nil: there is none.
  fileprivate var nextTime: UInt64? {
    let position = lane.position(of: self)
    return lane.stream.log.read { storage, _ in
      let next = storage.skip(max(position, storage.firstPosition))
      return next < storage.endPosition ? storage.time(of: next) : nil
    }
  }
}
