/// Short numbers: two or three digits and a unit.
enum Quantity {
  /// `0`, `0.4`, `17`, `1.2k`, `340k`, `5.0M`; a dash for an unknown value.
  static func rate(_ value: Double?) -> String { scaled(value, by: 1000, ["", "k", "M", "G", "T"]) }

  /// As `rate(_:)`, in steps of 1024: `17`, `1.2K`, `340K`, `5.0M`.
  static func byteRate(_ value: Double?) -> String { scaled(value, by: 1024, ["", "K", "M", "G", "T"]) }

  /// All digits up to 99,999.
  static func count(_ value: UInt64?) -> String {
    guard let value, value >= 100_000 else { return value.map { String($0) } ?? "-" }
    return rate(Double(value))
  }

  /// `1 stream`, `2 streams`.
  static func counted(_ value: UInt64?, _ noun: String) -> String { "\(count(value)) \(noun)\(value == 1 ? "" : "s")" }

  /// Whole percent of a share between 0 and 1.
  static func percent(_ share: Double) -> String { "\(Int((share * 100).rounded()))%" }

  /// In the largest unit that fits: `1.2s`, `42s`, `3m`, `5h`, `2d`.
  static func age(microseconds: UInt64?) -> String {
    guard let microseconds else { return "-" }
    let seconds = microseconds / 1_000_000
    switch seconds {
    case 0..<10: return "\(seconds).\(microseconds / 100_000 % 10)s"
    case 10..<60: return "\(seconds)s"
    case 60..<3600: return "\(seconds / 60)m"
    case 3600..<86400: return "\(seconds / 3600)h"
    default: return "\(seconds / 86400)d"
    }
  }

  private static func scaled(_ value: Double?, by step: Double, _ units: [String]) -> String {
    guard var value else { return "-" }
    guard value > 0 else { return "0" }
    var unit = 0
    while value.rounded() >= step, unit < units.count - 1 {
      value /= step
      unit += 1
    }
    let tenths = Int((value * 10).rounded())
    return (tenths < 100 ? "\(tenths / 10).\(tenths % 10)" : "\(Int(value.rounded()))") + units[unit]
  }
}
