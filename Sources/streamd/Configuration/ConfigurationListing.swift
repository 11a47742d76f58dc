import StreamRuntime

/// The configuration as TOML for its readers: the values of all files with the names of the files, the defaults of other
/// keys, and no text that may be a secret.
///
/// The values of headers, of parameters of URLs and of environment variables, users, the arguments of programs, and what
/// is sent over a WebSocket are hidden. Credentials are shown by their names. The text is longer than the files by a
/// small factor only.
struct ConfigurationListing {
  private(set) var text = ""

  /// The text in place of one that may be a secret.
  private static let hidden = "<hidden>"

  /// Adds a file.
  ///
  /// - Parameters:
  ///   - root: the file's content, which is valid.
  ///   - isMain: whether it is the main file, whose `[server]`, `[log]` and `[http]` are shown with their defaults,
  ///     even if the tables are absent.
  mutating func add(_ root: ConfigurationNode, of path: String, isMain: Bool) {
    guard case .table(let tables) = root.value else { return }
    text += "\(text.isEmpty ? "" : "\n")# \(path.escapedForTerminal)\n"
    for name in ["server", "log", "http", "cluster"] where isMain && name != "cluster" || tables[name] != nil {
      add(tables[name], name, isMain ? ConfigurationPlaces.defaults(of: name) : [:])
    }
    if case .array(let tokens)? = tables["tokens"]?.value { for token in tokens { add(token, "[tokens]") } }
    guard case .table(let streams)? = tables["streams"]?.value else { return }
    for (name, stream) in Self.ordered(streams) { add(stream, "streams.\(Self.key(name))") }
  }

  /// Adds the defaults of streams, and of templates if there are any, as comments.
  mutating func addStreamDefaults(withTemplates hasTemplates: Bool) {
    add(ConfigurationPlaces.streamDefaults, of: "streams")
    guard hasTemplates else { return }
    let buffer = Configuration.Template.standardBuffer
    let own = [(["buffer", "events"], "\(buffer.events)"), (["buffer", "bytes"], "\"\(buffer.bytes >> 10)KiB\"")]
    add(own + ConfigurationPlaces.templateDefaults, of: "templates")
  }

  private mutating func add(_ defaults: [(keys: [String], text: String)], of what: String) {
    text += "\n# Defaults of \(what):\n"
    for (keys, value) in defaults { text += "# \(keys.joined(separator: ".")) = \(value)\n" }
  }

  private mutating func add(_ table: ConfigurationNode?, _ name: String, _ defaults: [String: String] = [:]) {
    text += "\n[\(name)]\n"
    var others = defaults
    if case .table(let members)? = table?.value {
      for (key, value) in Self.ordered(members) {
        text += "\(Self.key(key)) = \(Self.toml(value, at: [key]))\n"
        others[key] = nil
      }
    }
    for (key, value) in others.sorted(by: { $0.key < $1.key }) { text += "\(key) = \(value)  # default\n" }
  }

  private static func ordered(_ members: [String: ConfigurationNode]) -> [(key: String, value: ConfigurationNode)] {
    members.sorted { ($0.value.line, $0.key) < ($1.value.line, $1.key) }
  }

  private static func key(_ key: String) -> String { isBareKey(key) ? key : ConfigurationNode.quoted(key) }

  /// - Parameter keys: the keys that lead to the value, in a stream or in a table of the file.
  private static func toml(_ node: ConfigurationNode, at keys: [String]) -> String {
    switch node.value {
    case .string(let text): return ConfigurationNode.quoted(shown(text, at: keys))
    case .integer(let number): return "\(number)"
    case .float(let text), .date(let text): return text
    case .boolean(let flag): return "\(flag)"
    case .array(let elements):
      let texts = elements.enumerated().map { index, element in
        SourceKind.hides(keys, at: index) ? ConfigurationNode.quoted(hidden) : toml(element, at: keys)
      }
      return "[\(texts.joined(separator: ", "))]"
    case .table(let members):
      guard !members.isEmpty else { return "{}" }
      let texts = ordered(members).map { "\(key($0.key)) = \(toml($0.value, at: keys + [$0.key]))" }
      return "{ \(texts.joined(separator: ", ")) }"
    }
  }

  /// The part of a text that is shown.
  private static func shown(_ text: String, at keys: [String]) -> String {
    if let table = keys.dropLast().last, ConfigurationTable.tablesOfNames.contains(table) { return hidden }
    if SourceKind.hides(keys) { return hidden }
    switch keys.last {
    case "user", "send": return hidden
    case "url", "proxy", "token_url":
      let place = text.prefix { $0 != "?" && $0 != "#" }
      return place.count == text.count ? text : "\(place)?\(hidden)"
    default: return text
    }
  }
}

extension ConfigurationNode {
  /// A string in TOML, in which characters that display as something else than themselves are escaped.
  static func quoted(_ text: String) -> String {
    text.unicodeScalars.reduce(into: "\"") { result, scalar in
      if scalar.isDeceptive {
        let digits = String(scalar.value, radix: 16, uppercase: true)
        result += "\\U" + String(repeating: "0", count: 8 - digits.count) + digits
      } else {
        if scalar == "\"" || scalar == "\\" { result += "\\" }
        result.unicodeScalars.append(scalar)
      }
    } + "\""
  }
}
