extension Duration {
  /// Whole nanoseconds, rounded towards zero. A value beyond 64 bits (292 years) is clamped, as in the other units.
  package var wholeNanoseconds: Int { Int(clamping: attoseconds / 1_000_000_000) }
  /// Whole microseconds, as above.
  package var wholeMicroseconds: Int { Int(clamping: attoseconds / 1_000_000_000_000) }
  /// Whole milliseconds, as above.
  package var wholeMilliseconds: Int { Int(clamping: attoseconds / 1_000_000_000_000_000) }
}
