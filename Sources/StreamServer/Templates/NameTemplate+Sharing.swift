extension NameTemplate {
  /// A name that both templates have; nil: there is none.
  ///
  /// No value has a slash, so that segments are compared one by one. The time depends on the lengths and lists of their
  /// parameters; templates with other literal segments, or another number of them, are found to be apart at once.
  package func example(sharedWith other: NameTemplate) -> String? {
    guard segments.count == other.segments.count else { return nil }
    guard zip(segments, other.segments).allSatisfy({ $0.mayShareText(with: $1) }) else { return nil }
    var name: [UInt8] = []
    for (index, (one, another)) in zip(segments, other.segments).enumerated() {
      let segments = (SegmentTexts(one, parameters), SegmentTexts(another, other.parameters))
      guard let text = SegmentTexts.shortest(of: segments.0, and: segments.1) else { return nil }
      if index > 0 { name.append(UInt8(ascii: "/")) }
      name += text
    }
    return name.count <= Self.longestName ? String(decoding: name, as: UTF8.self) : nil
  }
}

extension NameTemplate.Segment {
  /// Compares the literal parts at both ends.
  fileprivate func mayShareText(with other: Self) -> Bool {
    if let literal, let other = other.literal { return literal == other }
    return zip(prefix, other.prefix).allSatisfy(==)
      && zip(suffix.reversed(), other.suffix.reversed()).allSatisfy(==)
  }

  private var suffix: [UInt8] { parts.last?.literal ?? prefix }
}

/// The texts that a segment can have, as a finite automaton.
private struct SegmentTexts {
  private enum Item {
    case literal([UInt8])
    case any(NameTemplate.Parameter)
    /// One of these, which are sorted.
    case one([[UInt8]])
  }

  /// A state: the place in an item. States are normal: the place is never behind a literal part.
  private struct State: Hashable {
    var item = 0
    /// The number of bytes of the item that were read.
    var offset = 0
    /// The values that begin with these bytes.
    var values = 0..<0
    /// Whether the bytes of the value are dots, of which one or two are no value.
    var hasDotsOnly = true
  }

  private struct Pair: Hashable {
    let one: State
    let other: State
  }

  private let items: [Item]

  init(_ segment: NameTemplate.Segment, _ parameters: [NameTemplate.Parameter]) {
    var items: [Item] = [.literal(segment.prefix)]
    for part in segment.parts {
      let parameter = parameters[part.parameter]
      if let values = parameter.values {
        items.append(.one(values.map { Array($0.utf8) }.sorted { $0.lexicographicallyPrecedes($1) }))
      } else {
        items.append(.any(parameter))
      }
      items.append(.literal(part.literal))
    }
    self.items = items
  }

  /// The shortest text of both; nil: there is none. Searches the pairs of states breadth first.
  static func shortest(of one: SegmentTexts, and other: SegmentTexts) -> [UInt8]? {
    let first = Pair(one: one.state(at: 0), other: other.state(at: 0))
    var origins: [Pair: (pair: Pair?, byte: UInt8)] = [first: (nil, 0)]
    var queue = [first]
    var index = 0
    while index < queue.count {
      let pair = queue[index]
      index += 1
      if one.isFinal(pair.one), other.isFinal(pair.other) {
        var text: [UInt8] = []
        var origin = origins[pair]
        while let step = origin, let previous = step.pair {
          text.append(step.byte)
          origin = origins[previous]
        }
        return text.reversed()
      }
      let (steps, others) = (one.steps(from: pair.one), other.steps(from: pair.other))
      for step in steps {
        for other in others {
          guard let byte = step.bytes.intersection(other.bytes).members.first else { continue }
          let next = Pair(one: step.state, other: other.state)
          guard origins[next] == nil else { continue }
          origins[next] = (pair, byte)
          queue.append(next)
        }
      }
    }
    return nil
  }

  /// The state before an item.
  private func state(at item: Int) -> State {
    guard item < items.count else { return State(item: item) }
    switch items[item] {
    case .literal(let bytes): return bytes.isEmpty ? state(at: item + 1) : State(item: item)
    case .any: return State(item: item)
    case .one(let values): return State(item: item, values: 0..<values.count)
    }
  }

  /// Whether the item of a value may end in this state.
  private func mayEnd(_ state: State) -> Bool {
    guard state.item < items.count else { return false }
    switch items[state.item] {
    case .literal: return false
    case .any: return state.offset > (state.hasDotsOnly ? 2 : 0)
    case .one(let values): return state.offset > 0 && values[state.values.lowerBound].count == state.offset
    }
  }

  private func isFinal(_ state: State) -> Bool {
    state.item == items.count || mayEnd(state) && self.state(at: state.item + 1).item == items.count
  }

  private func steps(from state: State) -> [(bytes: NameCharacters, state: State)] {
    guard state.item < items.count else { return [] }
    var steps = mayEnd(state) ? self.steps(from: self.state(at: state.item + 1)) : []
    var next = state
    next.offset += 1
    switch items[state.item] {
    case .literal(let bytes):
      steps.append(
        (NameCharacters([bytes[state.offset]]), next.offset == bytes.count ? self.state(at: state.item + 1) : next))
    case .any(let parameter):
      guard state.offset < parameter.length else { break }
      let dot = NameCharacters([UInt8(ascii: ".")])
      // What matters is whether there are more than two dots.
      steps.append((parameter.characters.intersection(dot), next))
      next.hasDotsOnly = false
      steps.append((parameter.characters.subtracting(dot), next))
    case .one(let values):
      var start = state.values.lowerBound
      while start < state.values.upperBound {
        guard values[start].count > state.offset else {
          start += 1
          continue
        }
        let byte = values[start][state.offset]
        let end = values[start..<state.values.upperBound].firstIndex { $0[state.offset] != byte }
        next.values = start..<(end ?? state.values.upperBound)
        steps.append((NameCharacters([byte]), next))
        start = next.values.upperBound
      }
    }
    return steps
  }
}
