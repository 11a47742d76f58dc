extension Duration {
  /// Whole nanoseconds, towards zero. What does not fit into 64 bits (292 years) is the nearest number that does, as in
  /// the other units.
  package var wholeNanoseconds: Int { Int(clamping: attoseconds / 1_000_000_000) }
  /// Whole microseconds, as above.
  package var wholeMicroseconds: Int { Int(clamping: attoseconds / 1_000_000_000_000) }
  /// Whole milliseconds, as above.
  package var wholeMilliseconds: Int { Int(clamping: attoseconds / 1_000_000_000_000_000) }
}
