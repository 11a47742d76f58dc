import Events
import StreamProtocol

/// Decides which events fit a filter. Its time depends only on the event's size and the filter's.
struct EventMatcher {
  fileprivate enum Test {
    case equalsOne(of: [Scalar])
    case hasPrefix([UInt8])
    /// The value compared to the number is among the results: -1, 0, 1.
    case isNumber([UInt8], JSONNumber, results: ClosedRange<Int>)
    case exists(Bool)
  }

  fileprivate enum Scalar {
    case string([UInt8])
    case number([UInt8], JSONNumber)
    case literal([UInt8])
  }

  private let tests: [(path: Int, test: Test)]
  private var finder: JSONFinder
  /// The characters of a string with escapes; kept for its memory.
  private var characters: [UInt8] = []

  init(_ filter: EventFilter) {
    finder = JSONFinder(JSONPaths(filter.conditions.map { JSONPaths.steps(ofPointer: $0.pointer) ?? [] }))
    tests = filter.conditions.enumerated().map { ($0.offset, Test($0.element.test)) }
  }

  /// - Returns: whether the event fits.
  mutating func fits(_ event: Span<UInt8>) -> Bool { finder.find(in: event) && holds(in: event) }

  /// Begins with another event, which is examined in parts.
  mutating func begin() { finder.begin() }

  /// - Parameters:
  ///   - event: the same in each call.
  ///   - count: of bytes to examine.
  /// - Returns: whether the event fits; nil while that is not known.
  mutating func advance(in event: Span<UInt8>, by count: Int) -> Bool? {
    finder.advance(in: event, by: count).map { $0 && holds(in: event) }
  }

  private mutating func holds(in event: Span<UInt8>) -> Bool {
    for (path, test) in tests {
      guard let range = finder[path] else {
        guard case .exists(false) = test else { return false }
        continue
      }
      guard holds(test, for: event.extracting(range)) else { return false }
    }
    return true
  }

  private mutating func holds(_ test: Test, for value: Span<UInt8>) -> Bool {
    let kind = JSONScalar.kind(value[0])
    switch test {
    case .exists(let flag): return flag
    case .hasPrefix(let prefix): return kind == .string && compare(value, prefix, isWhole: false)
    case .isNumber(let text, let number, let results):
      return kind == .number && results.contains(JSONNumber(value).compared(in: value, to: number, in: text.span))
    case .equalsOne(let scalars):
      for scalar in scalars {
        switch scalar {
        case .string(let text): if kind == .string, compare(value, text, isWhole: true) { return true }
        case .literal(let text): if kind == .boolean || kind == .null, value.isEqual(to: text.span) { return true }
        case .number(let text, let number):
          if kind == .number, JSONNumber(value).compared(in: value, to: number, in: text.span) == 0 { return true }
        }
      }
      return false
    }
  }

  /// Whether a string, with its quotes, has these characters.
  private mutating func compare(_ string: Span<UInt8>, _ text: [UInt8], isWhole: Bool) -> Bool {
    let content = string.extracting(1..<string.count - 1)
    for index in content.indices where content[index] == UInt8(ascii: "\\") {
      characters.removeAll(keepingCapacity: true)
      JSONScalar.appendUnescaped(content, to: &characters)
      return isWhole ? characters == text : characters.starts(with: text)
    }
    guard isWhole ? content.count == text.count : content.count >= text.count else { return false }
    return content.extracting(0..<text.count).isEqual(to: text.span)
  }
}

extension EventMatcher.Test {
  fileprivate init(_ test: EventFilter.Test) {
    func number(_ results: ClosedRange<Int>, _ text: String) -> Self {
      let bytes = Array(text.utf8)
      return .isNumber(bytes, JSONNumber(bytes.span), results: results)
    }
    switch test {
    case .equals(let scalar): self = .equalsOne(of: [EventMatcher.Scalar(scalar)])
    case .oneOf(let scalars): self = .equalsOne(of: scalars.map { EventMatcher.Scalar($0) })
    case .hasPrefix(let text): self = .hasPrefix(Array(text.utf8))
    case .greaterThan(let value): self = number(1...1, value.description)
    case .atLeast(let value): self = number(0...1, value.description)
    case .lessThan(let value): self = number(-1 ... -1, value.description)
    case .atMost(let value): self = number(-1...0, value.description)
    case .exists(let flag): self = .exists(flag)
    }
  }
}

extension EventMatcher.Scalar {
  fileprivate init(_ scalar: EventFilter.Scalar) {
    switch scalar {
    case .string(let text): self = .string(Array(text.utf8))
    case .number(let value):
      let bytes = Array(value.description.utf8)
      self = .number(bytes, JSONNumber(bytes.span))
    case .boolean(let flag): self = .literal(Array((flag ? "true" : "false").utf8))
    case .null: self = .literal(Array("null".utf8))
    }
  }
}

extension Span<UInt8> {
  fileprivate func isEqual(to other: Span<UInt8>) -> Bool {
    guard count == other.count else { return false }
    for index in indices where self[index] != other[index] { return false }
    return true
  }
}
