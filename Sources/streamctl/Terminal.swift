import Glibc

/// Standard output, if a person reads it.
enum Terminal {
  /// Whether it is a terminal.
  static var isOutput: Bool { isatty(STDOUT_FILENO) == 1 }

  /// Whether it shows colors, and the user has not set NO_COLOR (no-color.org).
  static let hasColors: Bool = {
    let wish = unsafe getenv("NO_COLOR").map { unsafe String(cString: $0) } ?? ""
    let kind = unsafe getenv("TERM").map { unsafe String(cString: $0) } ?? ""
    return isOutput && wish.isEmpty && !kind.isEmpty && kind != "dumb"
  }()

  /// A text in the color of a stream's state: red for states that need a person, yellow for states that wait.
  static func colored(_ text: String, asState state: String) -> String {
    let code =
      switch state {
      case "running": "32"
      case "waiting", "blocked": "33"
      case _ where state.hasPrefix("fail") || state.hasSuffix("stale"): "31"
      default: ""
      }
    return code.isEmpty ? text : "\u{1b}[\(code)m\(text)\u{1b}[m"
  }
}
