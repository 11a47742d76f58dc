import Glibc
import StreamRuntime

/// A point in civil time, in whole milliseconds.
struct WallTime: Equatable {
  /// Milliseconds since 1970-01-01T00:00:00Z.
  let milliseconds: Int

  /// The system clock's present time.
  static var now: WallTime { WallTime(milliseconds: Int(EventLoop.wallClock() / 1000)) }

  /// RFC 3339 in UTC with three decimals: `2026-01-02T03:04:05.678Z`.
  var description: String {
    var seconds = time_t((milliseconds - milliseconds.positiveRemainder(1000)) / 1000)
    var date = unsafe tm()
    unsafe gmtime_r(&seconds, &date)
    func padded(_ number: some BinaryInteger, _ width: Int) -> String {
      let digits = String(number)
      return String(repeating: "0", count: max(0, width - digits.count)) + digits
    }
    let day = unsafe "\(padded(date.tm_year + 1900, 4))-\(padded(date.tm_mon + 1, 2))-\(padded(date.tm_mday, 2))"
    let time = unsafe "\(padded(date.tm_hour, 2)):\(padded(date.tm_min, 2)):\(padded(date.tm_sec, 2))"
    return "\(day)T\(time).\(padded(milliseconds.positiveRemainder(1000), 3))Z"
  }
}

extension Int {
  fileprivate func positiveRemainder(_ divisor: Int) -> Int {
    let rest = self % divisor
    return rest < 0 ? rest + divisor : rest
  }
}
