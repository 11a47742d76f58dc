/// An event in the log.
public struct LoggedEvent: Equatable, Sendable {
  /// Its position: rises by 1 from event to event.
  public let id: UInt64
  /// When the log stored it, in microseconds since the Unix epoch, by the system clock; or the time of its stamp. Events
  /// are ordered by id: the clock may have been set back between two events.
  public let time: UInt64
  /// Its bytes, unchanged.
  public let data: [UInt8]
}
