/// Templates, no two of which share a name, as a tree of their segments. A search visits those whose literal parts the name
/// has so far, and allocates only for the values of a template that fits.
package struct NameTemplates: Sendable {
  /// What templates have in common up to a slash.
  private struct Node {
    /// The next node by a digest of the literal segment. Two segments of one digest share a node.
    var literals: [UInt64: Int] = [:]
    /// The next nodes of segments with expressions, by the literal part that begins them.
    var beginnings: [(prefix: [UInt8], node: Int)] = []
    /// The templates that end here.
    var templates: [Int] = []
  }

  package let templates: [NameTemplate]
  private var nodes = [Node()]

  package init(_ templates: [NameTemplate]) {
    self.templates = templates
    for (index, template) in templates.enumerated() {
      let node = template.segments.reduce(0) { node, segment in next(after: node, segment) }
      nodes[node].templates.append(index)
    }
  }

  private mutating func next(after node: Int, _ segment: NameTemplate.Segment) -> Int {
    if let literal = segment.literal {
      let digest = literal.span.digest(0..<literal.count)
      if let next = nodes[node].literals[digest] { return next }
      nodes[node].literals[digest] = nodes.count
    } else {
      if let next = nodes[node].beginnings.first(where: { $0.prefix == segment.prefix }) { return next.node }
      nodes[node].beginnings.append((segment.prefix, nodes.count))
    }
    nodes.append(Node())
    return nodes.count - 1
  }

  /// The index of the template that makes a name, and the values with which it does; nil: none makes it.
  package func match(_ name: String) -> (index: Int, values: NameValues)? {
    var found: (Int, NameValues)?
    search(name) { index, match in
      guard case .values(let values) = match else { return false }
      found = (index, values)
      return true
    }
    return found
  }

  /// For a name that no template makes, the index of one whose form it has, and the rule that a value violates as the end of a
  /// sentence, see `NameTemplate.Match`.
  package func rule(brokenBy name: String) -> (index: Int, sentence: String)? {
    var found: (Int, String)?
    search(name) { index, match in
      guard case .violates(let rule) = match else { return false }
      found = (index, rule)
      return true
    }
    return found
  }

  /// Compares a name with each template whose literal segments it has, until `body` returns true.
  private func search(_ name: String, _ body: (Int, NameTemplate.Match) -> Bool) {
    guard !templates.isEmpty, name.utf8.count <= NameTemplate.longestName else { return }
    _ = search(name, name.utf8.span, from: 0, at: 0, body)
  }

  /// - Parameter start: the place of the segment that leads from the node.
  private func search(
    _ name: String, _ bytes: Span<UInt8>, from start: Int, at node: Int, _ body: (Int, NameTemplate.Match) -> Bool
  ) -> Bool {
    guard start <= bytes.count else { return nodes[node].templates.contains { body($0, templates[$0].match(name)) } }
    var end = start
    while end < bytes.count, bytes[end] != UInt8(ascii: "/") { end += 1 }
    if let next = nodes[node].literals[bytes.digest(start..<end)],
      search(name, bytes, from: end + 1, at: next, body)
    {
      return true
    }
    for (prefix, next) in nodes[node].beginnings where bytes.holds(prefix, at: start, before: end) {
      if search(name, bytes, from: end + 1, at: next, body) { return true }
    }
    return false
  }
}

extension Span<UInt8> {
  /// FNV-1a of 64 bits.
  fileprivate func digest(_ range: Range<Int>) -> UInt64 {
    var digest: UInt64 = 0xcbf2_9ce4_8422_2325
    for index in range { digest = (digest ^ UInt64(self[index])) &* 0x100_0000_01b3 }
    return digest
  }
}
