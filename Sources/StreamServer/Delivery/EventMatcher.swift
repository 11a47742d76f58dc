import Events
import StreamProtocol

/// Decides which events fit a filter. It examines an event once. The cost of the comparisons has a bound that depends
/// on the filter alone: it rises neither with the length of the event's values nor with that of the filter's lists.
struct EventMatcher {
  fileprivate enum Test {
    case equals(Scalar)
    case equalsOne(of: Scalars)
    case hasPrefix([UInt8])
    /// The comparison of the value with the number gives one of the results: -1, 0 or 1.
    case isNumber([UInt8], JSONNumber, results: ClosedRange<Int>)
    case exists(Bool)
  }

  /// A scalar that is compared with a value. Most filters have one, and a comparison takes less time than a look-up.
  fileprivate enum Scalar {
    case string([UInt8])
    case number([UInt8], JSONNumber)
    case literal([UInt8])
  }

  /// Scalars among which a value is looked up. A class, because tests are copied for every event.
  fileprivate final class Scalars {
    /// The characters of strings.
    private(set) var strings: Set<[UInt8]> = []
    /// Numbers in their normal form.
    private(set) var numbers: Set<[UInt8]> = []
    /// true, false and null as they are written.
    private(set) var literals: Set<[UInt8]> = []
    /// The maximum bytes of the longest string as it is written: an escape for one byte has six.
    private(set) var contentLimit = 0

    init(_ scalars: [EventFilter.Scalar]) {
      for scalar in scalars {
        switch scalar {
        case .string(let text):
          strings.insert(Array(text.utf8))
          contentLimit = max(contentLimit, 6 * text.utf8.count)
        case .number(let value):
          let bytes = Array(value.description.utf8)
          var normal: [UInt8] = []
          JSONNumber(bytes.span).appendNormalForm(in: bytes.span, to: &normal)
          numbers.insert(normal)
        case .boolean(let flag): literals.insert(Array((flag ? "true" : "false").utf8))
        case .null: literals.insert(Array("null".utf8))
        }
      }
    }
  }

  private let tests: [(path: Int, test: Test)]
  private var finder: JSONFinder
  /// The value that is looked up. It is a property because its memory is used again.
  private var key: [UInt8] = []

  /// - Complexity: O(bytes of the filter).
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
  ///   - count: the number of bytes to examine.
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
    case .hasPrefix(let prefix): return kind == .string && begins(value, with: prefix)
    case .isNumber(let text, let number, let results):
      guard kind == .number, value.count <= EventFilter.Number.characterLimit else { return false }
      return results.contains(JSONNumber(value).compared(in: value, to: number, in: text.span))
    case .equals(let scalar): return isEqual(value, kind, to: scalar)
    case .equalsOne(let scalars): return isOne(of: scalars, value, kind)
    }
  }

  private mutating func isEqual(_ value: Span<UInt8>, _ kind: JSONScalar.Kind, to scalar: Scalar) -> Bool {
    switch scalar {
    case .string(let text):
      guard kind == .string else { return false }
      let content = value.extracting(1..<value.count - 1)
      if content.count == text.count { return content.isEqual(toPlain: text.span) }
      // A string with escapes is longer, up to six times as long.
      guard text.count..<6 * text.count + 1 ~= content.count else { return false }
      key.removeAll(keepingCapacity: true)
      JSONScalar.appendUnescaped(content, to: &key)
      return key == text
    case .number(let text, let number):
      guard kind == .number, value.count <= EventFilter.Number.characterLimit else { return false }
      return JSONNumber(value).compared(in: value, to: number, in: text.span) == 0
    case .literal(let text):
      return (kind == .boolean || kind == .null) && value.count == text.count && value.isEqual(toPlain: text.span)
    }
  }

  private mutating func isOne(of scalars: Scalars, _ value: Span<UInt8>, _ kind: JSONScalar.Kind) -> Bool {
    key.removeAll(keepingCapacity: true)
    switch kind {
    case .array, .object: return false
    case .string:
      let content = value.extracting(1..<value.count - 1)
      guard content.count <= scalars.contentLimit else { return false }
      JSONScalar.appendUnescaped(content, to: &key)
      return scalars.strings.contains(key)
    case .number:
      guard !scalars.numbers.isEmpty, value.count <= EventFilter.Number.characterLimit else { return false }
      JSONNumber(value).appendNormalForm(in: value, to: &key)
      return scalars.numbers.contains(key)
    case .boolean, .null:
      for index in value.indices { key.append(value[index]) }
      return scalars.literals.contains(key)
    }
  }

  /// Whether a string, with its quotes, begins with these characters.
  private mutating func begins(_ string: Span<UInt8>, with prefix: [UInt8]) -> Bool {
    var content = string.extracting(1..<string.count - 1)
    // The prefix may end within an escape of six bytes: the content is cut after a whole escape.
    content = content.extracting(first: Self.end(ofCharacters: prefix.count, in: content))
    key.removeAll(keepingCapacity: true)
    JSONScalar.appendUnescaped(content, to: &key)
    return key.starts(with: prefix)
  }

  /// The end of a part of a string's content that has at least `count` bytes without escapes, and no half of an escape.
  private static func end(ofCharacters count: Int, in content: Span<UInt8>) -> Int {
    var (index, left) = (0, count)
    while index < content.count, left > 0 {
      guard content[index] == UInt8(ascii: "\\") else {
        (index, left) = (index + 1, left - 1)
        continue
      }
      // The part has both halves of a surrogate pair: the first one alone would become three other bytes.
      let isUnit = content[index + 1] == UInt8(ascii: "u")
      (index, left) = (index + (isUnit ? 6 : 2), left - 1)
      if isUnit, index + 6 <= content.count, content[index] == UInt8(ascii: "\\"),
        content[index + 1] == UInt8(ascii: "u")
      {
        index += 6
      }
    }
    return index
  }
}

extension EventMatcher.Test {
  fileprivate init(_ test: EventFilter.Test) {
    func number(_ results: ClosedRange<Int>, _ text: String) -> Self {
      let bytes = Array(text.utf8)
      return .isNumber(bytes, JSONNumber(bytes.span), results: results)
    }
    switch test {
    case .equals(let scalar): self = .equals(EventMatcher.Scalar(scalar))
    case .oneOf(let scalars): self = .equalsOne(of: EventMatcher.Scalars(scalars))
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
  /// Whether the bytes are this text of the same length, without an escape.
  fileprivate func isEqual(toPlain text: Span<UInt8>) -> Bool {
    for index in indices where self[index] != text[index] || self[index] == UInt8(ascii: "\\") { return false }
    return true
  }
}
