extension Journal {
  /// The levels of syslog, most urgent first; the raw value is the journal's PRIORITY.
  public enum Priority: UInt8, Sendable, CaseIterable, Comparable {
    case emergency, alert, critical, error, warning, notice, info, debug

    /// Reads a name of the configuration: `emergency` … `debug`.
    public init?(name: String) {
      guard let found = Self.allCases.first(where: { "\($0)" == name }) else { return nil }
      self = found
    }

    /// Less is more urgent.
    public static func < (a: Self, b: Self) -> Bool { a.rawValue < b.rawValue }
  }

  /// A field beside the message, by which `journalctl` can select.
  public struct Field: Sendable, Equatable {
    /// Upper-case letters, digits and `_`, a letter first: the journal drops others.
    public let name: String
    /// Any text.
    public let value: String

    /// A field of one's own; the three usual ones have functions.
    public init(_ name: String, _ value: String) {
      (self.name, self.value) = (name, value)
    }

    /// Which stream this is about.
    public static func stream(_ name: String) -> Field { Field("STREAMD_STREAM", name) }
    /// Which connection this is about.
    public static func client(_ id: some CustomStringConvertible) -> Field { Field("STREAMD_CLIENT", id.description) }
    /// Whose process is at the other end of the connection.
    public static func uid(_ uid: UInt32) -> Field { Field("STREAMD_UID", "\(uid)") }
  }

  /// One thing that happened.
  public struct Entry: Sendable, Equatable {
    /// What kind of thing; entries of one kind about one stream or user share a flood limit.
    public var messageID: MessageID?
    /// How urgent.
    public var priority: Priority
    /// One sentence for people.
    public var message: String
    /// The same for programs.
    public var fields: [Field]

    /// One thing that happened.
    public init(_ messageID: MessageID?, _ priority: Priority, _ message: String, _ fields: [Field] = []) {
      (self.messageID, self.priority, self.message, self.fields) = (messageID, priority, message, fields)
    }
  }
}

extension Journal.Entry {
  /// Bytes of one message or field that are kept: names and messages of peers end up here, and what comes from outside
  /// has a bound.
  static let textLimit = 4096

  /// The entry as the journal takes it: `NAME=value`, one after the other. Fields are escaped like the message:
  /// `journalctl -x` prints them as they are.
  var assignments: [String] {
    var assignments = ["MESSAGE=" + Self.onOneLine(message), "PRIORITY=\(priority.rawValue)"]
    if let messageID { assignments.append("MESSAGE_ID=\(messageID)") }
    assignments.append("SYSLOG_IDENTIFIER=streamd")
    return assignments + fields.map { $0.name + "=" + Self.onOneLine($0.value) }
  }

  /// The entry for people at a terminal: the message, then `stream=… client=… uid=…`, and a newline.
  var line: String {
    let suffixes = fields.map { field in
      let name = field.name.hasPrefix("STREAMD_") ? String(field.name.dropFirst("STREAMD_".count)) : field.name
      return " \(name.lowercased())=" + Self.quotedIfNeeded(Self.onOneLine(field.value))
    }
    return Self.onOneLine(message) + suffixes.joined() + "\n"
  }

  /// A peer chooses some of this text: it must not be able to forge a line or to steer a terminal.
  private static func onOneLine(_ text: String) -> String {
    clipped(text).escapedForTerminal
  }

  private static func quotedIfNeeded(_ value: String) -> String {
    guard value.isEmpty || value.unicodeScalars.contains(where: { " \"=".unicodeScalars.contains($0) }) else {
      return value
    }
    return value.unicodeScalars.reduce(into: "\"") { $0 += $1 == "\"" ? "\\\"" : String($1) } + "\""
  }

  private static func clipped(_ text: String) -> String {
    guard text.utf8.count > textLimit else { return text }
    // A range that ends inside a scalar is rounded down to where that begins.
    return text[..<text.utf8.index(text.startIndex, offsetBy: textLimit)] + "…"
  }
}
