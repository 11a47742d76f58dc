import Events
import StreamSources

extension ConfigurationReader {
  /// Reads a stream's keys for the pipeline between source and log.
  func pipeline(_ table: ConfigurationTable, into stream: inout Configuration.Stream) {
    stream.validate = table.value("validate", .choice, default: stream.validate)
    if stream.validate == .json, !stream.hasJSONType {
      table.addError("expected a type of JSON with validate = \"json\", such as \"application/json\"", at: "validate")
    }
    stream.jq = table.value("jq", .program("a jq program such as \".quotes[]\""))
    check(stream.jq, table, "jq")
    stream.distinct = table.value("distinct", .distinct, default: stream.distinct)
    if case .by(let key) = stream.distinct { check(key, table, "distinct") }
    stream.throttle = table.value("throttle", .duration())
  }

  /// Reads what the keys of a stream's events are, and the limits of its state.
  func keys(_ table: ConfigurationTable, into stream: inout Configuration.Stream) {
    let key = table.value("key", .program("a jq program such as \".symbol\""))
    let tombstone = table.value("tombstone", .program("a jq program such as \".deleted\""))
    stream.key = key.map { KeyDefinition(key: $0, tombstone: tombstone) }
    if stream.programKey != nil {
      check(key, table, "key")
      check(tombstone, table, "tombstone")
    }
    stream.maxKeys = table.value("max_keys", .count(1...Self.mostKeys), default: stream.maxKeys)
    stream.stateBytes = table.value("state_bytes", .size(4096...32 << 30), default: stream.stateBytes)
    for name in ["tombstone", "max_keys", "state_bytes"] where table.holds(name) && !table.holds("key") {
      table.addError("expected \(name) only with key", at: name)
    }
  }

  /// The highest number of keys; more is assumed to be a typing error.
  private static let mostKeys = 1 << 27

  private func check(_ program: String?, _ table: ConfigurationTable, _ key: String) {
    guard let program, let mistake = JQTransform.compileError(in: program) else { return }
    table.addError("not a jq program: \(mistake)", at: key)
  }
}

extension JQTransform {
  /// The remark of `--check` on programs whose results may not be exact; nil: none.
  static func remark(on configuration: Configuration) -> String? {
    let streams = configuration.streams.compactMap { stream -> String? in
      var programs = [("jq", stream.jq), ("key", stream.programKey?.key)]
      if case .by(let program) = stream.distinct { programs.append(("distinct", program)) }
      let rounding = programs.filter { $0.1.map { JQTransform.roundsNumbers($0) } == true }.map(\.0)
      return rounding.isEmpty ? nil : "\(stream.name) (\(rounding.joined(separator: ", ")))"
    }
    guard !streams.isEmpty else { return nil }
    return "jq 1.6 rounds numbers above 2^53, except in events that a program passes on unchanged: "
      + streams.joined(separator: ", ")
  }
}

extension ConfigurationShape where Value == String {
  /// A non-empty text.
  fileprivate static func program(_ what: String) -> Self { text(what) { !$0.isEmpty } }
}

extension ConfigurationShape where Value == Configuration.Distinct {
  /// Whether events are compared, and by which key.
  fileprivate static var distinct: Self {
    let expectation = "true, false or a jq path such as \".id\""
    return Self(write: { $0 == .whole ? "true" : "false" }) { node throws(Expected) in
      if case .boolean(let flag) = node.value { return flag ? .whole : .no }
      return .by(try ConfigurationShape<String>.program(expectation).read(node))
    }
  }
}
