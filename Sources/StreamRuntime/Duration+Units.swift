extension Duration {
  /// Whole nanoseconds, rounded towards zero. A value beyond 64 bits (292 years) is clamped, as in the other units.
  package var wholeNanoseconds: Int { Int(clamping: attoseconds / 1_000_000_000) }
  /// Whole microseconds, as above.
  package var wholeMicroseconds: Int { Int(clamping: attoseconds / 1_000_000_000_000) }
  /// Whole milliseconds, as above.
  package var wholeMilliseconds: Int { Int(clamping: attoseconds / 1_000_000_000_000_000) }

  /// As in a configuration file, in the largest unit that gives a whole number: `500ms`, `90s`, `5m`, `2d`.
  package var inUnits: String {
    let milliseconds = wholeMilliseconds
    let units = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)]
    let unit = units.first { milliseconds > 0 && milliseconds % $0.1 == 0 } ?? ("ms", 1)
    return "\(milliseconds / unit.1)\(unit.0)"
  }

  /// For people, rounded to a noticeable step, but never to zero: `20 ms`, `1.3 s`, `90 s`, `5 min`, `2.5 h`, `1 day`.
  package var inWords: String {
    let clamped = min(max(.zero, self), .seconds(1 << 33))
    let milliseconds = (clamped.wholeNanoseconds + 999_999) / 1_000_000
    guard milliseconds >= 1000 else { return "\(milliseconds) ms" }
    // A unit, and from how many milliseconds on it is used.
    let units = [
      ("day", 86_400_000, from: 86_400_000), ("h", 3_600_000, from: 3_600_000), ("min", 60_000, from: 120_000),
      ("s", 1000, from: 0),
    ]
    let (name, length, _) = units.first { milliseconds >= $0.from } ?? units[3]
    let tenths = (milliseconds * 10 + length / 2) / length
    let number =
      tenths < 100 && tenths % 10 != 0
      ? "\(tenths / 10).\(tenths % 10)" : "\((milliseconds + length / 2) / length)"
    return "\(number) \(name)\(name == "day" && number != "1" ? "s" : "")"
  }
}
