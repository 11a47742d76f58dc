import Events
import Reactive
import StreamProtocol
import StreamServer

extension Configuration {
  /// The source of a derived stream: other streams of the configuration, its bases.
  struct Derived: SourceSection {
    /// The names of 1 to 16 streams, each once.
    var bases: [String]
    /// The filter of the bases' events; `nil`: all pass.
    var filter: EventFilter?

    /// Maximum number of bases. With more, the checkpoint could be too large.
    static let mostBases = 16
    /// Maximum number of derived streams that are made of each other. Each adds frames to the stack on which the first one
    /// subscribes.
    static let longestChain = 100
  }
}

extension Configuration.Derived {
  static let name = "of"

  /// Reads `of` and `where` of a stream.
  /// - Returns: `nil` when `of` is absent or, after recording an error, invalid.
  static func read(_ table: ConfigurationTable) -> Self? {
    let filter = table.filter("where")
    guard table.holds("of") else {
      table.refuse(["where"], onlyWith: "of", lacking: ["of"])
      return nil
    }
    let names = ConfigurationShape<String>.text("the name of a stream") { $0.isName(upTo: 255, with: "._-/$") }
      .expanding(.text)
    let bases = table.values("of", names, mayBeEmpty: false) ?? []
    if bases.count > mostBases {
      table.addError("expected at most \(mostBases) streams, got \(bases.count)", at: "of")
    } else if Set(bases).count < bases.count {
      table.addError("expected each stream once", at: "of")
    }
    if table.holds("retry") {
      table.addError("expected no retry with of: reading another stream does not fail", at: "retry")
    }
    return bases.isEmpty || table.isFaulty("of") ? nil : Self(bases: bases, filter: filter)
  }

  var definition: [DefinitionField] {
    bases.map { ("of", $0) } + (filter.map { [("where", String(decoding: $0.json, as: UTF8.self))] } ?? [])
  }

  var descriptorCount: Int { 0 }
  var hasUpstream: Bool { false }

  func sharingErrors(of stream: Configuration.Stream) -> [(text: String, key: String)] {
    let text =
      "expected no share = \"fleet\" with of: each host makes the stream of its own copy of the others, which may be shared"
    return [(text, "share")]
  }

  func publisher(of stream: Configuration.Stream, in context: SectionContext) -> AnyPublisher<EventBatch, Never> {
    context.derived(bases, filter)
  }
}

extension ConfigurationTable {
  /// A filter of events; `nil` when it is absent or, after recording errors, invalid.
  func filter(_ key: String) -> EventFilter? {
    table(key, expecting: "a table such as { \"/symbol\" = \"AAPL\" }") { table in
      var members: [String] = []
      for pointer in table.keys {
        guard let condition = table.json(pointer) else { continue }
        members.append("\(JSONScalar.quoted(pointer)):\(condition)")
        if let fault = Self.fault(ofFilter: "{\(members[members.count - 1])}") { table.addError(fault, at: pointer) }
      }
      guard !table.keys.contains(where: table.isFaulty) else { return nil }
      let text = "{\(members.joined(separator: ","))}"
      if let fault = Self.fault(ofFilter: text) { table.addError(fault) }
      return try? EventFilter(json: Array(text.utf8))
    }
  }

  private static func fault(ofFilter text: String) -> String? {
    do throws(SubscribeOptions.Malformed) {
      _ = try EventFilter(json: Array(text.utf8))
      return nil
    } catch {
      let option = "option \"where\": "
      return error.sentence.hasPrefix(option) ? String(error.sentence.dropFirst(option.utf8.count)) : error.sentence
    }
  }

  /// The value of `key` as JSON; `nil` after recording an error.
  private func json(_ key: String) -> String? {
    value(key, ConfigurationShape { node throws(Expected) in try node.json() }.expanding(.text))
  }
}

extension ConfigurationNode {
  /// The value as JSON. TOML's numbers may have another form than those of JSON.
  fileprivate func json() throws(Expected) -> String {
    switch value {
    case .string(let text): return JSONScalar.quoted(text)
    case .integer(let number): return "\(number)"
    case .float(let text):
      guard let number = EventFilter.Number(text) ?? Double(text).flatMap({ EventFilter.Number($0) }) else {
        throw Expected("a finite number")
      }
      return number.description
    case .boolean(let flag): return "\(flag)"
    case .date: throw Expected("a string, a number, true, false or a table")
    case .array(let elements):
      var texts: [String] = []
      for element in elements { texts.append(try element.json()) }
      return "[\(texts.joined(separator: ","))]"
    case .table(let members):
      var texts: [String] = []
      for (key, node) in members { texts.append("\(JSONScalar.quoted(key)):\(try node.json())") }
      return "{\(texts.joined(separator: ","))}"
    }
  }

  /// The node to which keys lead.
  func node(at keys: [String]) -> ConfigurationNode? {
    keys.reduce(self) { node, key in
      if case .table(let members)? = node?.value { members[key] } else { nil }
    }
  }

  /// The names of the streams in a file.
  var streamNames: [String] {
    if case .table(let streams)? = node(at: ["streams"])?.value { Array(streams.keys) } else { [] }
  }
}

extension Configuration {
  /// The errors in the bases of derived streams, in the order of the streams, then of the templates: names without a stream,
  /// cycles, and chains that are too long. A base that a template makes counts as that template.
  /// - Parameter names: the names of all streams and templates, including those with errors.
  func baseErrors(among names: Set<String>) -> [(stream: String, text: String)] {
    let found = BaseSearch(self, names)
    let nodes = streams.map { found.bases(of: $0) } + templates.map { found.bases(of: $0) }
    let bases = Dictionary(nodes.map { ($0.name, $0.bases) }) { $1 }
    var errors: [(stream: String, text: String)] = []
    let (open, depths) = Self.depths(in: bases)
    var reported: Set<String> = []
    for (name, _, faults) in nodes {
      errors += faults.map { (name, $0) }
      let longest = Configuration.Derived.longestChain
      if depths[name] == longest + 1 {
        errors.append((name, "expected at most \(longest) streams that are made of each other, got more"))
      }
      guard open.contains(name), !reported.contains(name), let cycle = Self.cycle(from: name, in: bases) else {
        continue
      }
      reported.formUnion(cycle)
      errors.append((name, "expected no cycle, got \(cycle.joined(separator: " of "))"))
    }
    return errors
  }

  /// The streams in cycles, and those that are made of them: the search for a cycle, which follows the whole chain, is left
  /// out for all other streams. And the number of derived streams in the longest chain that ends with each of the others.
  private static func depths(in bases: [String: [String]]) -> (open: Set<String>, depths: [String: Int]) {
    var openBases = bases.mapValues { Set($0).filter { bases[$0] != nil } }
    var users: [String: [String]] = [:]
    for (name, bases) in openBases { for base in bases { users[base, default: []].append(name) } }
    var closed = openBases.compactMap { $1.isEmpty ? $0 : nil }
    var depths: [String: Int] = [:]
    while let name = closed.popLast() {
      openBases[name] = nil
      let bases = bases[name] ?? []
      depths[name] = bases.isEmpty ? 0 : 1 + (bases.compactMap { depths[$0] }.max() ?? 0)
      for user in users[name] ?? [] where openBases[user]?.remove(name) != nil && openBases[user]?.isEmpty == true {
        closed.append(user)
      }
    }
    return (Set(openBases.keys), depths)
  }

  /// The shortest way from a stream to itself; nil: there is none.
  private static func cycle(from start: String, in bases: [String: [String]]) -> [String]? {
    var origins: [String: String] = [:]
    var queue = [start]
    var index = 0
    while index < queue.count {
      let name = queue[index]
      index += 1
      for base in bases[name] ?? [] where origins[base] == nil {
        origins[base] = name
        queue.append(base)
      }
      guard let last = origins[start] else { continue }
      var cycle = [start]
      var next = last
      while next != start, let origin = origins[next] {
        cycle.append(next)
        next = origin
      }
      return [start] + cycle.reversed()
    }
    return nil
  }
}

/// Finds the streams and templates that bases are.
private struct BaseSearch {
  /// A stream or a template, the ones that it is made of, and a sentence for each base that there is not.
  typealias Bases = (name: String, bases: [String], faults: [String])

  private let names: Set<String>
  private let templates: NameTemplates
  /// Whether a template is missing, because it has errors. It may make what seems to be missing.
  private let isIncomplete: Bool

  init(_ configuration: Configuration, _ names: Set<String>) {
    self.names = names
    templates = NameTemplates(configuration.templates.map(\.name))
    isIncomplete = names.count { $0.contains("{") } > configuration.templates.count
  }

  func bases(of stream: Configuration.Stream) -> Bases { bases(of: stream.name, stream.bases.map { ($0, "") }) }

  func bases(of template: Configuration.Template) -> Bases {
    var bases: [(String, String)] = []
    for probe in template.probes {
      for base in probe.bases where !bases.contains(where: { $0.0 == base }) {
        let isFixed = template.probes.allSatisfy { $0.bases.contains(base) }
        bases.append((base, isFixed ? "" : probe.values.end))
      }
    }
    var found = self.bases(of: template.name.text, bases)
    // One value shows what is wrong.
    found.faults = Array(found.faults.prefix(1))
    return found
  }

  /// - Parameter bases: each with the end of a message about it.
  private func bases(of name: String, _ bases: [(name: String, end: String)]) -> Bases {
    var found: Bases = (name, [], [])
    for base in bases {
      if names.contains(base.name) {
        found.bases.append(base.name)
      } else if let template = templates.match(base.name) {
        found.bases.append(templates.templates[template.index].text)
      } else if !isIncomplete {
        let rule = templates.rule(brokenBy: base.name).map { index, sentence in
          ", and in \(ConfigurationNode.shown(templates.templates[index].text)) \(sentence)"
        }
        found.faults.append(
          "expected a stream of this configuration, got \(ConfigurationNode.shown(base.name))\(rule ?? "")\(base.end)")
      }
    }
    return found
  }
}

extension [Configuration.Stream] {
  /// The streams in an order in which bases come before the streams that are derived from them.
  var basesFirst: [Configuration.Stream] {
    var (ordered, rest) = ([Configuration.Stream](), self)
    while !rest.isEmpty {
      let names = Set(rest.map(\.name))
      let ready = rest.filter { names.isDisjoint(with: $0.bases) }
      // A stream is always ready unless there is a cycle.
      guard !ready.isEmpty else { return ordered + rest }
      ordered += ready
      rest.removeAll { names.isDisjoint(with: $0.bases) }
    }
    return ordered
  }
}

extension Configuration.Stream {
  /// The names of the streams from which this one is derived.
  var bases: [String] { source.section.bases }
}
