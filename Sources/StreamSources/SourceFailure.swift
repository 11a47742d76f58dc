/// The reason why a source failed: a sentence for the operator, without secrets.
struct SourceFailure: Error, Equatable {
  /// In lower case, without full stop, in one line.
  var sentence: String
  /// The server's Retry-After, from now on; at least 0.
  var retryAfter: Duration?
  /// The status of a response over HTTP, if that is the failure.
  var status: Int?
  /// Whether a part of a request was sent, or all of it, which has no complete answer.
  var wasSent = false

  init(_ sentence: String, retryAfter: Duration? = nil) {
    self.sentence = sentence
    self.retryAfter = retryAfter
  }

  /// A part of the input is longer than the configuration allows.
  static func over(_ bytes: Int, _ what: String) -> SourceFailure {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")]
    let unit = units.first { bytes >= $0.0 && bytes % $0.0 == 0 } ?? (1, "B")
    return SourceFailure("\(what) over \(bytes / unit.0) \(unit.1)")
  }
}
