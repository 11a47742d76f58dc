/// The ids and times under which a log stores the events of a batch, instead of its own. The events have these on every
/// host of a fleet. The ids rise by 1 from event to event.
public struct EventStamps: Equatable, Sendable {
  /// The maximum size of a position in bytes.
  public static let maximumPositionByteCount = 104

  /// The first event's id; in a batch without events, the next event's.
  public let firstID: UInt64
  /// How far the fleet's log was read once the whole batch is in this log, in the fleet's own format; nil: the position
  /// before this batch stays valid.
  public let position: [UInt8]?
  /// The time of all events, if `times` is nil.
  private let time: UInt64
  private let times: [UInt64]?

  /// - Parameters:
  ///   - times: one for each event, in microseconds since the Unix epoch; any values.
  ///   - position: 1 to `maximumPositionByteCount` bytes.
  /// - Returns: nil for a position of another size.
  public init?(firstID: UInt64, times: [UInt64], position: [UInt8]? = nil) {
    guard Self.isPossible(position) else { return nil }
    (self.firstID, self.position, time, self.times) = (firstID, position, 0, times)
  }

  /// Events with one common time, which needs no memory for each event.
  /// - Returns: as above.
  public init?(firstID: UInt64, time: UInt64, position: [UInt8]? = nil) {
    guard Self.isPossible(position) else { return nil }
    (self.firstID, self.position, self.time, times) = (firstID, position, time, nil)
  }

  /// Equal times have one form: no array, and 0 without events.
  private init(_ firstID: UInt64, _ times: some Collection<UInt64>, _ position: [UInt8]?) {
    let time = times.first ?? 0
    let isOne = times.allSatisfy { $0 == time }
    (self.firstID, self.position) = (firstID, position)
    (self.time, self.times) = isOne ? (time, nil) : (0, Array(times))
  }

  private static func isPossible(_ position: [UInt8]?) -> Bool {
    position.map { (1...maximumPositionByteCount).contains($0.count) } ?? true
  }

  /// The id of the event with this index in the batch.
  public func id(_ index: Int) -> UInt64 { firstID + UInt64(index) }

  /// The time of the event with this index in the batch.
  public func time(_ index: Int) -> UInt64 { times?[index] ?? time }

  /// The stamps of `count` events; nil if the number of times differs, or an id overflows.
  func fitted(to count: Int) -> EventStamps? {
    guard times.map({ $0.count == count }) ?? true, !firstID.addingReportingOverflow(UInt64(count)).overflow else {
      return nil
    }
    return part(0..<count, of: count)
  }

  /// The stamps of a part of `count` events; it has the position only if it includes the last event.
  func part(_ range: Range<Int>, of count: Int) -> EventStamps {
    let position = range.upperBound == count ? position : nil
    guard let times else { return EventStamps(id(range.lowerBound), range.prefix(1).map { _ in time }, position) }
    return EventStamps(id(range.lowerBound), times[range], position)
  }

  /// The stamps of a batch of `count` events and of one that continues it.
  func followed(after count: Int, by next: EventStamps, _ nextCount: Int) -> EventStamps {
    let isOne = times == nil && next.times == nil && (time == next.time || nextCount == 0)
    let all = isOne ? [time] : (0..<count).map(time) + (0..<nextCount).map(next.time)
    return EventStamps(firstID, all, next.position ?? position)
  }
}
