import TaggedFields

import func HTTP.sha256

/// A request of a client as it is stored: before it is answered that it is there, and again with each step.
struct AnswerRecord: TaggedRecord, Equatable, Sendable {
  /// How far the request has come.
  enum Step: UInt8, Sendable {
    case waiting
    /// The upstream may have it.
    case sent
    case complete
    case failed
    /// The process that read the answer has ended before the answer, and not by a kill.
    case cutOff
  }

  /// The name of the stream.
  var name = ""
  /// Who has made the request: see `StreamOwner.saved`.
  var owner = ""
  /// Its place among those that wait.
  var number: UInt64 = 0
  var step = Step.waiting
  /// The type of the body; empty: the configured one.
  var type = ""
  /// Empty once it is not needed any more.
  var body: [UInt8] = []
  /// The digest of the type and the body.
  var digest: [UInt8] = []
  /// The reason, one sentence.
  var failure = ""
  /// The id of the last event of a stream that has ended; 0: it has none.
  var lastID: UInt64 = 0

  mutating func visit(_ fields: inout RecordFields) throws(Malformed) {
    try fields.field(1, &name)
    try fields.field(2, &owner)
    try fields.field(3, &number)
    try fields.field(4, &step)
    try fields.field(5, &type)
    try fields.field(6, &body)
    try fields.field(7, &digest)
    try fields.field(8, &failure)
    try fields.field(9, &lastID)
  }

  /// The digest of a request.
  static func digest(of body: [UInt8], _ type: String) -> [UInt8] {
    Array(sha256(Array("\(type.utf8.count) \(type)".utf8) + body))
  }

  /// The file of a stream's request.
  static func file(of name: String) -> String {
    sha256(Array(name.utf8)).prefix(16).reduce("") { $0 + ($1 < 16 ? "0" : "") + String($1, radix: 16) }
  }
}
