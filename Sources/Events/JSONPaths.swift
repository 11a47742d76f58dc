import Glibc

/// Places in JSON texts, to be found in one pass.
@safe package final class JSONPaths: @unchecked Sendable {  // immutable
  /// A step from a value to a value in it. A step that fits no member and no element leads to nothing.
  package struct Step: Hashable, Sendable {
    /// The member of an object with this name, in UTF-8; nil: no member.
    package let name: [UInt8]?
    /// The element of an array, from 0 on, or `last`; nil: no element.
    package let index: Int?

    /// The index of the last element. Of the paths together, none may lead to another element of the same array.
    package static let last = -1

    /// A step to a member, to an element, or to either.
    package init(name: [UInt8]?, index: Int? = nil) { (self.name, self.index) = (name, index) }
  }

  /// A place in a text; the first one is the whole text.
  fileprivate struct Node {
    /// A range of `children`.
    var steps = 0..<0
    /// A range of `order`: the paths that end here, then those that end further in.
    var paths = 0..<0
    var ends = 0..<0
  }

  fileprivate static let noIndex = Int.min

  /// A step from one place to another.
  fileprivate struct Child {
    /// A range of `names`; empty for none and for an empty name.
    let name: Range<Int>
    let hasName: Bool
    /// `noIndex`: no element.
    let index: Int
    let node: Int
  }

  // Flat and without a retain, because they are used for every value of every text.
  fileprivate let nodes: UnsafeBufferPointer<Node>
  fileprivate let children: UnsafeBufferPointer<Child>
  fileprivate let names: UnsafeBufferPointer<UInt8>
  fileprivate let order: UnsafeBufferPointer<Int>
  /// The number of paths.
  package let count: Int

  /// - Parameter paths: a path without steps is the whole text. One with more than `JSONSyntax.depthLimit` steps leads to
  ///   nothing.
  package init(_ paths: [[Step]]) {
    count = paths.count
    var tree = Tree()
    for (path, steps) in paths.enumerated() where steps.count <= JSONSyntax.depthLimit { tree.add(path, steps) }
    tree.arrange()
    unsafe (nodes, children) = unsafe (Self.copy(tree.nodes), Self.copy(tree.children))
    unsafe (names, order) = unsafe (Self.copy(tree.names), Self.copy(tree.order))
  }

  deinit {
    unsafe nodes.deallocate()
    unsafe children.deallocate()
    unsafe names.deallocate()
    unsafe order.deallocate()
  }

  private static func copy<Element>(_ elements: [Element]) -> UnsafeBufferPointer<Element> {
    let copy = UnsafeMutableBufferPointer<Element>.allocate(capacity: elements.count)
    _ = unsafe copy.initialize(from: elements)
    return UnsafeBufferPointer(copy)
  }

  /// The places that paths lead to, and the ranges of flat arrays that each of them gets. A client may choose the paths: each
  /// step of each path costs one look-up.
  private struct Tree {
    private struct Edge: Hashable {
      let place: Int
      let step: Step
    }

    private var places: [Edge: Int] = [:]
    /// Each step to a new place, with the place from which it leads.
    private var steps: [Edge] = []
    /// The places on the way of each path, then the one at its end.
    private var visits: [(place: Int, path: Int, isEnd: Bool)] = []
    private(set) var nodes = [Node()]
    private(set) var children: [Child] = []
    private(set) var names: [UInt8] = []
    private(set) var order: [Int] = []

    mutating func add(_ path: Int, _ steps: [Step]) {
      var place = 0
      for step in steps {
        visits.append((place, path, false))
        let edge = Edge(place: place, step: step)
        place = places[edge] ?? nodes.count
        guard place == nodes.count else { continue }
        places[edge] = place
        self.steps.append(edge)
        nodes.append(Node())
      }
      visits.append((place, path, true))
    }

    /// Gives each place its range of `children` and of `order`.
    mutating func arrange() {
      var counts = [(steps: Int, ends: Int, paths: Int)](repeating: (0, 0, 0), count: nodes.count)
      for edge in steps { counts[edge.place].steps += 1 }
      for visit in visits {
        if visit.isEnd { counts[visit.place].ends += 1 } else { counts[visit.place].paths += 1 }
      }
      var (childCount, pathCount) = (0, 0)
      for (place, count) in counts.enumerated() {
        nodes[place].steps = childCount..<childCount
        nodes[place].ends = pathCount..<pathCount
        nodes[place].paths = pathCount + count.ends..<pathCount + count.ends
        (childCount, pathCount) = (childCount + count.steps, pathCount + count.ends + count.paths)
      }
      children = [Child](repeating: Child(name: 0..<0, hasName: false, index: noIndex, node: 0), count: childCount)
      for (index, edge) in steps.enumerated() {
        let start = names.count
        names += edge.step.name ?? []
        // Places have the numbers of their steps, from 1 on.
        children[nodes[edge.place].steps.upperBound] = Child(
          name: start..<names.count, hasName: edge.step.name != nil, index: edge.step.index ?? noIndex,
          node: index + 1)
        nodes[edge.place].steps = nodes[edge.place].steps.lowerBound..<nodes[edge.place].steps.upperBound + 1
      }
      order = [Int](repeating: 0, count: pathCount)
      for visit in visits {
        let range = visit.isEnd ? nodes[visit.place].ends : nodes[visit.place].paths
        order[range.upperBound] = visit.path
        let longer = range.lowerBound..<range.upperBound + 1
        if visit.isEnd { nodes[visit.place].ends = longer } else { nodes[visit.place].paths = longer }
      }
    }
  }

  /// The steps of a JSON pointer. Source: RFC 6901.
  /// - Returns: nil for a text that is not a JSON pointer.
  package static func steps(ofPointer text: String) -> [Step]? {
    guard !text.isEmpty else { return [] }
    guard text.utf8.first == UInt8(ascii: "/") else { return nil }
    var steps: [Step] = []
    for token in text.utf8.dropFirst().split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: false) {
      var name: [UInt8] = []
      var rest = token[...]
      while let byte = rest.popFirst() {
        guard byte == UInt8(ascii: "~") else {
          name.append(byte)
          continue
        }
        switch rest.popFirst() {
        case UInt8(ascii: "0"): name.append(UInt8(ascii: "~"))
        case UInt8(ascii: "1"): name.append(UInt8(ascii: "/"))
        case _: return nil
        }
      }
      steps.append(Step(name: name, index: index(name)))
    }
    return steps
  }

  /// - Returns: nil for digits that are not an index of an array.
  static func index(_ digits: [UInt8]) -> Int? {
    guard 1...18 ~= digits.count, digits.allSatisfy({ 0x30...0x39 ~= $0 }), digits.count == 1 || digits[0] != 0x30
    else { return nil }
    return Int(String(decoding: digits, as: UTF8.self))
  }
}

/// Finds values in JSON texts, one after the other, without an allocation for each. If several members have the same
/// name, it finds the last one.
package struct JSONFinder: Sendable {
  private var examination: JSONExamination<PathVisitor>

  package init(_ paths: JSONPaths) { examination = JSONExamination(PathVisitor(paths)) }

  /// Finds the values in a text.
  /// - Returns: whether the bytes are one JSON text in UTF-8.
  /// - Complexity: O(n).
  package mutating func find(in text: Span<UInt8>) -> Bool {
    begin()
    return advance(in: text, by: text.count) ?? false
  }

  /// Begins with another text.
  package mutating func begin() {
    examination.restart()
    examination.visitor.reset()
  }

  /// Examines further bytes.
  ///
  /// - Parameters:
  ///   - text: the same text in each call.
  ///   - count: the number of bytes to examine.
  /// - Returns: whether the bytes are one JSON text; nil while that is not known.
  package mutating func advance(in text: Span<UInt8>, by count: Int) -> Bool? {
    examination.advance(in: text, by: count)
  }

  /// Examines the bytes that were added to a text since the last call.
  /// - Returns: whether they can be the beginning of a JSON text. Once they cannot, no further call is useful.
  package mutating func continues(in text: Span<UInt8>) -> Bool { examination.continues(in: text) }

  /// Ends a text that was examined whole.
  /// - Returns: whether it is a JSON text.
  package mutating func finish() -> Bool { examination.finish() }

  /// The range of the value at a path, in a whole JSON text; nil if there is none. For an array or an object, only the
  /// first byte.
  package subscript(path: Int) -> Range<Int>? {
    let range = examination.visitor.found[path]
    return range.isEmpty ? nil : range
  }

  /// The value at a path in a whole JSON text as it is written, without the space between its tokens; nil if there is
  /// none.
  package func value(at path: Int, in text: Span<UInt8>) -> [UInt8]? {
    guard var index = self[path]?.lowerBound, let end = self[path]?.upperBound else { return nil }
    var bytes: [UInt8] = []
    var (depth, isString, isEscaped) = (0, false, false)
    repeat {
      let byte = text[index]
      index += 1
      if isString {
        bytes.append(byte)
        isString = isEscaped || byte != UInt8(ascii: "\"")
        isEscaped = !isEscaped && byte == UInt8(ascii: "\\")
        continue
      }
      switch byte {
      case 0x20, 0x09, 0x0A, 0x0D: continue
      case UInt8(ascii: "{"), UInt8(ascii: "["): depth += 1
      case UInt8(ascii: "}"), UInt8(ascii: "]"): depth -= 1
      case UInt8(ascii: "\""): isString = true
      case _: break
      }
      bytes.append(byte)
    } while depth > 0 || index < end
    return bytes
  }
}

/// Follows paths through a text.
private struct PathVisitor: JSONVisitor {
  private let paths: JSONPaths
  /// For each path the range of its value; empty if there is none.
  private(set) var found: [Range<Int>]
  /// An array or an object that a path leads into.
  private struct Container {
    /// Its place; -1: none.
    var node = -1
    /// The number of elements of an array that have begun; -1 for an object.
    var elements = -1
  }

  /// The innermost open array or object, and those around it, from the outermost on.
  private var container = Container()
  private var outer: [Container] = []
  /// Open arrays and objects in `container` that no path leads into.
  private var foreignDepth = 0
  /// The place of the next value, if a path leads there, else -1.
  private var next = 0
  /// The place of the scalar that has begun, if a path ends there, else -1.
  private var scalar = -1
  private var scalarStart = 0

  init(_ paths: JSONPaths) {
    self.paths = paths
    found = Array(repeating: 0..<0, count: paths.count)
  }

  /// Forgets the former text.
  mutating func reset() {
    for path in found.indices { found[path] = 0..<0 }
    if !outer.isEmpty { outer.removeAll(keepingCapacity: true) }
    (container, foreignDepth, next, scalar) = (Container(), 0, 0, -1)
  }

  @inline(__always) mutating func beginValue(at index: Int, _ first: UInt8) {
    let isContainer = first == UInt8(ascii: "{") || first == UInt8(ascii: "[")
    guard foreignDepth == 0 else {
      if isContainer { foreignDepth += 1 }
      return
    }
    let place = takeNext()
    guard place >= 0 else {
      if isContainer { foreignDepth = 1 }
      return
    }
    begin(place, at: index, first, isContainer: isContainer)
  }

  /// A value begins at a place that a path leads to.
  private mutating func begin(_ place: Int, at index: Int, _ first: UInt8, isContainer: Bool) {
    let node = unsafe paths.nodes[place]
    for index in node.paths { unsafe found[paths.order[index]] = 0..<0 }  // of a member with the same name before
    guard isContainer else {
      if !node.ends.isEmpty { (scalar, scalarStart) = (place, index) }
      return
    }
    for end in node.ends { unsafe found[paths.order[end]] = index..<index + 1 }
    guard !node.steps.isEmpty else {
      foreignDepth = 1
      return
    }
    if container.node >= 0 { outer.append(container) }
    container = Container(node: place, elements: first == UInt8(ascii: "[") ? 0 : -1)
  }

  /// The place of the value that begins; -1 for none.
  @inline(__always) private mutating func takeNext() -> Int {
    guard container.elements >= 0 else {
      defer { next = -1 }
      return next
    }
    container.elements += 1
    for child in unsafe paths.nodes[container.node].steps {
      // Each element may be the last one. What was found in the one before is forgotten, as with a repeated name.
      let index = unsafe paths.children[child].index
      if index == container.elements - 1 || index == JSONPaths.Step.last { return unsafe paths.children[child].node }
    }
    return -1
  }

  @inline(__always) mutating func endScalar(before index: Int) {
    guard scalar >= 0 else { return }
    for end in unsafe paths.nodes[scalar].ends { unsafe found[paths.order[end]] = scalarStart..<index }
    scalar = -1
  }

  @inline(__always) mutating func endContainer(before index: Int) {
    guard foreignDepth == 0 else {
      foreignDepth -= 1
      return
    }
    container = outer.popLast() ?? Container()
  }

  @inline(__always) mutating func endName(_ name: UnsafeRawBufferPointer, isPlain: Bool) {
    guard foreignDepth == 0, container.node >= 0 else { return }
    next = unsafe isPlain ? child(of: container.node, withName: name) : child(of: container.node, named: name)
  }

  @inline(never) private func child(of place: Int, named name: UnsafeRawBufferPointer) -> Int {
    var plain: [UInt8] = []
    unsafe JSONScalar.appendUnescaped(name.bindMemory(to: UInt8.self).span, to: &plain)
    return unsafe plain.withUnsafeBytes { unsafe child(of: place, withName: $0) }
  }

  @inline(__always) private func child(of place: Int, withName name: UnsafeRawBufferPointer) -> Int {
    for index in unsafe paths.nodes[place].steps {
      let child = unsafe paths.children[index]
      guard child.hasName, child.name.count == name.count else { continue }
      let isEqual =
        unsafe name.isEmpty
        || memcmp(paths.names.baseAddress! + child.name.lowerBound, name.baseAddress!, name.count) == 0
      if isEqual { return child.node }
    }
    return -1
  }
}
