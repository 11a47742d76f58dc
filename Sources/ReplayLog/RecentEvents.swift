/// How many events came in each period of the last minutes.
///
/// The log reports its counters after each batch; a period is closed by the first report, or reading, after its end. So the
/// history needs no timer, and a batch costs one comparison. Times are those of events: microseconds since the Unix epoch.
public struct RecentEvents: Equatable, Sendable {
  /// The events of one period; as many as 32 bits can count.
  public struct Period: Equatable, Sendable {
    /// Their number.
    public var events: UInt32 = 0
    /// The bytes of their data.
    public var bytes: UInt32 = 0
  }

  /// Microseconds of a period. All streams' periods begin at the same times: at multiples of it.
  public static let periodMicroseconds: UInt64 = 5_000_000
  /// The number of periods that are kept: five minutes.
  public static let periodCount = 60

  /// The closed periods, the oldest one first; at most `periodCount`. Without memory until the first one is closed.
  private var closed: [Period] = []
  /// The number of the present period, counted from the epoch; 0: none has begun.
  private var present: UInt64 = 0
  /// The counters at the beginning of the present period, and in the last report.
  private var (startEvents, startBytes, events, bytes): (UInt64, UInt64, UInt64, UInt64) = (0, 0, 0, 0)

  /// When the last period before a time ended.
  public static func end(before time: UInt64) -> UInt64 { time - time % periodMicroseconds }

  /// The periods that ended before a time, the oldest one first; at most `periodCount`, fewer since the log's first event.
  /// If the time is earlier than all of them, because the clock was set back, the history begins anew.
  mutating func periods(before time: UInt64) -> [Period] {
    close(before: time)
    // A batch from another host can have a later time.
    return closed.dropLast(Int(clamping: present - min(present, time / Self.periodMicroseconds)))
  }

  /// Takes the log's counters after a batch.
  @inline(__always) mutating func note(_ time: UInt64, events: UInt64, bytes: UInt64) {
    if time >= (present &+ 1) &* Self.periodMicroseconds { close(before: time) }
    (self.events, self.bytes) = (events, bytes)
  }

  @inline(never) private mutating func close(before time: UInt64) {
    let next = time / Self.periodMicroseconds
    if present == 0 || next + UInt64(Self.periodCount) < present {
      (closed, present) = ([], next)
    } else if next > present {
      let period = Period(events: UInt32(clamping: events &- startEvents), bytes: UInt32(clamping: bytes &- startBytes))
      let idle = min(next - present - 1, UInt64(Self.periodCount))
      closed = (closed + [period] + repeatElement(Period(), count: Int(idle))).suffix(Self.periodCount)
      present = next
    } else {
      return
    }
    (startEvents, startBytes) = (events, bytes)
  }
}
