/// Everything that is wrong with a file. Never empty.
struct ConfigurationErrors: Error, Equatable, CustomStringConvertible {
  /// One line each, in the order of the file: `FILE:LINE: KEY: expected WHAT, got WHAT`; without what is not known.
  let sentences: [String]

  var description: String { sentences.joined(separator: "\n") }

  /// The first of them, and how many more there are.
  static func summary(of sentences: [String]) -> String {
    let more = sentences.count > 1 ? " (and \(counted(sentences.count - 1, "more error")))" : ""
    return (sentences.first ?? "") + more
  }

  init(file: String, _ mistakes: [ConfigurationError]) {
    // Stable, unlike the library's guarantee for `sort`: mistakes of one line stay in the order of reading.
    let ordered = mistakes.enumerated().sorted { ($0.element.line, $0.offset) < ($1.element.line, $1.offset) }
    sentences = ordered.map { _, mistake in
      var place = file
      if mistake.line > 0 { place += ":\(mistake.line)" }
      if mistake.line > 0 && mistake.column > 0 { place += ":\(mistake.column)" }
      return [place, mistake.key, mistake.text].filter { !$0.isEmpty }.joined(separator: ": ")
    }
  }
}

/// What is wrong at one place of a file.
struct ConfigurationError: Error {
  /// From 1; 0: not known.
  var line = 0
  /// From 1; 0: not known.
  var column = 0
  /// The key with all that it stands in, such as `streams.quotes.http.every`; empty for the file itself.
  var key = ""
  var text: String
}

/// Collects mistakes while a file is read, so that all of them are told at once.
final class ConfigurationErrorCollector {
  private(set) var mistakes: [ConfigurationError] = []
  /// The keys that each table may have, by its place.
  private(set) var knownKeys: [[String]: Set<String>] = [:]

  func add(_ mistake: ConfigurationError) {
    mistakes.append(mistake)
  }

  func note(_ keys: Set<String>, at place: [String]) {
    knownKeys[place] = keys
  }
}
