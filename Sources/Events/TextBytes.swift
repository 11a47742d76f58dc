/// Bytes that may come before a text or between its lines, and are no part of them.
extension Collection<UInt8> {
  /// The text without a byte order mark at its beginning.
  @inlinable package var withoutByteOrderMark: SubSequence {
    starts(with: [0xEF, 0xBB, 0xBF]) ? dropFirst(3) : self[...]
  }

  /// Whether it has nothing but spaces, tabs and ends of lines.
  @inlinable package var isWhiteSpace: Bool { allSatisfy(\.isWhiteSpace) }
}

extension UInt8 {
  /// Whether it is a space, a tab or an end of a line.
  @inlinable package var isWhiteSpace: Bool { self == 0x20 || (0x09...0x0D).contains(self) }
}
