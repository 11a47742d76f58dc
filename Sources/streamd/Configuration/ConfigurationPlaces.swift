/// The keys of tables, by the table's place.
struct KnownKeys: Sendable {
  var keys: [[String]: Set<String>] = [:]
  /// The defaults of keys, in TOML.
  var defaults: [[String]: [String: String]] = [:]
}

/// The tables in which a key is valid, for the message about a misplaced key.
enum ConfigurationPlaces {
  /// Stands for a stream's name.
  private static let anyName = "NAME"

  /// The keys of all sections.
  private static let known: KnownKeys = {
    let context = ConfigurationContext(credentials: CredentialFolder(path: nil), checksPrograms: false)
    context.collector.known = KnownKeys()
    var configuration = Configuration()
    _ = ConfigurationTable(.emptyTable, context)?.main("", into: &configuration)
    let streams = ConfigurationTable(.emptyTable, place: ["streams"], context)
    _ = streams?.section(anyName, Configuration.Stream(name: anyName))
    _ = streams?.section(anyName, Configuration.Template.Terms())
    return context.collector.known ?? KnownKeys()
  }()

  /// The keys of a table.
  static func keys(of table: String) -> Set<String> { known.keys[[table]] ?? [] }

  /// The defaults of a table in TOML, such as `"30s"`, by key.
  static func defaults(of table: String) -> [String: String] { known.defaults[[table]] ?? [:] }

  /// The defaults of streams in TOML, by key or, for a table in a stream, by its name and key; without those that
  /// `[http]` sets.
  static var streamDefaults: [(keys: [String], text: String)] {
    let ofAll = defaults(of: "http")
    return known.defaults.filter { $0.key.starts(with: ["streams", anyName]) }.flatMap { place, defaults in
      defaults.filter { place.count < 3 ? !isOfTemplates($0.key) : ofAll[$0.key] == nil }.map {
        (Array(place.dropFirst(2)) + [$0.key], $0.value)
      }
    }.sorted { $0.keys.lexicographicallyPrecedes($1.keys) }
  }

  /// The defaults of keys that only templates have.
  static var templateDefaults: [(keys: [String], text: String)] {
    (known.defaults[["streams", anyName]] ?? [:]).filter { isOfTemplates($0.key) }.map { ([$0.key], $0.value) }
      .sorted { $0.keys[0] < $1.keys[0] }
  }

  private static func isOfTemplates(_ key: String) -> Bool { Configuration.Template.Terms.names.contains(key) }

  /// The tables in which `key` is valid, such as `in [streams.quotes]`; empty if there is none.
  ///
  /// - Parameters:
  ///   - place: the table that contains the key.
  ///   - holds: whether that table contains a table of the given name.
  /// - Returns: tables of the same stream if there are any: an outer table, else the existing inner ones, else all.
  static func tables(with key: String, for place: [String], holds: (String) -> Bool) -> [String] {
    let isInStream = place.count > 1 && place[0] == "streams"
    let own = isInStream ? ["streams", anyName] + place.dropFirst(2) : place
    // In an inner table, a token or a user is not meant for the servers of a fleet or for another streamd.
    let all = known.keys.filter {
      $0.value.contains(key) && $0.key != own && (place.count < 2 || $0.key != ["cluster"])
        && (place.count < 4 || $0.key.last != "streamd")
    }.map(\.key)
    let ofStream = isInStream ? all.filter { $0.starts(with: ["streams", anyName]) } : []
    var chosen = ofStream.isEmpty ? all : ofStream
    let outer = chosen.filter { own.starts(with: $0) }
    let inner = chosen.filter { $0.dropLast().elementsEqual(own) && holds($0[own.count]) }
    if let nearest = outer.max(by: { $0.count < $1.count }) {
      chosen = [nearest]
    } else if !inner.isEmpty {
      chosen = inner
    }
    return chosen.map { header($0, name: isInStream ? place[1] : anyName) }.sorted()
  }

  private static func header(_ place: [String], name: String) -> String {
    let isPlain = !name.isEmpty && name.utf8.allSatisfy { $0 != UInt8(ascii: ".") && $0 != UInt8(ascii: "/") }
    let names = place.map { $0 == anyName ? (isPlain ? name : "\"\(name)\"") : $0 }
    return names.isEmpty ? "at the top of the file" : "in [\(names.joined(separator: "."))]"
  }
}
