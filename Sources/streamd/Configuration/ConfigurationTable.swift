import StreamRuntime
import StreamServer

/// The state on which reading a table depends, besides the table's content.
struct ConfigurationContext {
  let credentials: CredentialFolder
  var checksPrograms: Bool
  /// Collects the credentials instead of reading them; nil: they are read.
  var unread: UnreadCredentials?
  /// Whether secrets are read; if not, only their names are checked.
  var readsSecrets = true
  /// Whether the main file has `[cluster]`, with or without errors, or could not be read.
  var hasCluster = true
  var collector = ConfigurationErrorCollector()
  /// `[server]` of the main file.
  var server = Configuration.Server()
  /// An address in `server.listen` that other machines reach; nil: none.
  var networkAddress: InternetAddress?
  /// The settings of streams with an HTTP source, unless they override them.
  var standardSettings = Configuration.HTTPSettings()
  /// The kinds of sources, in the order in which messages list them.
  var kinds = SourceKind.all
  /// The values of a template's stream; nil: texts have no expressions.
  var expansion: TextExpansion?
  /// What earlier readings of the template have found; nil: the table is read once.
  var memory: TemplateMemory?
  /// Whether an earlier reading has checked programs and files.
  var isRepeated = false
}

/// One table of the file during reading: records which keys were read, so that the others are refused.
final class ConfigurationTable {
  /// The table's name in error messages, such as `streams.quotes.http`; empty for the file itself.
  let path: String
  /// The keys that lead to the table, from the file's top.
  let place: [String]
  let line: Int
  private let members: [String: ConfigurationNode]
  /// The context of the reading. Inner tables begin with a copy.
  var context: ConfigurationContext
  private var knownKeys: Set<String> = []
  /// Keys with errors.
  private var faultyKeys: Set<String> = []
  /// Keys whose texts were searched for expressions.
  private var expandedKeys: Set<String> = []
  /// Whether all required keys that were read so far are valid.
  private(set) var isComplete = true
  /// Errors that one of these keys would have prevented.
  private var lacks: [(error: ConfigurationError, keys: [String])] = []
  /// The hint in the error message for an unknown table.
  var hintForTable: ((_ key: String) -> String)?

  /// - Returns: `nil` when `node` is not a table; does not record an error.
  init?(_ node: ConfigurationNode, path: String = "", place: [String] = [], _ context: ConfigurationContext) {
    guard case .table(let members) = node.value else { return nil }
    self.path = path
    self.place = place
    self.line = node.line
    self.members = members
    self.context = context
  }

  /// The keys of a table with arbitrary names, in the order of the file.
  var keys: [String] {
    members.sorted { ($0.value.line, $0.key) < ($1.value.line, $1.key) }.map(\.key)
  }

  func holds(_ key: String) -> Bool {
    knownKeys.insert(key)
    return members[key] != nil
  }

  /// Whether `key` is there and was not read so far. It counts as read then.
  func hasUnread(_ key: String) -> Bool { knownKeys.insert(key).inserted && members[key] != nil }

  /// The value of `key`; `nil` when it is absent or, after recording an error, invalid.
  ///
  /// - Parameter secret: whether the value may be a secret; the message then states only its type.
  func value<Value>(_ key: String, _ shape: ConfigurationShape<Value>, secret: Bool = false) -> Value? {
    node(key).flatMap { read($0, as: shape, key: key, secret: secret) }
  }

  /// Notes that the texts of `key` were searched for expressions.
  func noteExpanded(_ key: String) { expandedKeys.insert(key) }

  func isExpanded(_ key: String) -> Bool { expandedKeys.contains(key) }

  /// The string at `key`, or the strings of the array there.
  func texts(at key: String) -> [String] {
    switch members[key]?.value {
    case .string(let text): [text]
    case .array(let elements): elements.compactMap { if case .string(let text) = $0.value { text } else { nil } }
    default: []
    }
  }

  /// Whether there was an error at `key`, or in the table there.
  func isFaulty(_ key: String) -> Bool { faultyKeys.contains(key) }

  /// Notes the default of `key` in TOML, if keys are collected.
  func noteDefault(_ text: @autoclosure () -> String?, of key: String) {
    if context.collector.known != nil { context.collector.known?.defaults[place, default: [:]][key] = text() }
  }

  /// Notes that the table is incomplete if `value`, of a key that it must have, is `nil`.
  func complete<Value>(_ value: Value?) -> Value? {
    if value == nil { isComplete = false }
    return value
  }

  /// The string at `key`; `nil` when it is absent or has another type; does not record an error.
  func text(_ key: String) -> String? {
    guard case .string(let text) = node(key)?.value else { return nil }
    return text
  }

  /// The boolean at `key`; `nil` when it is absent or has another type; does not record an error.
  func flag(_ key: String) -> Bool? {
    guard case .boolean(let flag) = node(key)?.value else { return nil }
    return flag
  }

  /// The valid elements of the array at `key`; `nil` when it is absent or not an array.
  ///
  /// - Parameters:
  ///   - mayBeEmpty: whether an empty array, which means none, is valid.
  ///   - secret: whether an element may be a secret; the message then states only its type.
  func values<Value>(
    _ key: String, _ shape: ConfigurationShape<Value>, mayBeEmpty: Bool = true, secret: Bool = false
  ) -> [Value]? {
    elements(key, mayBeEmpty: mayBeEmpty, secret: secret)?.enumerated().compactMap {
      read($1, as: shape, key: key, secret: secret, at: $0)
    }
  }

  /// The texts of the array at `key`, each one of `texts` or a table, which `read` reads.
  func texts<Value>(
    _ key: String, _ shape: ConfigurationShape<String>, text: (String) -> Value,
    _ read: (ConfigurationTable) -> Value?
  ) -> [Value]? {
    elements(key, secret: true)?.compactMap { element in
      guard let table = ConfigurationTable(element, path: keyPath(key), place: place + [key], context) else {
        return self.read(element, as: shape, key: key, secret: true).map(text)
      }
      defer { table.refuseUnknownKeys() }
      return read(table)
    }
  }

  /// The tables of the array at `key`, as `read` reads each.
  func tables<Value>(
    _ key: String, expecting expectation: String, _ read: (ConfigurationTable) -> Value?
  ) -> [Value]? {
    guard holds(key) else { return nil }
    guard let elements = elements(key, secret: true) else { return nil }
    return elements.compactMap { element in
      guard let table = ConfigurationTable(element, path: keyPath(key), place: place + [key], context) else {
        expected(expectation, at: key, secret: true)
        return nil
      }
      defer { table.refuseUnknownKeys() }
      return read(table)
    }
  }

  private func elements(_ key: String, mayBeEmpty: Bool = true, secret: Bool) -> [ConfigurationNode]? {
    guard let node = node(key) else { return nil }
    guard case .array(let elements) = node.value, mayBeEmpty || !elements.isEmpty else {
      expected(mayBeEmpty ? "a list" : "a list of one or more", at: key, secret: secret)
      return nil
    }
    return elements
  }

  /// The table at `key`, read by `read`, then checked for unknown keys; `nil` when it is absent or not a table.
  ///
  /// - Parameters:
  ///   - orEmpty: whether an absent table is read as an empty one.
  ///   - expectation: the expected form, for the error message when the value is not a table. The message does not show
  ///     the value, which may be a secret.
  func table<Value>(
    _ key: String, orEmpty: Bool = false, expecting expectation: String = "a table",
    _ read: (ConfigurationTable) -> Value?
  ) -> Value? {
    guard let node = node(key) ?? (orEmpty ? .emptyTable : nil) else { return nil }
    guard let table = ConfigurationTable(node, path: keyPath(key), place: place + [key], context) else {
      expected(expectation, at: key, secret: true)
      return nil
    }
    let errorCount = context.collector.errors.count
    let value = read(table)
    table.refuseUnknownKeys()
    if context.collector.errors.count > errorCount { faultyKeys.insert(key) }
    return value
  }

  /// Calls `read` with each table of the array at `key`, and checks the table for unknown keys.
  func tables(_ key: String, _ read: (ConfigurationTable) -> Void) {
    guard let node = node(key) else { return }
    guard case .array(let elements) = node.value else { return expected("[[\(key)]]", at: key, secret: true) }
    for element in elements {
      let table = ConfigurationTable(element, path: keyPath(key), place: place + [key], context)
      guard let table else { return expected("[[\(key)]]", at: key, secret: true) }
      read(table)
      table.refuseUnknownKeys()
    }
  }

  /// Records that `key` should have another form.
  ///
  /// - Parameter secret: whether the value may be a secret; the message then states only its type.
  func expected(_ what: String, at key: String, secret: Bool = false) {
    addError("expected \(what), got \(members[key]?.described(secret: secret) ?? "nothing")", at: key)
  }

  /// Records an error at `key`, or about the table itself.
  ///
  /// - Parameters:
  ///   - keys: keys of which one would have prevented the error. If the table has a key that looks like one of them, that
  ///     misspelled key is the only error.
  ///   - line: the line of an element of the key's array; by default that of the key.
  func addError(_ text: String, at key: String? = nil, line own: Int? = nil, lacking keys: [String] = []) {
    let line = own ?? key.flatMap { members[$0]?.line } ?? line
    let error = ConfigurationError(line: line, key: key.map(keyPath) ?? path, text: text)
    if let key { faultyKeys.insert(key) }
    if keys.isEmpty { context.collector.add(error) } else { lacks.append((error, keys)) }
  }

  /// Records an error if `key`, which the table must have, is absent.
  func require(_ key: String, suchAs example: String? = nil) {
    if holds(key) { return }
    addError("expected \(key)\(example.map { ", such as \($0)" } ?? ""), got none", lacking: [key])
  }

  /// Records an error for each of `keys` that is present, because it has no effect without `what`.
  func refuse(_ keys: [String], onlyWith what: String, lacking others: [String] = []) {
    for key in keys where holds(key) { addError("expected \(key) only with \(what)", at: key, lacking: others) }
  }

  /// The value of `key`, which counts as read.
  func node(_ key: String) -> ConfigurationNode? {
    knownKeys.insert(key)
    return members[key]
  }

  private func read<Value>(
    _ node: ConfigurationNode, as shape: ConfigurationShape<Value>, key: String, secret: Bool, at index: Int = 0
  ) -> Value? {
    guard let node = expanded(node, in: shape.place, key: key, at: index) else { return nil }
    do {
      return try shape.read(node)
    } catch {
      let end = node.isExpanded ? context.expansion?.values.end ?? "" : ""
      addError("expected \(error.text), got \(node.described(secret: secret))\(end)", at: key, line: node.line)
      return nil
    }
  }

  /// Records an error for every key that was not read. Called once, after reading.
  func refuseUnknownKeys() {
    context.collector.known?.keys[place, default: []].formUnion(knownKeys)
    if !context.isRepeated { refuseExpressions() }
    var meant: Set<String> = []
    for key in keys where !knownKeys.contains(key) {
      let homes = ConfigurationPlaces.tables(with: key, for: place) { members[$0] != nil }
      if !homes.isEmpty, !place.isEmpty || nearest(to: key, among: knownKeys) == nil {
        addError("unknown key; \(key) belongs \(homes.joined(separator: " or "))", at: key)
      } else if let neighbour = nearest(to: key, among: knownKeys) {
        meant.insert(neighbour)
        addError("unknown key; did you mean \"\(neighbour)\"?", at: key)
      } else if let hintForTable, case .table = members[key]?.value {
        addError("unknown key; \(hintForTable(key))", at: key)
      } else {
        let offered = knownKeys.sorted().joined(separator: ", ")
        addError("unknown key; expected \(offered.isEmpty ? "none" : "one of: \(offered)")", at: key)
      }
    }
    for (error, keys) in lacks where meant.isDisjoint(with: keys) { context.collector.add(error) }
  }

  /// Tables whose keys are names of values. A key that is not a name may be a misplaced value, and so a secret.
  static let tablesOfNames: Set<String> = ["headers", "query", "environment"]

  /// The dotted path of `key` in TOML.
  func keyPath(_ key: String) -> String {
    let isName = !Self.tablesOfNames.contains(place.last ?? "")
    let written =
      isBareKey(key) ? key : isName ? ConfigurationNode.shown(key) : "\"…\""
    return path.isEmpty ? written : "\(path).\(written)"
  }
}

/// Whether TOML requires no quotes for `key`.
func isBareKey(_ key: String) -> Bool { key.isName(upTo: 60, with: "-_") }

extension StringProtocol {
  /// Whether it has 1 to `most` bytes, which are letters and digits of ASCII and characters of `others`.
  func isName(upTo most: Int, with others: String) -> Bool {
    (1...most).contains(utf8.count)
      && utf8.allSatisfy { byte in
        (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(byte | 0x20)
          || (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte) || others.utf8.contains(byte)
      }
  }
}
