import StreamRuntime

extension Journal {
  /// The levels of syslog, most urgent first; the raw value is the journal's PRIORITY.
  public enum Priority: UInt8, Sendable, CaseIterable, Comparable {
    case emergency, alert, critical, error, warning, notice, info, debug

    /// Parses a name of the configuration: `emergency` … `debug`.
    public init?(name: String) {
      guard let found = Self.allCases.first(where: { "\($0)" == name }) else { return nil }
      self = found
    }

    /// Less is more urgent.
    public static func < (a: Self, b: Self) -> Bool { a.rawValue < b.rawValue }
  }

  /// A structured field, by which `journalctl` can filter.
  public struct Field: Sendable, Equatable {
    /// Upper-case letters, digits and `_`, starting with a letter: the journal drops other names.
    public let name: String
    /// Any text.
    public let value: String

    /// A custom field; the three usual ones have functions.
    public init(_ name: String, _ value: String) {
      (self.name, self.value) = (name, value)
    }

    /// The stream that the entry is about.
    public static func stream(_ name: String) -> Field { Field("STREAMD_STREAM", name) }
    /// The connection that the entry is about.
    public static func client(_ id: some CustomStringConvertible) -> Field { Field("STREAMD_CLIENT", id.description) }
    /// The user of the connection's peer.
    public static func uid(_ uid: UInt32) -> Field { Field("STREAMD_UID", "\(uid)") }
    /// The name of the template that the entry is about.
    public static func template(_ name: String) -> Field { Field("STREAMD_TEMPLATE", name) }
    /// The name of the token of a client over TCP.
    public static func token(_ name: String) -> Field { Field("STREAMD_TOKEN", name) }
  }

  /// One journal entry.
  public struct Entry: Sendable, Equatable {
    /// Its kind; entries of one kind about one stream or user share a flood limit.
    public var messageID: MessageID?
    /// Its urgency.
    public var priority: Priority
    /// A sentence for people, without the names of the client and the stream: `text` begins with these.
    public var message: String
    /// The same content for programs.
    public var fields: [Field]

    /// Creates an entry.
    public init(_ messageID: MessageID?, _ priority: Priority, _ message: String, _ fields: [Field] = []) {
      (self.messageID, self.priority, self.message, self.fields) = (messageID, priority, message, fields)
    }
  }
}

extension Journal.Entry {
  /// Maximum bytes of a message or field: both can contain names and messages of peers, which must be bounded.
  static let textLimit = 4096

  /// The names of the client and the stream that the entry is about, then the message: `journalctl` prints no fields.
  /// A client may have chosen the stream's name, which therefore never precedes the client's.
  var text: String {
    func value(_ field: Journal.Field) -> String? { fields.first { $0.name == field.name }?.value }
    var names: [String] = []
    if let client = value(.client(0)) {
      let user = value(.uid(0)).map { " (uid \($0))" } ?? value(.token("")).map { " (token \($0))" }
      names.append("client \(client)\(user ?? "")")
    }
    if let stream = value(.stream("")) { names.append(stream) }
    return (names + [message]).joined(separator: ": ")
  }

  /// The entry in the journal's format, a list of `NAME=value`. Fields are escaped like the text: `journalctl -x`
  /// prints them unchanged.
  var assignments: [String] {
    var assignments = ["MESSAGE=" + Self.onOneLine(text), "PRIORITY=\(priority.rawValue)"]
    if let messageID { assignments.append("MESSAGE_ID=\(messageID)") }
    assignments.append("SYSLOG_IDENTIFIER=streamd")
    return assignments + fields.map { $0.name + "=" + Self.onOneLine($0.value) }
  }

  /// The entry for a terminal: its text and a newline.
  var line: String { Self.onOneLine(text) + "\n" }

  /// Escapes text that a peer may have chosen: it must not forge a line or control a terminal.
  private static func onOneLine(_ text: String) -> String {
    clipped(text).escapedForTerminal
  }

  private static func clipped(_ text: String) -> String {
    guard text.utf8.count > textLimit else { return text }
    // A range that ends inside a scalar is rounded down to the scalar's start.
    return text[..<text.utf8.index(text.startIndex, offsetBy: textLimit)] + "…"
  }
}
