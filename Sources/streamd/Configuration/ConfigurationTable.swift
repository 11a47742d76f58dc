/// One table of the file while it is read: remembers which keys were asked for, so that the others can be refused.
final class ConfigurationTable {
  /// How the table is called in mistakes, such as `streams.quotes.http`; empty for the file itself.
  let path: String
  /// The keys that lead to the table, from the file's top.
  let place: [String]
  let line: Int
  private let members: [String: ConfigurationNode]
  private let collector: ConfigurationErrorCollector
  private var knownKeys: Set<String> = []
  /// What to say of a table that nobody asked for.
  var hintForTable: ((_ key: String) -> String)?

  /// - Returns: `nil` when `node` is no table; that is not yet told.
  init?(_ node: ConfigurationNode, path: String, place: [String] = [], collector: ConfigurationErrorCollector) {
    guard case .table(let members) = node.value else { return nil }
    self.path = path
    self.place = place
    self.line = node.line
    self.members = members
    self.collector = collector
  }

  /// The keys of a table in which every name is allowed, in the order of the file.
  var keys: [String] {
    members.sorted { ($0.value.line, $0.key) < ($1.value.line, $1.key) }.map(\.key)
  }

  func holds(_ key: String) -> Bool {
    knownKeys.insert(key)
    return members[key] != nil
  }

  /// The value of `key`; `nil` when it is absent or a mistake, which is then told.
  func value<Value>(_ key: String, _ shape: ConfigurationShape<Value>) -> Value? {
    node(key).flatMap { read($0, as: shape, key: key) }
  }

  /// The value of `key`, or `standard` when it is absent or a mistake, which is then told.
  func value<Value>(_ key: String, _ shape: ConfigurationShape<Value>, default standard: Value) -> Value {
    value(key, shape) ?? standard
  }

  /// The string at `key`; `nil` when it is absent or something else, which is not told.
  func text(_ key: String) -> String? {
    guard case .string(let text) = node(key)?.value else { return nil }
    return text
  }

  /// The boolean at `key`; `nil` when it is absent or something else, which is not told.
  func flag(_ key: String) -> Bool? {
    guard case .boolean(let flag) = node(key)?.value else { return nil }
    return flag
  }

  /// All elements of the array at `key` that are no mistake; `nil` when it is absent or no array or empty.
  func values<Value>(_ key: String, _ shape: ConfigurationShape<Value>) -> [Value]? {
    guard let node = node(key) else { return nil }
    guard case .array(let elements) = node.value, !elements.isEmpty else {
      expected("a list of one or more", at: key)
      return nil
    }
    return elements.compactMap { read($0, as: shape, key: key) }
  }

  /// The table at `key`, to be read by `read`, then searched for unknown keys; `nil` when it is absent or no table.
  ///
  /// - Parameter expectation: what to say when it is no table; then its value, maybe a secret, is not shown.
  func table<Value>(
    _ key: String, expecting expectation: String = "a table", _ read: (ConfigurationTable) -> Value?
  ) -> Value? {
    guard let node = node(key) else { return nil }
    guard let table = ConfigurationTable(node, path: keyPath(key), place: place + [key], collector: collector) else {
      expected(expectation, at: key, secret: true)
      return nil
    }
    let value = read(table)
    table.refuseUnknownKeys()
    return value
  }

  /// Tells that `key` should have been something else.
  ///
  /// - Parameter secret: people might have put a secret there: say the type of what was found, not the value.
  func expected(_ what: String, at key: String, secret: Bool = false) {
    mistake("expected \(what), got \(members[key]?.described(secret: secret) ?? "nothing")", at: key)
  }

  /// Tells of a mistake at `key`, or about the table itself.
  func mistake(_ text: String, at key: String? = nil) {
    let node = key.flatMap { members[$0] }
    collector.add(.init(line: node?.line ?? line, key: key.map(keyPath) ?? path, text: text))
  }

  private func node(_ key: String) -> ConfigurationNode? {
    knownKeys.insert(key)
    return members[key]
  }

  private func read<Value>(_ node: ConfigurationNode, as shape: ConfigurationShape<Value>, key: String) -> Value? {
    do {
      return try shape.read(node)
    } catch {
      let text = "expected \(error.text), got \(node.described())"
      collector.add(.init(line: node.line, key: keyPath(key), text: text))
      return nil
    }
  }

  /// Refuses what nobody asked for. Once, after everything was.
  func refuseUnknownKeys() {
    collector.note(knownKeys, at: place)
    for key in keys where !knownKeys.contains(key) {
      let homes = ConfigurationPlaces.tables(with: key, for: place) { members[$0] != nil }
      if !homes.isEmpty, !place.isEmpty || nearest(to: key, among: knownKeys) == nil {
        mistake("unknown key; \(key) belongs \(homes.joined(separator: " or "))", at: key)
      } else if let neighbour = nearest(to: key, among: knownKeys) {
        mistake("unknown key; did you mean \"\(neighbour)\"?", at: key)
      } else if let hintForTable, case .table = members[key]?.value {
        mistake("unknown key; \(hintForTable(key))", at: key)
      } else {
        let offered = knownKeys.sorted().joined(separator: ", ")
        mistake("unknown key; expected \(offered.isEmpty ? "none" : "one of: \(offered)")", at: key)
      }
    }
  }

  /// `key` as TOML writes it after `path`.
  private func keyPath(_ key: String) -> String {
    let written = isBareKey(key) ? key : ConfigurationNode(line: 0, value: .string(key)).described()
    return path.isEmpty ? written : "\(path).\(written)"
  }
}

/// Whether TOML needs no quotes for `key`.
private func isBareKey(_ key: String) -> Bool {
  !key.isEmpty && key.utf8.count <= 60
    && key.unicodeScalars.allSatisfy {
      $0.isASCII && ($0.properties.isAlphabetic || $0.properties.numericType != nil || $0 == "-" || $0 == "_")
    }
}

/// The one of `names` that was probably meant by `typed`: two letters off at most, such as two swapped ones, or one in
/// a short word. The first in alphabetical order of those that are equally near.
private func nearest(to typed: String, among names: Set<String>) -> String? {
  guard typed.utf8.count <= 60 else { return nil }
  let distances = names.sorted().map { (name: $0, distance: editDistance(Array(typed.utf8), Array($0.utf8))) }
  guard let best = distances.min(by: { $0.distance < $1.distance }) else { return nil }
  return best.distance <= (typed.utf8.count < 4 ? 1 : 2) ? best.name : nil
}

/// How many bytes must be put in, taken out or changed to make `second` of `first`. Source: Wagner and Fischer, one
/// row of their table at a time.
private func editDistance(_ first: [UInt8], _ second: [UInt8]) -> Int {
  var row = Array(0...second.count)
  for (index, byte) in first.enumerated() {
    var diagonal = row[0]
    row[0] = index + 1
    for (column, other) in second.enumerated() {
      let changed = diagonal + (byte == other ? 0 : 1)
      diagonal = row[column + 1]
      row[column + 1] = min(changed, diagonal + 1, row[column] + 1)
    }
  }
  return row[second.count]
}
