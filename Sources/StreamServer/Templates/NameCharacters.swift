/// A set of the characters that a value in a stream's name may have: letters, digits, `.`, `_` and `-`.
public struct NameCharacters: Hashable, Sendable {
  /// A bit for each character of ASCII.
  private var bits: UInt128 = 0

  /// Creates an empty set.
  public init() {}

  init(_ members: [UInt8]) { for byte in members { insert(byte) } }

  /// All characters that a value may have.
  public static let all = Self("A-Za-z0-9._-") ?? Self()

  /// Reads a set: single characters and ranges such as `A-Z`, whose characters are all permitted. `-` stands for itself where it
  /// is first or last.
  ///
  /// - Returns: nil for any other text, and for an empty one.
  public init?(_ text: String) {
    let bytes = Array(text.utf8)
    var index = 0
    while index < bytes.count {
      let first = bytes[index]
      let isRange = index + 2 < bytes.count && bytes[index + 1] == UInt8(ascii: "-")
      let last = isRange ? bytes[index + 2] : first
      guard first <= last else { return nil }
      for byte in first...last {
        guard Self.mayBeInName(byte) else { return nil }
        insert(byte)
      }
      index += isRange ? 3 : 1
    }
    guard !isEmpty else { return nil }
  }

  private static func mayBeInName(_ byte: UInt8) -> Bool {
    switch byte {
    case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"): true
    case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "."), UInt8(ascii: "_"), UInt8(ascii: "-"): true
    default: false
    }
  }

  /// Whether it has no character.
  public var isEmpty: Bool { bits == 0 }

  /// Whether it has the character with this code.
  public func contains(_ byte: UInt8) -> Bool { byte < 128 && bits >> UInt128(byte) & 1 == 1 }

  mutating func insert(_ byte: UInt8) { bits |= 1 << UInt128(byte) }

  func intersection(_ others: Self) -> Self {
    var result = self
    result.bits &= others.bits
    return result
  }

  func subtracting(_ others: Self) -> Self {
    var result = self
    result.bits &= ~others.bits
    return result
  }

  /// The characters in the order in which an example has them: small letters, capital ones, digits, others.
  var members: [UInt8] {
    let order = ["a"..."z", "A"..."Z", "0"..."9"] as [ClosedRange<Unicode.Scalar>]
    let ordered = order.flatMap { UInt8(ascii: $0.lowerBound)...UInt8(ascii: $0.upperBound) } + Array("_-.".utf8)
    return ordered.filter(contains)
  }
}

extension NameCharacters: CustomStringConvertible {
  /// The set as `init(_:)` reads it.
  public var description: String {
    var text = ""
    for range in ["A"..."Z", "a"..."z", "0"..."9"] as [ClosedRange<Unicode.Scalar>] {
      var first = UInt8(ascii: range.lowerBound)
      while first <= UInt8(ascii: range.upperBound) {
        var end = first
        while end <= UInt8(ascii: range.upperBound), contains(end) { end += 1 }
        let run = (first..<end).map { String(UnicodeScalar($0)) }
        text += run.count < 3 ? run.joined() : "\(run[0])-\(run[run.count - 1])"
        first = end + 1
      }
    }
    return text + "._-".filter { contains($0.asciiValue ?? 0) }
  }
}
