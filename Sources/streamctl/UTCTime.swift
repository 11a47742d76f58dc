import Glibc

/// A time as RFC 3339 text in UTC: `2026-11-20T16:01:11.123456Z`.
struct UTCTime: CustomStringConvertible {
  let microsecondsSinceEpoch: UInt64

  var description: String {
    var seconds = time_t(microsecondsSinceEpoch / 1_000_000)
    var parts = unsafe tm()
    unsafe gmtime_r(&seconds, &parts)
    let date = unsafe "\(digits(parts.tm_year + 1900, 4))-\(digits(parts.tm_mon + 1, 2))-\(digits(parts.tm_mday, 2))"
    let time = unsafe "\(digits(parts.tm_hour, 2)):\(digits(parts.tm_min, 2)):\(digits(parts.tm_sec, 2))"
    return "\(date)T\(time).\(digits(CInt(microsecondsSinceEpoch % 1_000_000), 6))Z"
  }

  private func digits(_ number: CInt, _ width: Int) -> String {
    let text = String(number)
    return String(repeating: "0", count: max(0, width - text.count)) + text
  }
}
