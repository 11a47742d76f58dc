/// Reads a time from its beginning on. Source: RFC 3339, section 5.6.
package struct RFC3339Time {
  private var rest: Substring.UTF8View

  package init(_ text: String) { rest = text[...].utf8 }

  /// The time, without digits after those of microseconds. A leap second is the first second of the next minute.
  /// - Returns: nil for other text, and for a day or an hour that does not exist.
  package mutating func microsecondsSinceEpoch() -> Int? {
    guard let year = number(ofDigits: 4, in: 0...9999), take("-") != nil,
      let month = number(ofDigits: 2, in: 1...12), take("-") != nil,
      let day = number(ofDigits: 2, in: 1...Self.dayCount(of: month, year)), take("Tt ") != nil,
      let hour = number(ofDigits: 2, in: 0...23), take(":") != nil,
      let minute = number(ofDigits: 2, in: 0...59), take(":") != nil,
      let second = number(ofDigits: 2, in: 0...60), let microseconds = fraction(), let offset = offsetInMinutes(),
      rest.isEmpty
    else { return nil }
    let minutes = (Self.days(before: month, year) + day - 1) * 1440 + hour * 60 + minute - offset
    return (minutes * 60 + second) * 1_000_000 + microseconds
  }

  /// Takes one of these characters.
  private mutating func take(_ characters: String) -> UInt8? {
    guard let first = rest.first, characters.utf8.contains(first) else { return nil }
    return rest.removeFirst()
  }

  private mutating func number(ofDigits count: Int, in range: ClosedRange<Int>) -> Int? {
    var number = 0
    for _ in 0..<count {
      guard let digit = take("0123456789") else { return nil }
      number = number * 10 + Int(digit - UInt8(ascii: "0"))
    }
    return range ~= number ? number : nil
  }

  /// The fraction of a second, in microseconds: 0 if there is none.
  private mutating func fraction() -> Int? {
    guard take(".") != nil else { return 0 }
    var (microseconds, unit) = (0, 1_000_000)
    while let digit = take("0123456789") {
      unit /= 10
      microseconds += Int(digit - UInt8(ascii: "0")) * unit
    }
    return unit < 1_000_000 ? microseconds : nil
  }

  private mutating func offsetInMinutes() -> Int? {
    guard take("Zz") == nil else { return 0 }
    guard let sign = take("+-"), let hour = number(ofDigits: 2, in: 0...23), take(":") != nil,
      let minute = number(ofDigits: 2, in: 0...59)
    else { return nil }
    return (hour * 60 + minute) * (sign == UInt8(ascii: "-") ? -1 : 1)
  }

  private static func isLeap(_ year: Int) -> Bool { year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) }

  private static func dayCount(of month: Int, _ year: Int) -> Int {
    month == 2 ? (isLeap(year) ? 29 : 28) : [4, 6, 9, 11].contains(month) ? 30 : 31
  }

  /// The days from 1 January 1970 to the first day of a month.
  private static func days(before month: Int, _ year: Int) -> Int {
    let last = year - 1
    let years = year * 365 + (year > 0 ? last / 4 - last / 100 + last / 400 + 1 : 0)
    return years - 719_528 + (1..<month).reduce(0) { $0 + dayCount(of: $1, year) }
  }
}
