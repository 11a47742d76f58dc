import Glibc
import StreamRuntime

/// Standard output, if a person reads it.
enum Terminal {
  /// Whether it is a terminal.
  static let isOutput = isatty(STDOUT_FILENO) == 1

  /// The data of an event for standard output: for a terminal without what controls it, otherwise unchanged.
  static func shown(_ data: [UInt8], isJSON: Bool) -> [UInt8] {
    guard isOutput else { return data }
    return isJSON ? escapedJSON(data) : escapedText(data)
  }

  /// Valid JSON in which characters that control a terminal are escaped, as JSON does. They only occur within strings.
  static func escapedJSON(_ json: [UInt8]) -> [UInt8] {
    let text = String(decoding: json, as: UTF8.self)
    guard text.unicodeScalars.contains(where: { isEscaped($0) && !isSpace($0) }) else { return json }
    var result = ""
    for scalar in text.unicodeScalars {
      if isSpace(scalar) || !isEscaped(scalar) {
        result.unicodeScalars.append(scalar)
      } else {
        result += JSONText.string(String(scalar)).dropFirst().dropLast()
      }
    }
    return Array(result.utf8)
  }

  /// Text, or bytes, in which characters that control a terminal are escaped, but for line breaks and tabs.
  static func escapedText(_ data: [UInt8]) -> [UInt8] {
    let scalars = Array(String(decoding: data, as: UTF8.self).unicodeScalars)
    var result = ""
    for (index, scalar) in scalars.enumerated() {
      let endsLine = scalar == "\r" && index + 1 < scalars.count && scalars[index + 1] == "\n"
      if endsLine || scalar == "\n" || scalar == "\t" || !isEscaped(scalar) {
        result.unicodeScalars.append(scalar)
      } else {
        result += scalar.escaped(asASCII: true)
      }
    }
    return Array(result.utf8)
  }

  private static func isEscaped(_ scalar: Unicode.Scalar) -> Bool { scalar.isDeceptive && !scalar.isJoiner }

  /// Whether JSON has the character between tokens.
  private static func isSpace(_ scalar: Unicode.Scalar) -> Bool { scalar == "\n" || scalar == "\r" || scalar == "\t" }

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
