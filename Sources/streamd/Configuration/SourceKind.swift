/// The kinds of sources, each of which is a key of a stream.
enum SourceKind {
  /// All kinds, in the order in which messages list them.
  static let all: [any SourceSection.Type] = [
    Configuration.Timer.self, Configuration.HTTP.self, Configuration.WebSocket.self, Configuration.Socket.self,
    Configuration.Serial.self, Configuration.Exec.self, Configuration.Peer.self, Configuration.JournalEntries.self,
    Configuration.Derived.self, Configuration.Publish.self,
  ]

  /// Whether a text at these keys of a stream may be a secret of its source: see `SourceSection.hides(_:at:)`.
  static func hides(_ keys: [String], at index: Int? = nil) -> Bool {
    all.first { $0.name == keys.first }?.hides(keys.dropFirst(), at: index) == true
  }

  /// Reads the source of a stream.
  static func read(_ table: ConfigurationTable) -> Configuration.Source? {
    let kinds = table.context.kinds
    let names = kinds.map { $0.name }
    let present = names.filter { table.holds($0) }
    let sources = kinds.compactMap { kind -> Configuration.Source? in kind.read(table).map { .init($0) } }
    if present.isEmpty {
      let choice = names.dropLast().joined(separator: ", ") + " or " + (names.last ?? "")
      table.addError("expected one source (\(choice)), got none", lacking: names)
    } else if present.count > 1 {
      table.addError("expected one source, got \(present.joined(separator: " and "))")
    }
    return sources.first
  }
}

extension Configuration.Source {
  /// The source of a stream before it is read, with which the other keys are checked if it is absent.
  static let initial = Self(Configuration.Timer())
}
