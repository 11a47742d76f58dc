import StreamServer

extension Configuration {
  /// `[streams."NAME/{x}"]`: a stream for each name that somebody asks for.
  struct Template: Sendable {
    let name: NameTemplate
    let terms: Terms
    /// One line for the catalogue, with its expressions.
    let description: String
    /// One of its streams, from which it is made: all have the same kind of source.
    private(set) var sample: Stream
    /// Values with which its texts were read: those of `sample`, then the longest ones and the oddest ones.
    let probes: [Probe]
    /// Whether each of its streams needs a look-up in a database of users, which may take long.
    let needsLookUp: Bool
    /// The names of the parameters that its programs use.
    let variables: Set<String>
    let reading: TemplateReading
    /// The tokens that may admit clients to some of its streams.
    private(set) var tokens: [Token] = []

    /// What `[streams."NAME/{x}"]` says of all streams together, besides what it says of each.
    struct Terms: Sendable, Equatable {
      var parameters: [String: NameTemplate.Parameter] = [:]
      /// Maximum number of streams at a time.
      var streams = 1000
      /// How long a stream outlives its last use; `nil`: for ever.
      var forget: Duration? = .seconds(600)
      /// The answers to requests of clients that come at a time.
      var running = 64
      var metrics = Metrics.template
    }

    /// How metrics show its streams.
    enum Metrics: String, CaseIterable, Sendable {
      /// One row for all.
      case template
      case each
    }

    /// Values, and the streams from which the stream with these values is derived.
    struct Probe: Sendable, Equatable {
      let values: NameValues
      let bases: [String]
    }

    /// The limits of the events of a stream that sets none.
    static let standardBuffer = Buffer(events: 256, bytes: 256 << 10)
  }
}

extension Configuration.Template {
  /// Maximum number of streams at a time.
  var streams: Int { terms.streams }
  /// How long a stream outlives its last use; `nil`: for ever.
  var forget: Duration? { terms.forget }
  var metrics: Metrics { terms.metrics }

  init(
    _ name: NameTemplate, _ terms: Terms, description: String, sample: Configuration.Stream, probes: [Probe],
    _ reading: TemplateReading
  ) {
    (self.name, self.terms, self.description, self.probes) = (name, terms, description, probes)
    self.reading = reading
    needsLookUp = reading.memory.hasExpressionsInRules
    variables = reading.memory.variables
    self.sample = sample
    self.sample.template = name.text
  }

  /// Whether its streams differ in their names only.
  var copiesSample: Bool { !reading.memory.hasExpressions && variables.isEmpty }

  /// Whether the rules of its streams are equal as well.
  var sharesConfiguration: Bool { copiesSample && tokens.isEmpty && !sample.source.section.takesRequests }

  func copy(named name: String) -> Configuration.Stream {
    var stream = sample
    (stream.name, stream.template) = (name, self.name.text)
    if !tokens.isEmpty { stream.admit(tokens) }
    return stream
  }

  /// The stream with these values. Fast: at most the texts are read again. Thread-safe.
  /// - Throws: the errors in what depends on the values.
  func stream(_ values: NameValues) throws(ConfigurationErrors) -> Configuration.Stream {
    let name = name.name(for: values)
    guard !copiesSample else { return copy(named: name) }
    var stream = reading.memory.hasExpressions ? try reading.stream(name, TextExpansion(values, of: self.name)) : sample
    stream.name = name
    stream.template = self.name.text
    stream.variables = variables.reduce(into: [:]) { $0[$1] = values[$1] }
    if !tokens.isEmpty { stream.admit(tokens) }
    return stream
  }

  /// The rules for the clients of the stream with these values. Reads the two keys at most. Thread-safe.
  func accessRules(_ values: NameValues) -> (read: AccessRules, write: AccessRules) {
    var stream = sample
    stream.name = name.name(for: values)
    if needsLookUp { reading.readRules(of: &stream, TextExpansion(values, of: name)) }
    if !tokens.isEmpty { stream.admit(tokens) }
    return (stream.readRules, stream.writeRules)
  }

  /// Sets the tokens that admit clients to its streams.
  mutating func admit(_ tokens: [Configuration.Token]) {
    let beginning = name.text.prefix { $0 != "{" }
    self.tokens = tokens.filter { token in
      (token.read + token.write).contains { pattern in
        let prefix = pattern.last == "*" ? pattern.dropLast() : pattern[...]
        return prefix.hasPrefix(beginning) || pattern.last == "*" && beginning.hasPrefix(prefix)
      }
    }
    sample.admit(self.tokens)
  }
}

extension Configuration.Template: Equatable {
  /// Whether they make equal streams. A template that is written in another way is another one.
  static func == (one: Self, other: Self) -> Bool {
    one.name == other.name && one.terms == other.terms && one.reading.node == other.reading.node
      && one.sample == other.sample && one.tokens == other.tokens
  }
}

extension Configuration.Template {
  /// What `--check` says of it.
  var remarks: [String] {
    let time = forget.map { "forgotten \($0.inWords) after their last use" } ?? "never forgotten"
    var remarks = [
      "\(name.text): at most \(counted(streams, "stream")) such as \(sample.name) (\(sample.source.kind)), \(time)"
    ]
    if metrics == .each, streams > Self.mostRows {
      remarks.append("\(name.text): metrics = \"each\" has rows for each of up to \(streams) streams")
    }
    return remarks
  }

  /// The number of streams above which rows for each are worth a remark.
  private static let mostRows = 1000
}

extension Configuration {
  /// Such as `3 streams, 1 template`.
  var counts: String {
    let streams = counted(streams.count, "stream")
    return templates.isEmpty ? streams : "\(streams), \(counted(templates.count, "template"))"
  }
}

extension [Configuration.Template] {
  /// What templates that share a name have in common: the number of segments, and the first one unless it has an expression.
  private struct Group: Hashable {
    let segmentCount: Int
    var first: Substring?

    init(of name: String) {
      let segments = name.split(separator: "/", omittingEmptySubsequences: false)
      segmentCount = segments.count
      first = segments.first.flatMap { $0.contains("{") ? nil : $0 }
    }
  }

  /// The templates with a name that an earlier one has, too, and a sentence that shows it.
  var sharedNames: [(template: String, text: String)] {
    var earlier: [Group: [Element]] = [:]
    return compactMap { template in
      var group = Group(of: template.name.text)
      defer { earlier[Group(of: template.name.text), default: []].append(template) }
      var others: [Element]
      if group.first == nil {
        others = earlier.filter { $0.key.segmentCount == group.segmentCount }.flatMap(\.value)
      } else {
        others = earlier[group] ?? []
        group.first = nil
        others += earlier[group] ?? []
      }
      for other in others {
        guard let name = other.name.example(sharedWith: template.name) else { continue }
        let names = [name, other.name.text].map { ConfigurationNode.shown($0) }
        return (
          template.name.text, "expected names that no other template has, got \(names[0]), which \(names[1]) has, too"
        )
      }
      return nil
    }
  }
}

extension Configuration.Template.Terms: ConfigurationSection {
  static let keys: [ConfigurationKey<Self>] = [
    .init(["parameters"], \.parameters) { table, parameters in
      parameters =
        table.table("parameters", expecting: "a table such as { city = { length = 40 } }") { $0.parameters() } ?? [:]
    },
    .init("streams", \.streams, .count(1...1_000_000)),
    .init("forget", \.forget, .durationOrNever),
    .init("running", \.running, .count(1...100_000)),
    .init("metrics", \.metrics, .choice),
  ]

  /// The names of the keys, which a stream with a name of its own does not have.
  static let names = ["parameters", "streams", "forget", "running", "metrics"]
}

extension ConfigurationTable {
  /// The rules of parameters.
  fileprivate func parameters() -> [String: NameTemplate.Parameter] {
    keys.reduce(into: [:]) { rules, name in
      guard holds(name), NameTemplate.isParameterName(name) else {
        return addError(
          "expected the name of a parameter, with small letters, digits and \"_\", a letter first", at: name)
      }
      rules[name] = section(name, ParameterRules(), suchAs: "{ length = 40 }").map { .init($0) }
    }
  }
}

extension NameTemplate.Parameter {
  fileprivate init(_ rules: ParameterRules) {
    self.init(characters: rules.characters, length: rules.length, values: rules.values)
  }
}

/// `parameters.NAME`: what the values of a parameter may be.
private struct ParameterRules: ConfigurationSection {
  var characters = NameCharacters.all
  var length = NameTemplate.Parameter.longest
  var values: [String]?

  static let keys: [ConfigurationKey<Self>] = [
    .init("characters", \.characters, .nameCharacters),
    .init("length", \.length, .count(1...NameTemplate.Parameter.longest)),
    .init(["values"], \.values) { $1 = $0.values("values", .parameterValue, mayBeEmpty: false) ?? $1 },
    .check { $1.check($0) },
  ]

  private func check(_ table: ConfigurationTable) {
    guard let values, !table.isFaulty("values") else { return }
    let most = NameTemplate.Parameter.mostValues
    if values.count > most { table.addError("expected at most \(most) values, got \(values.count)", at: "values") }
    if Set(values).count < values.count { table.addError("expected each value once", at: "values") }
    let rules = NameTemplate.Parameter(characters: characters, length: length)
    guard !table.isFaulty("characters"), !table.isFaulty("length"),
      let other = values.first(where: { !rules.permits($0) })
    else { return }
    table.addError(
      "expected values that characters and length permit, got \(ConfigurationNode.shown(other))", at: "values")
  }
}

extension ConfigurationShape where Value == NameCharacters {
  fileprivate static var nameCharacters: Self {
    Self(write: { ConfigurationNode.quoted("\($0)") }) { node throws(Expected) in
      guard case .string(let text) = node.value, let set = NameCharacters(text) else {
        throw Expected(#"a set such as "A-Z0-9." of letters, digits, ".", "_" and "-""#)
      }
      return set
    }
  }
}

extension ConfigurationShape where Value == String {
  fileprivate static var parameterValue: Self {
    text(#"a value of 1 to 128 letters, digits, ".", "_" and "-", neither "." nor "..""#) {
      NameTemplate.Parameter.any.permits($0)
    }
  }
}
