/// A media type, or in an Accept field a range of them. Source: RFC 9110, sections 8.3.1 and 12.5.1.
public struct MediaType: Sendable {
  /// The type and the subtype with small letters, such as `text/html`; in a range each may be `*`.
  public let name: String
  private let type: String
  private let subtype: String
  private let parameters: [(name: String, value: String)]

  /// - Returns: nil if the text is malformed. A lone `*`, which some clients send, means `*/*`.
  public init?(_ text: String) {
    let parts = text.elements(separatedBy: .semicolon)
    guard let essence = parts.first else { return nil }
    let halves = essence.split(separator: "/", omittingEmptySubsequences: false).map(\.asciiLowercased)
    let isLoneAsterisk = essence == "*"
    guard isLoneAsterisk || halves.count == 2 && halves.allSatisfy({ !$0.isEmpty && $0.utf8.allSatisfy(\.isToken) })
    else { return nil }
    (type, subtype) = isLoneAsterisk ? ("*", "*") : (halves[0], halves[1])
    name = "\(type)/\(subtype)"
    parameters = parts.dropFirst().map { part in
      let end = part.firstIndex(of: "=") ?? part.endIndex
      return (part[..<end].trimmed.asciiLowercased, part[end...].dropFirst().trimmed.filter { $0 != "\"" })
    }
  }

  /// The parameter `charset` with small letters; nil: there is none, or it is empty.
  public var charset: String? {
    parameters.first { $0.name == "charset" && !$0.value.isEmpty }?.value.asciiLowercased
  }

  /// Whether it is JSON, or a format in JSON (RFC 6839, section 3.1).
  public var isJSON: Bool { name == "application/json" || name.hasSuffix("+json") }

  /// Returns the index of the type in `offered` that an Accept field prefers.
  ///
  /// The most specific range that includes a type gives its quality; of equal ones the first wins, but a type that only
  /// `*/*` includes comes last, since `text/event-stream, */*` means event streams. A parameter of a
  /// range excludes types that have another value for it, but not those that lack it: `application/json; charset=utf-8`
  /// includes `application/json`, contrary to RFC 9110, since clients send it and mean that.
  ///
  /// - Parameters:
  ///   - accept: the field's value; nil accepts everything. Malformed elements are ignored.
  ///   - offered: the server's types, at least one, the best one first. Not evaluated if the field accepts everything.
  /// - Returns: nil if none is accepted: the answer is 406.
  /// - Complexity: O(field × offered types).
  public static func preferred(_ accept: String?, among offered: @autoclosure () -> [MediaType]) -> Int? {
    guard let accept, accept != "*/*" else { return 0 }
    let ranges = accept.elements(separatedBy: .comma).compactMap { MediaType(String($0)) }
    guard !ranges.isEmpty else { return 0 }
    var best: (index: Int, quality: Int, isNamed: Int)?
    for (index, type) in offered().enumerated() {
      var most: (specificity: Int, quality: Int)?
      for range in ranges {
        guard let specificity = range.specificity(for: type), specificity > most?.specificity ?? -1 else { continue }
        most = (specificity, range.quality)
      }
      guard let most, most.quality > 0 else { continue }
      let isNamed = min(most.specificity, 1)
      guard (most.quality, isNamed) > (best?.quality ?? 0, best?.isNamed ?? -1) else { continue }
      best = (index, most.quality, isNamed)
    }
    return best?.index
  }

  /// In thousandths, rounded up, because clients write more digits than RFC 9110 allows; a malformed quality counts as
  /// none.
  private var quality: Int {
    guard let text = parameters.first(where: { $0.name == "q" })?.value else { return 1000 }
    let parts = text.utf8.split(separator: UInt8(ascii: "."), maxSplits: 1, omittingEmptySubsequences: false)
    let decimals = parts.count == 2 ? parts[1] : Substring().utf8[...]
    guard let whole = parts.first, whole.isEmpty || whole.elementsEqual("0".utf8), !decimals.isEmpty || !whole.isEmpty,
      decimals.allSatisfy(\.isDigit)
    else { return 1000 }
    let digits = decimals.map { Int($0) - 48 }
    let thousandths = (0..<3).reduce(0) { $0 * 10 + ($1 < digits.count ? digits[$1] : 0) }
    return min(1000, thousandths + (digits.dropFirst(3).contains { $0 > 0 } ? 1 : 0))
  }

  /// - Returns: nil if the range does not include the type.
  private func specificity(for offered: MediaType) -> Int? {
    if type == "*" && subtype == "*" { return 0 }
    guard type == offered.type else { return nil }
    if subtype == "*" { return 1 }
    guard subtype == offered.subtype else { return nil }
    var specificity = 2
    for (name, value) in parameters where name != "q" {
      guard let other = offered.parameters.first(where: { $0.name == name }) else { continue }
      guard other.value.equalsIgnoringCase(value) else { return nil }
      specificity += 1
    }
    return specificity
  }
}
