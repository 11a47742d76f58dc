// Text that others may have chosen, where a person reads it.

extension Unicode.Scalar {
  /// Whether the character displays as something other than itself: control characters (C0, DEL, C1), which move a
  /// terminal's cursor; format characters (bidirectional controls, zero-width characters, tags), which reorder or hide
  /// adjacent text; and line and paragraph separators. `libstreamd/error.c` has the same set.
  package var isDeceptive: Bool {
    guard value >= 0x7f else { return value < 0x20 }
    return switch properties.generalCategory {
    case .control, .format, .lineSeparator, .paragraphSeparator: true
    default: false
    }
  }

  /// Whether the character joins letters or emoji: it is a format character, but moves nothing.
  package var isJoiner: Bool { self == "\u{200C}" || self == "\u{200D}" }
}

extension String {
  /// The text on one line, with escapes in Swift's notation for characters that could forge a line or control a terminal, as in
  /// the journal.
  package var escapedForTerminal: String { escaped { $0.isDeceptive } }

  /// As above, but with the joiners of scripts and emoji.
  package var escapedForReading: String { escaped { $0.isDeceptive && !$0.isJoiner } }

  private func escaped(_ isEscaped: (Unicode.Scalar) -> Bool) -> String {
    unicodeScalars.reduce(into: "") { text, scalar in
      if isEscaped(scalar) { text += scalar.escaped(asASCII: true) } else { text.unicodeScalars.append(scalar) }
    }
  }
}
