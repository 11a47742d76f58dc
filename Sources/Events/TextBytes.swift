/// Bytes that may come before a text or between its lines, and are not part of them.
extension Collection<UInt8> {
  /// The text without a byte order mark at its beginning.
  @inlinable package var withoutByteOrderMark: SubSequence {
    starts(with: [0xEF, 0xBB, 0xBF]) ? dropFirst(3) : self[...]
  }

  /// Whether all bytes are spaces, tabs or line ends.
  @inlinable package var isWhiteSpace: Bool { allSatisfy(\.isWhiteSpace) }
}

extension UInt8 {
  /// Whether this is a space, a tab or a line end.
  @inlinable package var isWhiteSpace: Bool { self == 0x20 || (0x09...0x0D).contains(self) }
}
