import StreamRuntime
import StreamServer

/// What is needed to read the table of a template again with other values, on any thread.
struct TemplateReading: Sendable {
  let node: ConfigurationNode
  let file: String
  let memory: TemplateMemory
  private let credentials: CredentialFolder
  private let server: Configuration.Server
  private let standardSettings: Configuration.HTTPSettings
  private let hasCluster: Bool
  private let kinds: [any SourceSection.Type]

  /// - Parameter context: that of the first reading.
  init(_ node: ConfigurationNode, in file: String, _ memory: TemplateMemory, _ context: ConfigurationContext) {
    (self.node, self.file, self.memory) = (node, file, memory)
    (credentials, server, standardSettings) = (context.credentials, context.server, context.standardSettings)
    (hasCluster, kinds) = (context.hasCluster, context.kinds)
  }

  /// The stream with these values.
  /// - Throws: the errors in what depends on the values.
  func stream(_ name: String, _ expansion: TextExpansion) throws(ConfigurationErrors) -> Configuration.Stream {
    let (table, context) = table(for: name, expansion)
    let stream = table?.section(name, Configuration.Stream.ofTemplate(name))
    guard let stream, context.collector.errors.isEmpty else {
      throw ConfigurationErrors(file: file, context.collector.errors)
    }
    return stream
  }

  /// Reads `read` and `write` alone.
  func readRules(of stream: inout Configuration.Stream, _ expansion: TextExpansion) {
    _ = table(for: stream.name, expansion).table?.table(stream.name) { table in
      stream.read = table.values("read", .accessRule(memory)) ?? stream.read
      stream.write = table.values("write", .accessRule(memory)) ?? stream.write
    }
  }

  /// A table with one stream.
  private func table(
    for name: String, _ expansion: TextExpansion
  ) -> (table: ConfigurationTable?, context: ConfigurationContext) {
    var context = ConfigurationContext(credentials: credentials, checksPrograms: false)
    (context.server, context.standardSettings, context.hasCluster) = (server, standardSettings, hasCluster)
    (context.kinds, context.expansion, context.memory, context.isRepeated) = (kinds, expansion, memory, true)
    let streams = ConfigurationNode(line: node.line, value: .table([name: node]))
    return (ConfigurationTable(streams, path: "streams", place: ["streams"], context), context)
  }
}

extension Configuration.Stream {
  /// A stream of a template, before its table is read.
  static func ofTemplate(_ name: String) -> Self { Self(name: name, buffer: Configuration.Template.standardBuffer) }
}

extension ConfigurationTable {
  /// Reads the template at a key, which is its name: with short values, then with the longest and with the oddest ones.
  ///
  /// - Parameter file: the file of the table.
  /// - Returns: nil after recording an error.
  func template(_ name: String, of file: String) -> Configuration.Template? {
    let former = context
    defer { context = former }
    let errorCount = former.collector.errors.count
    guard let node = node(name), let (pattern, terms) = nameAndTerms(name, node),
      let values = pattern.oddestValues.first
    else { return nil }
    let memory = TemplateMemory()
    context.memory = memory
    guard var sample = stream(name, TextExpansion(values, of: pattern)), former.collector.errors.count == errorCount
    else { return nil }
    sample.name = pattern.name(for: values)
    var probes = [Configuration.Template.Probe(values: values, bases: sample.bases)]
    let others = memory.hasExpressions ? pattern.longestValues + pattern.oddestValues.dropFirst() : []
    (context.isRepeated, context.checksPrograms) = (true, false)
    for values in others {
      guard let stream = probe(name, TextExpansion(values, of: pattern), former.collector) else { return nil }
      probes.append(.init(values: values, bases: stream.bases))
    }
    var description = ""
    if case .string(let text)? = node.node(at: ["description"])?.value { description = text }
    return Configuration.Template(
      pattern, terms, description: description, sample: sample, probes: probes,
      TemplateReading(node, in: file, memory, former))
  }

  private func stream(_ name: String, _ expansion: TextExpansion) -> Configuration.Stream? {
    context.expansion = expansion
    return section(name, Configuration.Stream.ofTemplate(name))
  }

  /// Reads the stream with further values, with which it must be valid, too.
  ///
  /// - Parameter collector: gets the first error.
  /// - Returns: nil if there is one.
  private func probe(
    _ name: String, _ expansion: TextExpansion, _ collector: ConfigurationErrorCollector
  ) -> Configuration.Stream? {
    context.collector = ConfigurationErrorCollector()
    let stream = stream(name, expansion)
    guard var error = context.collector.errors.first else { return stream }
    if !error.text.hasSuffix(expansion.values.end) { error.text += expansion.values.end }
    collector.add(error)
    return nil
  }

  /// Reads what a template says of all its streams.
  private func nameAndTerms(
    _ name: String, _ node: ConfigurationNode
  ) -> (name: NameTemplate, terms: Configuration.Template.Terms)? {
    guard let table = ConfigurationTable(node, path: keyPath(name), place: place + [name], context) else {
      expected("a table", at: name, secret: true)
      return nil
    }
    var terms = Configuration.Template.Terms()
    table.read(&terms)
    do throws(NameTemplate.Fault) {
      let pattern = try NameTemplate(name, parameters: terms.parameters)
      if !table.isFaulty("parameters") {
        _ = table.table("parameters") { $0.refuseKeys(besides: pattern.parameterNames) }
      }
      return (pattern, terms)
    } catch {
      addError(error.sentence, at: name)
      return nil
    }
  }

  private func refuseKeys(besides names: [String]) {
    for key in keys where holds(key) && !names.contains(key) {
      let meant = nearest(to: key, among: Set(names)).map { "did you mean \"\($0)\"?" }
      addError("unknown parameter; \(meant ?? "expected one of: \(names.joined(separator: ", "))")", at: key)
    }
  }
}

extension NameValues {
  /// The end of a message about a text with these values, each with at most 20 characters.
  var end: String {
    let shown = zip(names, values).map { name, value in
      "\(name) = \"\(value.prefix(20))\(value.utf8.count > 20 ? "…" : "")\""
    }
    return " (with \(shown.joined(separator: ", ")))"
  }
}
