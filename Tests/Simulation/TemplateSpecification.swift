import Events

@testable import streamd

/// What the configuration says of a template. Its streams may be there or not: `World.streams` has all that there can be.
struct TemplateSpecification: Equatable {
  /// What the names begin with, up to the slash.
  let prefix: String
  /// nil: clients publish to its streams; else the prefix of the names of which they are derived.
  let base: String?
  var isServed = true
  /// The most streams at a time.
  var limit = 4
  /// nil: never.
  var forgetMilliseconds: Int? = 3000
  /// What its streams have in common.
  var stream: StreamSpecification

  /// The values that names may have.
  static let values = ["a", "b", "c", "d", "e", "f"]

  init(_ prefix: String, of base: String?, _ profile: Profile, _ random: inout Random) {
    (self.prefix, self.base) = (prefix, base)
    stream = StreamSpecification(
      "\(prefix)/a", base.map { .derived(of: ["\($0)/a"], where: nil) } ?? .clients, origin: "")
    stream.type = random.pick(["application/json", "text/plain"])
    stream.content = stream.isText ? .plain : random.pick([.string, .object])
    for _ in 0..<random.below(6) { change(&random) }
    if random.chance(profile.blockingStreams / 2) { stream.blocks = true }
  }

  /// Another one, as an operator may write it next.
  mutating func change(_ random: inout Random) {
    switch random.below(9) {
    case 0: stream.readers = random.chance(70) ? nil : [random.pick(StreamSpecification.users)]
    case 1: stream.writers = random.chance(70) ? nil : [random.pick(StreamSpecification.users)]
    case 2: stream.events = random.pick([1, 3, 16, 64])
    case 3: stream.bytes = random.pick([4096, 16 << 10, 160 << 10])
    case 4: stream.keep = random.pick([.no, .memory, .memory, .memory, .disk])
    case 5: limit = random.pick([1, 2, 3, 4, 6])
    case 6: forgetMilliseconds = random.pick([nil, 100, 1000, 3000, 20_000])
    case 7: stream.blocks.toggle()
    default:
      stream.replay = random.pick([0, 1, 4, 64])
      stream.onLag = random.pick([.skip, .latest, .fail])
    }
    stream.blockTimeout = .seconds(5)
  }

  /// The streams that it can make.
  var streams: [StreamSpecification] {
    Self.values.map { value in
      var made = StreamSpecification(
        "\(prefix)/\(value)", base.map { .derived(of: ["\($0)/\(value)"], where: nil) } ?? .clients, origin: "")
      made.template = prefix
      made.isServed = isServed
      made.take(stream)
      return made
    }
  }

  /// As the configuration file has it.
  var text: String {
    func rules(_ users: [UInt32]?) -> String {
      "[\((users.map { $0.map { "\"uid:\($0)\"" } } ?? ["\"*\""]).joined(separator: ", "))]"
    }
    let configuration = stream.configuration
    var lines = ["[streams.\"\(prefix)/{x}\"]", base.map { "of = [\"\($0)/{x}\"]" } ?? "publish = true"]
    lines.append("parameters.x = { characters = \"a-f\", length = 1 }")
    lines.append("streams = \(limit)")
    lines.append("forget = \"\(forgetMilliseconds.map { "\($0)ms" } ?? "never")\"")
    lines.append("type = \"\(stream.type)\"")
    lines.append("replay = \(configuration.replay)")
    lines.append("buffer = { events = \(stream.events), bytes = \"\(stream.bytes)B\" }")
    lines.append("keep = \"\(stream.keep == .no ? "no" : stream.keep == .memory ? "memory" : "disk")\"")
    lines.append("on_lag = \"\(stream.onLag.rawValue)\"")
    if stream.blocks { lines += ["overflow = \"block\"", "block_timeout = \"5s\""] }
    lines.append("read = \(rules(stream.readers))")
    if base == nil { lines.append("write = \(rules(stream.writers))") }
    return lines.joined(separator: "\n") + "\n"
  }

  /// Whether a client may have made a stream of it.
  func admits(_ user: UInt32) -> Bool {
    [stream.readers, base == nil ? stream.writers : []].contains { $0?.contains(user) ?? true }
  }
}

extension World {
  /// Whether streams are made by templates.
  var hasTemplates: Bool { !templates.isEmpty || answers != nil }

  /// Templates, and that of answers, as a configuration has them.
  func configuration(of templates: [TemplateSpecification]) -> Configuration {
    let text = (templates.filter(\.isServed).map(\.text) + (answers.map { [$0.text] } ?? [])).joined(separator: "\n")
    do {
      return try ConfigurationSource.parse([ConfigurationText(path: "templates", bytes: [UInt8](text.utf8))])
        .configuration
    } catch {
      fatalError("\(error)")
    }
  }
}
