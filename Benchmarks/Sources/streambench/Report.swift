import Glibc

/// Several runs of one figure.
struct Figures {
  private let sorted: [Double]

  /// - Parameter values: at least one.
  init(_ values: [Double]) { sorted = values.sorted() }

  var least: Double { sorted[0] }
  var median: Double { sorted[sorted.count / 2] }
  var greatest: Double { sorted[sorted.count - 1] }
}

/// Prints the table as it grows: a heading, then one line per contender with the minimum, the median and the maximum of
/// its runs.
enum Report {
  static func heading(_ text: String, goal: String = "") {
    say((goal.isEmpty ? text : text.padded(to: 60) + " goal: " + goal))
  }

  /// A sentence about the table.
  static func note(_ sentence: String) { say("  \(sentence)") }

  /// - Parameter ratios: of the medians, as text: `"64 % of bare"`.
  static func line(_ name: String, _ figures: Figures, _ unit: String, _ ratios: [String] = []) {
    let columns = [figures.least, figures.median, figures.greatest].map { text($0).padded(toTheRightOf: 9) }
    say("  " + name.padded(to: 26) + columns.joined() + " " + unit.padded(to: 12) + ratios.joined(separator: ", "))
  }

  /// A single count.
  static func line(_ name: String, _ count: Int, _ text: String = "") {
    say("  " + name.padded(to: 26) + counted(count).padded(toTheRightOf: 27) + " " + text)
  }

  /// At least three digits, and a unit for large values.
  static func text(_ value: Double) -> String {
    for (unit, name) in [(1e9, "G"), (1e6, "M"), (1e4, "k")] where abs(value) >= unit {
      return digits(value / (unit == 1e4 ? 1e3 : unit)) + name
    }
    return digits(value)
  }

  /// A power of ten: `100k`, `10M`.
  static func round(_ value: Double) -> String { text(value).replacing(".0", with: "") }

  static func percent(_ part: Double, of whole: Double, _ name: String) -> String {
    "\(Int((part / whole * 100).rounded())) % of \(name)"
  }

  static func times(_ value: Double, _ other: Double, _ name: String) -> String {
    "\(digits(value / other)) x \(name)"
  }

  private static func digits(_ value: Double) -> String {
    guard value.isFinite else { return "-" }
    if value >= 100 || value == value.rounded() { return "\(Int(value.rounded()))" }
    let steps: Double = value >= 10 ? 10 : value >= 1 ? 100 : 1000
    return "\((value * steps).rounded() / steps)"
  }

  private static func say(_ line: String) {
    print(line)
    fflush(nil)
  }
}

extension String {
  func padded(to width: Int) -> String { self + String(repeating: " ", count: max(0, width - count)) }
  func padded(toTheRightOf width: Int) -> String { String(repeating: " ", count: max(0, width - count)) + self }
}

/// `9,000`.
func counted(_ count: Int) -> String {
  count < 1000 ? String(count) : "\(counted(count / 1000)),\(String(count).suffix(3))"
}

/// `1 subscriber`, `1,000 subscribers`.
func counted(_ count: Int, _ noun: String) -> String { "\(counted(count)) \(noun)\(count == 1 ? "" : "s")" }
