import StreamServer
import StreamSources

extension Configuration {
  /// `together` of a source: one upstream for all streams of a template.
  struct Together: Sendable, Equatable {
    /// The parameter whose values are asked for together.
    var parameter = ""
    /// The name of all its values in a URL or a body.
    var list: String?
    /// Values of a request, or a connection.
    var most = 100
    /// jq programs: each makes the parts of an answer, `nil`: it is one part; route the value of a part; refused the value that
    /// a message refuses, `nil`: none does.
    var each: String?
    var route = ""
    var refused: String?
  }
}

extension Configuration.Together: ConfigurationSection {
  static let example = #"{ parameter = "symbol", route = ".symbol" }"#

  static let keys: [ConfigurationKey<Self>] = [
    .init(["parameter"], \.parameter) { table, parameter in
      guard let names = table.context.expansion?.values.names else {
        _ = table.holds("parameter")
        return
      }
      if names.count == 1, !table.holds("parameter") {
        parameter = names[0]
        return
      }
      table.require("parameter", suchAs: "parameter = \"\(names[0])\"")
      let known = names.map { "\"\($0)\"" }.joined(separator: " or ")
      parameter =
        table.complete(table.value("parameter", .text("a parameter of the name: \(known)") { names.contains($0) }))
        ?? parameter
    },
    .init(
      "as", \.list,
      .text("a name such as \"symbols\", with small letters, digits and \"_\"") { NameTemplate.isParameterName($0) }),
    .init("most", \.most, .count(1...10_000)),
    .init("each", \.each, .program("a jq program such as \".quotes[]\"")),
    .init(required: "route", suchAs: "route = \".symbol\"", \.route, .program("a jq program such as \".symbol\"")),
    .init("refused", \.refused, .program("a jq program such as \".error.symbol\"")),
    .check { $1.check($0) },
  ]

  private func check(_ table: ConfigurationTable) {
    guard let names = table.context.expansion?.values.names, !table.isFaulty("parameter") else { return }
    if let list, names.contains(list) {
      table.addError("expected another name than that of a parameter, got \"\(list)\"", at: "as")
    }
    for (key, program) in [("each", each), ("route", route.isEmpty ? nil : route), ("refused", refused)] {
      table.checkProgram(program, at: key)
      guard let program, !JQTransform.variables(in: program, among: [parameter]).isEmpty else { continue }
      table.addError("expected no $\(parameter): the program finds the values of all streams", at: key)
    }
  }
}

extension ConfigurationTable {
  /// Reads `together`, before the texts with its values.
  func together() -> Configuration.Together? {
    guard holds("together") else { return nil }
    let together = section("together", Configuration.Together(), suchAs: Configuration.Together.example)
    guard context.expansion != nil else {
      addError(
        "expected together only with a name that has an expression, such as [streams.\"NAME/{x}\"]", at: "together")
      return nil
    }
    guard let together, !isFaulty("together") else {
      // Its texts cannot be judged.
      let names = context.expansion?.values.names ?? []
      context.expansion?.together = names
      return nil
    }
    context.expansion?.together = [together.parameter] + (together.list.map { [$0] } ?? [])
    return together
  }

  /// A text with places for the values of `together`.
  ///
  /// - Parameter list: whether all values may be at one place.
  /// - Returns: `nil` after recording an error.
  func unionText(_ text: String, _ together: Configuration.Together, hasList: Bool, at key: String) -> UnionText? {
    do throws(UnionText.Fault) {
      let text = try together.text(text, hasList: hasList)
      let longest = String(repeating: "x", count: NameTemplate.Parameter.longest)
      let counts = (1...2).map { text.text(Array(repeating: longest, count: $0)).utf8.count }
      let byteCount = counts[0] + (counts[1] - counts[0]) * (together.most - 1)
      guard byteCount <= 2 << 20 else {
        addError("expected at most 2MiB with the values, got up to \(byteCount) bytes: lower most", at: key)
        return nil
      }
      return text
    } catch {
      addError(error.sentence, at: key)
      return nil
    }
  }
}

extension Configuration.Together {
  func text(_ text: String, hasList: Bool) throws(UnionText.Fault) -> UnionText {
    try UnionText(text, parameter: parameter, list: hasList ? list : nil)
  }

  /// The value of a stream's own, and the variables of the programs: the other values.
  func value(in union: UnionContext) -> (own: String, others: [String: String]) {
    let others = zip(union.values.names, union.values.values).filter { $0.0 != parameter }
    return (union.values[parameter] ?? "", Dictionary(uniqueKeysWithValues: others))
  }

  func programs(in union: UnionContext) -> UnionParts.Programs {
    UnionParts.Programs(each: each, route: route, refused: refused, variables: value(in: union).others)
  }

  /// The union of a stream, which it shares with all that differ from it in this value alone.
  func unionName(in union: UnionContext) -> String {
    value(in: union).others.sorted { $0.key < $1.key }.reduce(union.template) { "\($0) \($1.key)=\($1.value)" }
  }
}

/// What the streams of a template have together.
struct UnionContext {
  /// The template's name.
  let template: String
  let values: NameValues
  let all: ValueUnions
  /// The context of a union with this name.
  let context: (_ name: String) -> SourceContext
}

extension ConfigurationShape where Value == Int {
  /// A number of messages or requests in a second.
  static var pace: Self {
    Self(write: { "\"\($0)/s\"" }) { node throws(Expected) in
      guard case .string(let text) = node.value, text.hasSuffix("/s"), let count = Int(text.dropLast(2)),
        1...10_000 ~= count, text.utf8.first != UInt8(ascii: "+")
      else { throw Expected("a pace from \"1/s\" to \"10000/s\"") }
      return count
    }
  }
}
