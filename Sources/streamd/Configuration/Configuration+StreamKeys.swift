import Events
import StreamSources

extension Configuration.Stream: ConfigurationSection {
  static let keys: [ConfigurationKey<Self>] = [
    .init("share", \.share, .choice, .feed),
    .init("lead", \.lead, .flag, .feed),
    .check { table, stream in
      // A host that never fetches the stream needs none of its secrets and programs.
      guard stream.share == .fleet, !stream.lead else { return }
      (table.context.readsSecrets, table.context.checksPrograms) = (false, false)
    },
    .init([], \.source, .feed, changes: { [$0.kind, $1.kind] }) { $1 = $0.complete(SourceKind.read($0)) ?? $1 },
    .init(
      "description", \.description, .text("a text of at most 1024 bytes") { $0.utf8.count <= 1024 }.expanding(.text)),
    .init("type", \.type, .mediaType),
    .init("validate", \.validate, .choice),
    .check { table, stream in
      if stream.validate == .json, !stream.hasJSONType {
        table.addError("expected a type of JSON with validate = \"json\", such as \"application/json\"", at: "validate")
      }
    },
    .init("jq", \.jq, .program("a jq program such as \".quotes[]\""), .feed),
    .check { $0.checkProgram($1.jq, at: "jq") },
    .init("distinct", \.distinct, .distinct, .feed),
    .check { table, stream in if case .by(let key) = stream.distinct { table.checkProgram(key, at: "distinct") } },
    .init("throttle", \.throttle, .duration(), .feed),
    .init(["key", "tombstone"], \.key, .log, read: readKey),
    .check { table, stream in
      table.checkProgram(stream.programKey?.key, at: "key")
      table.checkProgram(stream.programKey?.tombstone, at: "tombstone")
    },
    .init("max_keys", \.maxKeys, .count(1...1 << 27), .log),
    .init("state_bytes", \.stateBytes, .size(4096...32 << 30), .log),
    .check { table, _ in
      if !table.holds("key") { table.refuse(["tombstone", "max_keys", "state_bytes"], onlyWith: "key") }
    },
    .init("buffer", \.buffer, .log),
    .check { $1.checkSize($0) },
    .init("replay", \.replay, .replay),
    .check { $1.checkReplay($0) },
    .init("start", \.start, .choice),
    .init("linger", \.linger, .duration(from: .zero)),
    .init("on_lag", \.onLag, .choice),
    .init("overflow", \.overflow, .choice),
    .init("block_timeout", \.blockTimeout, .durationOrNever),
    .init("block_pace", \.blockPace, .duration()),
    .check { table, stream in
      guard stream.overflow != .block else { return }
      table.refuse(["block_timeout", "block_pace"], onlyWith: "overflow = \"block\"", lacking: ["overflow"])
    },
    .init("expect_every", \.expectEvery, .duration()),
    .init("retry", \.retry, .feed),
    .init("keep", \.keep, .choice, .log),
    .init("map", \.map, .flag),
    .check { $1.checkMap($0) },
    .init(["read"], \.read) { $1 = $0.values("read", .readerRule($0.context.memory)) ?? $1 },
    .check { $1.checkRequests($0) },
    .check { table, _ in checkReaders(table) },
    .init(["write"], \.write) { $1 = $0.values("write", .accessRule($0.context.memory)) },
    .check { table, _ in for kind in table.context.kinds { kind.check(table) } },
    .check { table, stream in
      if table.context.expansion == nil { stream.checkSharing(table) } else { stream.checkTemplate(table) }
    },
  ]

  /// Checks a stream of a template.
  private func checkTemplate(_ table: ConfigurationTable) {
    for key in Configuration.Template.Terms.names { _ = table.holds(key) }
    if table.holds("share"), share == .fleet {
      table.addError("expected no share = \"fleet\" in a template: each host makes its own streams", at: "share")
    }
    table.refuse(["lead"], onlyWith: "share = \"fleet\"", lacking: ["share"])
    if start == .always, table.holds("start") {
      table.addError(
        "expected start = \"subscribed\" or \"first\" in a template: its streams begin with a client", at: "start")
    }
    if source.section.isTogether, overflow == .block {
      table.addError(
        "expected overflow = \"drop\" with \(source.kind).together: no reader stops the upstream of all streams",
        at: "overflow")
    }
    if let key = source.section.exclusivePlace?.key {
      table.addError("expected no \(key) in a template that one stream alone can have", at: source.kind)
    }
  }

  /// Checks a stream that takes requests of clients, or is none of these.
  private func checkRequests(_ table: ConfigurationTable) {
    guard source.section.takesRequests else {
      if table.context.expansion != nil {
        table.refuse(["running"], onlyWith: "http.body = \"request\"")
      }
      if read.contains(.owner) {
        table.addError(
          "expected \"owner\" only with http.body = \"request\": a stream has no other owner", at: "read")
      }
      return
    }
    for key in ["start", "linger", "retry"] where table.holds(key) {
      table.addError(
        "expected no \(key) with http.body = \"request\": a request is made once, when it comes", at: key)
    }
  }

  private func checkReplay(_ table: ConfigurationTable) {
    // Compared only when both are valid: a default in place of an error would cause a second error.
    guard !table.isFaulty("buffer"), !table.isFaulty("replay"), sizeOverBuffer == nil else { return }
    if replay > buffer.events, replay != Self.everything {
      table.expected("at most buffer.events, which is \(buffer.events)", at: "replay")
    }
  }

  private func checkSize(_ table: ConfigurationTable) {
    guard !table.isFaulty("buffer"), let (key, bytes) = sizeOverBuffer else { return }
    table.addError(
      "expected \(key) of at most buffer.bytes, which is \(buffer.bytes) bytes, got \(bytes) bytes: "
        + "larger events are dropped", at: source.kind)
  }

  private func checkMap(_ table: ConfigurationTable) {
    guard map else { return }
    if keep == .disk {
      table.addError("expected keep = \"memory\" or \"no\" with map = true: clients cannot map a file", at: "map")
    }
    if overflow == .block {
      table.addError(
        "expected overflow = \"drop\" with map = true: no stream waits for those who read its memory", at: "map")
    }
  }

  private static func checkReaders(_ table: ConfigurationTable) {
    guard let address = table.context.networkAddress, !table.holds("read") else { return }
    table.addError(
      "expected read, such as read = [\"*\"] for all, as server.listen has \"\(address)\", which other machines reach",
      lacking: ["read"])
  }

  private func checkSharing(_ table: ConfigurationTable) {
    table.refuse(
      Configuration.Template.Terms.names, onlyWith: "a name that has an expression, such as [streams.\"NAME/{x}\"]")
    guard share == .fleet else {
      // After an error in `share`, its default must not cause another error.
      if table.text("share") ?? "host" == "host" {
        table.refuse(["lead"], onlyWith: "share = \"fleet\"", lacking: ["share"])
      }
      return
    }
    if !table.context.hasCluster {
      table.addError("expected share = \"fleet\" only with the section [cluster] in the main file", at: "share")
    }
    if overflow == .block {
      table.addError(
        "expected overflow = \"drop\" with share = \"fleet\": no stream waits for the clients of another host",
        at: "overflow")
    }
    for (text, key) in source.section.sharingErrors(of: self) { table.addError(text, at: key) }
    if let (key, bytes) = source.section.eventLimit, bytes > Configuration.maximumFleetEventBytes {
      table.addError(
        "expected \(key) of at most 32MiB with share = \"fleet\", got \(bytes) bytes: a larger event does not fit into a "
          + "record of the fleet", at: source.kind)
    }
  }
}

extension [Configuration.Stream] {
  /// The errors in places that only one stream can have, in the order of the streams, each with its key.
  var placeErrors: [(stream: String, keys: [String], text: String)] {
    var owners: [String: String] = [:]
    return compactMap { stream in
      guard let (place, key) = stream.source.section.exclusivePlace,
        let owner = owners.updateValue(stream.name, forKey: place)
      else { return nil }
      let shown = ConfigurationNode.shown(owner)
      return (
        stream.name, [stream.source.kind, key], "expected another one than that of \(shown): one stream can have it"
      )
    }
  }
}

extension Configuration.Buffer: ConfigurationSection {
  /// The highest number of events, 2^24; more is assumed to be a typing error.
  static let mostEvents = 1 << 24

  static let keys: [ConfigurationKey<Self>] = [
    .init("events", \.events, .count(1...mostEvents)),
    .init("bytes", \.bytes, .size(4096...64 << 30)),
    .init("age", \.age, .duration()),
  ]
}

extension Backoff: ConfigurationSection {
  static let keys: [ConfigurationKey<Self>] = [
    .init("first", \.first, .duration()),
    .init("max", \.max, .duration()),
    .check { table, retry in
      guard retry.first > retry.max, !table.isFaulty("first"), !table.isFaulty("max") else { return }
      if table.holds("first") {
        table.expected("at most max" + (table.holds("max") ? "" : ", which is 5m"), at: "first")
      } else {
        table.expected("at least first, which is 1s", at: "max")
      }
    },
  ]
}

extension Configuration.Stream {
  fileprivate static func readKey(_ table: ConfigurationTable, _ definition: inout KeyDefinition?) {
    let key = table.value("key", .program("a jq program such as \".symbol\""))
    let tombstone = table.value("tombstone", .program("a jq program such as \".deleted\""))
    definition = key.map { KeyDefinition(key: $0, tombstone: tombstone) }
  }
}

extension ConfigurationTable {
  /// Records an error if `program`, the value of `key`, cannot be compiled.
  func checkProgram(_ program: String?, at key: String) {
    guard let program, !context.isRepeated else { return }
    let variables = JQTransform.variables(in: program, among: context.expansion?.values.names ?? [])
    context.memory?.noteVariables(variables)
    guard let mistake = JQTransform.compileError(in: program, variables: variables) else { return }
    addError("not a jq program: \(mistake)", at: key)
  }
}

extension ConfigurationShape where Value == String {
  /// A non-empty text.
  static func program(_ what: String) -> Self { text(what) { !$0.isEmpty }.expanding(.program) }
}

extension ConfigurationShape where Value == Int {
  /// A number of events, or all that there are.
  fileprivate static var replay: Self {
    let count = count(0...Configuration.Buffer.mostEvents)
    return Self(write: { $0 == Configuration.Stream.everything ? "\"all\"" : "\($0)" }) { node throws(Expected) in
      if case .string("all") = node.value { return Configuration.Stream.everything }
      do throws(Expected) { return try count.read(node) } catch {
        throw Expected("a whole number from 0 to \(Configuration.Buffer.mostEvents), or \"all\"")
      }
    }
  }
}

extension ConfigurationShape where Value == Configuration.Distinct {
  /// Whether events are compared, and by which key.
  fileprivate static var distinct: Self {
    let expectation = "true, false or a jq path such as \".id\""
    return Self(write: { $0 == .whole ? "true" : "false" }) { node throws(Expected) in
      if case .boolean(let flag) = node.value { return flag ? .whole : .no }
      return .by(try ConfigurationShape<String>.program(expectation).read(node))
    }.expanding(.program)
  }
}

extension JQTransform {
  /// The remark of `--check` on programs whose results may not be exact; nil: none.
  static func remark(on configuration: Configuration) -> String? {
    let streams = configuration.streamsAndTemplates.compactMap { stream -> String? in
      var programs = [("jq", stream.jq), ("key", stream.programKey?.key)]
      if case .by(let program) = stream.distinct { programs.append(("distinct", program)) }
      programs += stream.source.section.programs.map { ($0.key, $0.program) }
      let rounding = programs.filter { $0.1.map { JQTransform.roundsNumbers($0) } == true }.map(\.0)
      return rounding.isEmpty ? nil : "\(stream.name) (\(rounding.joined(separator: ", ")))"
    }
    guard !streams.isEmpty else { return nil }
    return "jq 1.6 rounds numbers above 2^53, except in events that a program passes on unchanged: "
      + streams.joined(separator: ", ")
  }
}
