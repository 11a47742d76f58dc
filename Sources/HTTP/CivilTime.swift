/// Returns the form `2026-01-02T03:04:05.678901Z` of a time. Source: RFC 3339.
public func timestamp(microsecondsSinceEpoch time: UInt64) -> String {
  var bytes: [UInt8] = []
  ByteWriter.append(to: &bytes) {
    CivilTime(secondsSinceEpoch: time / 1_000_000).writeRFC3339(microseconds: time % 1_000_000, to: &$0)
  }
  return String(decoding: bytes, as: UTF8.self)
}

/// A time in UTC by the Gregorian calendar.
struct CivilTime {
  private let year, month, day, hour, minute, second: UInt64
  /// From 0, Sunday.
  private let weekday: UInt64

  /// - Parameter seconds: later than the end of the year 9999 means its last second.
  /// - Source: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", civil_from_days.
  init(secondsSinceEpoch seconds: UInt64) {
    let seconds = min(seconds, 253_402_300_799)
    let days = seconds / 86_400
    (hour, minute, second) = (seconds % 86_400 / 3600, seconds % 3600 / 60, seconds % 60)
    weekday = (days + 4) % 7
    let shifted = days + 719_468  // since 1 March of the year 0, in eras of 400 years
    let dayOfEra = shifted % 146_097
    let yearOfEra = (dayOfEra - dayOfEra / 1460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
    let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
    let monthFromMarch = (5 * dayOfYear + 2) / 153
    day = dayOfYear - (153 * monthFromMarch + 2) / 5 + 1
    month = monthFromMarch < 10 ? monthFromMarch + 3 : monthFromMarch - 9
    year = shifted / 146_097 * 400 + yearOfEra + (month <= 2 ? 1 : 0)
  }

  /// Writes the form of a Date field, `Sun, 06 Nov 1994 08:49:37 GMT`. Source: RFC 9110, section 5.6.7.
  func writeIMFFixdate(to writer: inout ByteWriter) {
    writer.append(Self.weekdays[Int(weekday)])
    writer.append(day, digitCount: 2, base: 10)
    writer.append(Self.months[Int(month) - 1])
    writer.append(year, digitCount: 4, base: 10)
    writer.append(.space)
    writeClock(to: &writer)
    writer.append(" GMT")
  }

  /// Writes the form `2026-01-02T03:04:05.678901Z`. Source: RFC 3339.
  func writeRFC3339(microseconds: UInt64, to writer: inout ByteWriter) {
    writer.append(year, digitCount: 4, base: 10)
    writer.append("-")
    writer.append(month, digitCount: 2, base: 10)
    writer.append("-")
    writer.append(day, digitCount: 2, base: 10)
    writer.append("T")
    writeClock(to: &writer)
    writer.append(".")
    writer.append(microseconds, digitCount: 6, base: 10)
    writer.append("Z")
  }

  private func writeClock(to writer: inout ByteWriter) {
    writer.append(hour, digitCount: 2, base: 10)
    writer.append(":")
    writer.append(minute, digitCount: 2, base: 10)
    writer.append(":")
    writer.append(second, digitCount: 2, base: 10)
  }

  private static let weekdays = ["Sun, ", "Mon, ", "Tue, ", "Wed, ", "Thu, ", "Fri, ", "Sat, "]
  private static let months = [
    " Jan ", " Feb ", " Mar ", " Apr ", " May ", " Jun ", " Jul ", " Aug ", " Sep ", " Oct ", " Nov ", " Dec ",
  ]
}
