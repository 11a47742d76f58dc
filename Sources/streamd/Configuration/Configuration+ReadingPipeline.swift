import StreamSources

extension ConfigurationReader {
  /// Reads a stream's keys for the pipeline between source and log.
  func pipeline(_ table: ConfigurationTable, into stream: inout Configuration.Stream) {
    stream.jq = table.value("jq", .program("a jq program such as \".quotes[]\""))
    check(stream.jq, table, "jq")
    stream.distinct = table.value("distinct", .distinct, default: stream.distinct)
    if case .by(let key) = stream.distinct { check(key, table, "distinct") }
    stream.throttle = table.value("throttle", .duration())
  }

  private func check(_ program: String?, _ table: ConfigurationTable, _ key: String) {
    guard let program, let mistake = JQTransform.compileError(in: program) else { return }
    table.addError("not a jq program: \(mistake)", at: key)
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
