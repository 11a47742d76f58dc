/// All errors of the files. Never empty.
struct ConfigurationErrors: Error, Equatable, CustomStringConvertible {
  /// One line each, `FILE:LINE: KEY: expected WHAT, got WHAT` without the parts that are unknown: first drop-ins that
  /// cannot be read, then in the order of the files and lines.
  let sentences: [String]

  var description: String { sentences.joined(separator: "\n") }

  /// The first error, and the number of the others.
  static func summary(of sentences: [String]) -> String {
    let more = sentences.count > 1 ? " (and \(counted(sentences.count - 1, "more error")))" : ""
    return (sentences.first ?? "") + more
  }

  init(sentences: [String]) { self.sentences = sentences }

  init(file: String, _ errors: [ConfigurationError]) {
    // The order is stable, which `sort` does not guarantee: errors of one line keep the order of reading.
    let ordered = errors.enumerated().sorted { ($0.element.line, $0.offset) < ($1.element.line, $1.offset) }
    sentences = ordered.map { _, error in
      var place = file
      if error.line > 0 { place += ":\(error.line)" }
      if error.line > 0 && error.column > 0 { place += ":\(error.column)" }
      return [place, error.key, error.text].filter { !$0.isEmpty }.joined(separator: ": ")
    }
  }
}

/// An error at one place of a file.
struct ConfigurationError: Error {
  /// The line, from 1; 0: unknown.
  var line = 0
  /// The column, from 1; 0: unknown.
  var column = 0
  /// The full path of the key, such as `streams.quotes.http.every`; empty for the file itself.
  var key = ""
  var text: String
}

/// Collects errors while a file is read, so that all of them are reported at once.
final class ConfigurationErrorCollector {
  private(set) var errors: [ConfigurationError] = []
  /// The keys of all sections. If it is not nil, sections are read as if the file had them, and their keys are
  /// collected.
  var known: KnownKeys?

  func add(_ error: ConfigurationError) { errors.append(error) }
}
