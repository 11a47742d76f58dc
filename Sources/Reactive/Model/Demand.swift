extension Subscribers {
  /// The number of values that a subscriber requests: a count from 0 up, or no limit.
  ///
  /// Arithmetic saturates: a sum that is too large is unlimited, a difference below zero is none, and unlimited stays
  /// unlimited whatever is added or subtracted. Source: Apple's documentation of `Subscribers.Demand`.
  public struct Demand: Equatable, Comparable, Hashable, Codable, Sendable, CustomStringConvertible {
    private let rawValue: UInt

    private init(rawValue: UInt) { self.rawValue = min(rawValue, Self.limit) }

    /// The first number that no count reaches. It represents unlimited, as in Combine's own encoding.
    private static let limit = UInt(Int.max) + 1

    /// All values of the publisher.
    public static let unlimited = Self(rawValue: limit)
    /// No value.
    public static let none = Self(rawValue: 0)

    /// `value` values.
    ///
    /// - Precondition: `value` is not negative.
    public static func max(_ value: Int) -> Self {
      precondition(value >= 0, "demand must not be negative, it is \(value)")
      return Self(rawValue: UInt(value))
    }

    /// The count; `nil` when unlimited.
    public var max: Int? { self == .unlimited ? nil : Int(rawValue) }

    /// `max(n)` or `unlimited`.
    public var description: String { self == .unlimited ? "unlimited" : "max(\(rawValue))" }

    /// Decodes the bare number; unlimited is 2^63.
    public init(from decoder: any Decoder) throws {
      self.init(rawValue: try decoder.singleValueContainer().decode(UInt.self))
    }

    /// Encodes the bare number; unlimited is 2^63.
    public func encode(to encoder: any Encoder) throws {
      var container = encoder.singleValueContainer()
      try container.encode(rawValue)
    }

    /// Whether `lhs` is fewer values than `rhs`; unlimited exceeds any count.
    public static func < (lhs: Self, rhs: Self) -> Bool { lhs.rawValue < rhs.rawValue }
  }
}

extension Subscribers.Demand {
  /// The sum of both demands.
  public static func + (lhs: Self, rhs: Self) -> Self {
    let (sum, overflow) = lhs.rawValue.addingReportingOverflow(rhs.rawValue)
    return overflow ? .unlimited : Self(rawValue: sum)
  }

  /// The demand plus `rhs` values; a negative `rhs` subtracts.
  public static func + (lhs: Self, rhs: Int) -> Self {
    rhs >= 0 ? lhs + .max(rhs) : lhs - Self(rawValue: rhs.magnitude)
  }

  /// The demand that remains of `lhs` after `rhs`: unlimited minus anything is unlimited, anything else minus unlimited
  /// is none.
  public static func - (lhs: Self, rhs: Self) -> Self {
    if lhs == .unlimited { return .unlimited }
    return lhs > rhs ? Self(rawValue: lhs.rawValue - rhs.rawValue) : .none
  }

  /// The demand minus `rhs` values; a negative `rhs` adds.
  public static func - (lhs: Self, rhs: Int) -> Self {
    rhs >= 0 ? lhs - .max(rhs) : lhs + Self(rawValue: rhs.magnitude)
  }

  /// The demand multiplied by `rhs`.
  ///
  /// - Precondition: `rhs` is not negative.
  public static func * (lhs: Self, rhs: Int) -> Self {
    precondition(rhs >= 0, "demand must not be negative, it is \(lhs) * \(rhs)")
    if lhs == .unlimited { return .unlimited }
    let (product, overflow) = lhs.rawValue.multipliedReportingOverflow(by: UInt(rhs))
    return overflow ? .unlimited : Self(rawValue: product)
  }

  /// Adds a demand.
  public static func += (lhs: inout Self, rhs: Self) { lhs = lhs + rhs }
  /// Adds `rhs` values.
  public static func += (lhs: inout Self, rhs: Int) { lhs = lhs + rhs }
  /// Subtracts a demand, down to none.
  public static func -= (lhs: inout Self, rhs: Self) { lhs = lhs - rhs }
  /// Subtracts `rhs` values, down to none.
  public static func -= (lhs: inout Self, rhs: Int) { lhs = lhs - rhs }
  /// Multiplies by `rhs`.
  public static func *= (lhs: inout Self, rhs: Int) { lhs = lhs * rhs }
}

// Comparisons of a demand with a plain count. A negative count is less than any demand.
extension Subscribers.Demand {
  private static func order(_ lhs: Self, _ rhs: Int) -> Int {
    guard rhs >= 0, lhs != .unlimited else { return 1 }
    return lhs.rawValue == UInt(rhs) ? 0 : lhs.rawValue < UInt(rhs) ? -1 : 1
  }

  /// Exactly `rhs` values.
  public static func == (lhs: Self, rhs: Int) -> Bool { order(lhs, rhs) == 0 }
  /// Not exactly `rhs` values.
  public static func != (lhs: Self, rhs: Int) -> Bool { order(lhs, rhs) != 0 }
  /// Fewer than `rhs` values.
  public static func < (lhs: Self, rhs: Int) -> Bool { order(lhs, rhs) < 0 }
  /// At most `rhs` values.
  public static func <= (lhs: Self, rhs: Int) -> Bool { order(lhs, rhs) <= 0 }
  /// More than `rhs` values.
  public static func > (lhs: Self, rhs: Int) -> Bool { order(lhs, rhs) > 0 }
  /// At least `rhs` values.
  public static func >= (lhs: Self, rhs: Int) -> Bool { order(lhs, rhs) >= 0 }
  /// Exactly `lhs` values.
  public static func == (lhs: Int, rhs: Self) -> Bool { order(rhs, lhs) == 0 }
  /// Not exactly `lhs` values.
  public static func != (lhs: Int, rhs: Self) -> Bool { order(rhs, lhs) != 0 }
  /// More than `lhs` values.
  public static func < (lhs: Int, rhs: Self) -> Bool { order(rhs, lhs) > 0 }
  /// At least `lhs` values.
  public static func <= (lhs: Int, rhs: Self) -> Bool { order(rhs, lhs) >= 0 }
  /// Fewer than `lhs` values.
  public static func > (lhs: Int, rhs: Self) -> Bool { order(rhs, lhs) < 0 }
  /// At most `lhs` values.
  public static func >= (lhs: Int, rhs: Self) -> Bool { order(rhs, lhs) <= 0 }
}
