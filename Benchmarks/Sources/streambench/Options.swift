/// The parsed command line.
struct Options {
  /// The daemon's binary.
  var program = ""
  /// Runs per figure.
  var runs = 5
  /// Seconds of one run of a rate or a latency, after the warm-up.
  var seconds = 2.0
  var isQuick = false
  var withPeers = false
  /// Checks every event, not only the last one of each read.
  var verifies = false
  /// Empty: all.
  var rows: [String] = []
  /// Measures only what README tells, and prints it as README has it.
  var isForReadme = false
  /// Where to draw deliveries over subscribers; nil: nowhere, because drawing takes long.
  var picture: String?

  struct UsageError: Error {
    let sentence: String
  }

  static var usage: String {
    let rows = Row.all.map { "  \($0.name.padded(to: 14)) \($0.summary)\n" }.joined()
    return """
      usage: streambench [--runs N] [--quick] [--peers] [--verify] [--rows NAME,…] [--readme | --picture FILE] STREAMD
      Measures the daemon of that binary; deploy/bench builds and runs both. Rows:

      \(rows)
      """
  }

  /// - Parameter words: without the program's name.
  init(_ words: [String]) throws(UsageError) {
    var rest = words[...]
    while let word = rest.popFirst() {
      switch word {
      case "--runs":
        guard let runs = rest.popFirst().flatMap({ Int($0) }), runs > 0 else {
          throw UsageError(sentence: "--runs requires a number above 0")
        }
        self.runs = runs
      case "--quick": (runs, seconds, isQuick) = (2, 0.5, true)
      case "--peers": withPeers = true
      case "--verify": verifies = true
      case "--readme": (isForReadme, withPeers) = (true, true)
      case "--rows":
        rows = (rest.popFirst() ?? "").split(separator: ",").map(String.init)
        let known = Row.all.map(\.name)
        if let unknown = rows.first(where: { !known.contains($0) }) {
          throw UsageError(sentence: "no row \"\(unknown)\"; there are \(known.joined(separator: ", "))")
        }
      case "--picture":
        guard let path = rest.popFirst() else { throw UsageError(sentence: "--picture requires a file") }
        picture = path
      default:
        guard !word.hasPrefix("-"), program.isEmpty else { throw UsageError(sentence: "unknown argument \"\(word)\"") }
        program = word
      }
    }
    guard !program.isEmpty else { throw UsageError(sentence: "the daemon's binary is missing") }
  }
}
