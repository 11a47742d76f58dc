/// A table of the file. Its keys are declared once, in `keys`. The reader, the names and defaults in messages and in
/// the listing, and the effects of changes follow from that declaration.
protocol ConfigurationSection: Equatable, Sendable {
  /// The keys in the order of reading, which is the order of errors in one line.
  static var keys: [ConfigurationKey<Self>] { get }
}

/// What applies a changed key.
enum ConfigurationEffect: Sendable {
  case reload
  /// The next start of the daemon.
  case restart
  /// A reload, which replaces the stream's source and pipeline.
  case feed
  /// A reload, which replaces the stream's log.
  case log
}

/// A key of a table, or several that are read together: how to read and compare them.
struct ConfigurationKey<Section: Sendable>: Sendable {
  let effect: ConfigurationEffect
  /// Reads the key. A value that is absent or, after recording an error, invalid leaves the section as it is.
  let read: @Sendable (_ table: ConfigurationTable, _ section: inout Section) -> Void
  /// The names of the keys that differ.
  let changes: @Sendable (_ old: Section, _ new: Section) -> [String]
}

extension ConfigurationKey {
  /// Keys that are read together.
  ///
  /// - Parameter changes: the names of the keys that differ; by default all.
  init<Value: Equatable & Sendable>(
    _ names: [String], _ path: WritableKeyPath<Section, Value> & Sendable, _ effect: ConfigurationEffect = .reload,
    changes: (@Sendable (Value, Value) -> [String])? = nil,
    read: @escaping @Sendable (ConfigurationTable, inout Value) -> Void
  ) {
    self.init(
      effect: effect,
      read: { table, section in read(table, &section[keyPath: path]) },
      changes: { old, new in
        let (old, new) = (old[keyPath: path], new[keyPath: path])
        return old == new ? [] : changes?(old, new) ?? names
      })
  }

  /// A key with a default.
  init<Value: Equatable & Sendable>(
    _ name: String, _ path: WritableKeyPath<Section, Value> & Sendable, _ shape: ConfigurationShape<Value>,
    _ effect: ConfigurationEffect = .reload
  ) {
    self.init([name], path, effect) { table, value in
      table.noteDefault(shape.write?(value), of: name)
      value = table.value(name, shape) ?? value
    }
  }

  /// A key without a default.
  init<Value: Equatable & Sendable>(
    _ name: String, _ path: WritableKeyPath<Section, Value?> & Sendable, _ shape: ConfigurationShape<Value>,
    _ effect: ConfigurationEffect = .reload
  ) {
    self.init([name], path, effect) { table, value in value = table.value(name, shape) ?? value }
  }

  /// A key with a list of values.
  init<Value: Equatable & Sendable>(
    _ name: String, _ path: WritableKeyPath<Section, [Value]> & Sendable, each shape: ConfigurationShape<Value>,
    _ effect: ConfigurationEffect = .reload
  ) {
    self.init([name], path, effect) { table, value in value = table.values(name, shape) ?? value }
  }

  /// A key that the table must have.
  ///
  /// - Parameter example: an example of the key and a value, for the message that the key is absent.
  init<Value: Equatable & Sendable>(
    required name: String, suchAs example: String? = nil, _ path: WritableKeyPath<Section, Value> & Sendable,
    _ shape: ConfigurationShape<Value>, _ effect: ConfigurationEffect = .reload
  ) {
    self.init([name], path, effect) { table, value in
      table.require(name, suchAs: example)
      value = table.complete(table.value(name, shape)) ?? value
    }
  }

  /// A key with a table of `names`, each with one of `texts` or a credential.
  init(
    _ name: String, _ path: WritableKeyPath<Section, [Configuration.NamedValue]> & Sendable,
    names: ConfigurationShape<String>, texts: ConfigurationShape<String>, _ effect: ConfigurationEffect = .reload
  ) {
    self.init([name], path, effect) { table, values in values = table.named(name, names, texts) ?? values }
  }

  /// A key with a table.
  init<Inner: ConfigurationSection>(
    _ name: String, _ path: WritableKeyPath<Section, Inner> & Sendable, _ effect: ConfigurationEffect = .reload
  ) {
    self.init([name], path, effect) { table, inner in inner = table.section(name, inner) ?? inner }
  }

  /// The keys of `Part`, or some of them, in the same table.
  static func part<Part: ConfigurationSection>(
    _ path: WritableKeyPath<Section, Part> & Sendable, _ keys: [ConfigurationKey<Part>] = Part.keys
  ) -> Self {
    Self([], path, changes: { old, new in keys.flatMap { $0.changes(old, new) } }) { table, part in
      for key in keys { key.read(table, &part) }
    }
  }

  /// A check of the keys that were read so far, without a key of its own.
  static func check(_ check: @escaping @Sendable (ConfigurationTable, Section) -> Void) -> Self {
    Self(effect: .reload, read: { check($0, $1) }, changes: { _, _ in [] })
  }
}

extension ConfigurationSection {
  /// The names of keys that `effect` applies and that differ from those of `old`.
  func changes(from old: Self, applyingAt effect: ConfigurationEffect) -> [String] {
    Self.keys.filter { $0.effect == effect }.flatMap { $0.changes(old, self) }
  }
}

extension ConfigurationTable {
  /// Reads the keys of `section`.
  func read<Section: ConfigurationSection>(_ section: inout Section) {
    for key in Section.keys { key.read(self, &section) }
  }

  /// The table at `key`.
  ///
  /// - Parameters:
  ///   - standard: the defaults of its keys.
  ///   - example: an example of the table, for the message that the value is none.
  ///   - hint: the hint in the message about an unknown table in this one.
  /// - Returns: `nil` when the key is absent or, after recording an error, not a table or without a required key.
  func section<Section: ConfigurationSection>(
    _ key: String, _ standard: Section, suchAs example: String? = nil, hint: ((_ key: String) -> String)? = nil
  ) -> Section? {
    let form = "a table" + (example.map { ", such as \(key) = \($0)" } ?? "")
    return table(key, orEmpty: context.collector.known != nil, expecting: form) { table in
      table.hintForTable = hint
      var section = standard
      table.read(&section)
      return table.isComplete ? section : nil
    }
  }
}
