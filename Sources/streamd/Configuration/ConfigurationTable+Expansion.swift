import StreamRuntime
import StreamServer

/// What the first reading of a template has found outside of its file, so that the later ones, which make streams, ask neither the
/// disk nor the databases of users again. Thread-safe.
final class TemplateMemory: Sendable {
  private struct Content {
    var secrets: [String: Secret] = [:]
    var files: [String: [UInt8]] = [:]
    var ids: [String: UInt32] = [:]
    var variables: Set<String> = []
    var hasExpressions = false
    var hasExpressionsInRules = false
  }

  private let content = Locked(Content())

  /// Whether a text of the template has an expression.
  var hasExpressions: Bool { content.withLock(\.hasExpressions) }
  /// Whether one of `read` or `write` has, so that each stream needs a look-up.
  var hasExpressionsInRules: Bool { content.withLock(\.hasExpressionsInRules) }

  /// The names of parameters that are variables of programs.
  var variables: Set<String> { content.withLock(\.variables) }

  func noteVariables(_ names: [String]) { content.withLock { $0.variables.formUnion(names) } }

  func noteExpression(in place: TextExpansion.Place) {
    content.withLock {
      $0.hasExpressions = true
      if place == .rule { $0.hasExpressionsInRules = true }
    }
  }

  func secret(named name: String) -> Secret? { content.withLock { $0.secrets[name] } }

  func keep(_ secret: Secret) { content.withLock { $0.secrets[secret.name] = secret } }

  func content(ofFile path: String) -> [UInt8]? { content.withLock { $0.files[path] } }

  func keep(_ bytes: [UInt8], ofFile path: String) { content.withLock { $0.files[path] = bytes } }

  /// The id of `rule`, such as `user:alice`, which `find` looks up the first time.
  func id(of rule: String, find: () throws(Expected) -> UInt32) throws(Expected) -> UInt32 {
    if let known = content.withLock({ $0.ids[rule] }) { return known }
    let id = try find()
    content.withLock { $0.ids[rule] = id }
    return id
  }
}

extension ConfigurationTable {
  /// The node with values in place of its expressions; nil after recording an error.
  func expanded(
    _ node: ConfigurationNode, in place: TextExpansion.Place, key: String, at index: Int
  ) -> ConfigurationNode? {
    guard let expansion = context.expansion else { return node }
    noteExpanded(key)
    do throws(NameTemplate.Fault) {
      guard let expanded = try node.expanded(by: expansion, in: place, at: index) else { return node }
      context.memory?.noteExpression(in: place)
      return expanded
    } catch {
      addError(error.sentence, at: key, line: node.line)
      return nil
    }
  }

  /// Records an error for each key and text with an expression that no form permits: those that are read in another way.
  func refuseExpressions() {
    guard let expansion = context.expansion else { return }
    for key in keys {
      let texts = isExpanded(key) ? [] : self.texts(at: key)
      do throws(NameTemplate.Fault) {
        for text in [key] + texts { _ = try expansion.expand(text, in: .fixed) }
      } catch {
        addError(error.sentence, at: key)
      }
    }
  }
}

extension ConfigurationNode {
  /// The node with values in place of the expressions in its strings.
  /// - Returns: nil if there are none.
  fileprivate func expanded(
    by expansion: TextExpansion, in place: TextExpansion.Place, at index: Int
  ) throws(NameTemplate.Fault) -> ConfigurationNode? {
    var hasExpression = false
    func expand(_ node: ConfigurationNode) throws(NameTemplate.Fault) -> ConfigurationNode {
      guard let expanded = try node.expanded(by: expansion, in: place, at: index) else { return node }
      hasExpression = true
      return expanded
    }
    let expanded: Value
    switch value {
    case .string(let text):
      guard let text = try expansion.expand(text, in: place, at: index) else { return nil }
      return ConfigurationNode(line: line, value: .string(text), isExpanded: true)
    case .array(let elements):
      var others: [ConfigurationNode] = []
      for element in elements { others.append(try expand(element)) }
      expanded = .array(others)
    case .table(let members):
      var others: [String: ConfigurationNode] = [:]
      for (key, member) in members { others[key] = try expand(member) }
      expanded = .table(others)
    case .integer, .float, .boolean, .date: return nil
    }
    return hasExpression ? ConfigurationNode(line: line, value: expanded, isExpanded: true) : nil
  }
}
