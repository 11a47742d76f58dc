import Fleet

/// An answer of JetStream's API, or of one of its streams. Source: NATS ADR-1, and `server/jetstream_api.go`.
///
/// Every byte is hostile: an answer that is not exactly as expected becomes nil or `unknown`.
enum JetStreamAnswer {
  /// The code and the text of an error.
  struct Failure: Equatable {
    /// `err_code`; the codes are in `server/errors.json`.
    var code: UInt64
    var text: String

    static let temporarilyUnavailable: UInt64 = 10008
    static let streamNameInUse: UInt64 = 10058
    static let streamNotFound: UInt64 = 10059
    static let noMessage: UInt64 = 10037
    static let wrongLastSequence: UInt64 = 10071
  }

  /// Sequence numbers are below this.
  static let sequenceLimit: UInt64 = 1 << 62

  /// - Returns: nil for an answer that is not an error.
  static func failure(_ answer: JSONMembers) -> Failure? {
    guard let error = answer.object("error") else { return nil }
    return Failure(code: error.number("err_code") ?? 0, text: error.string("description") ?? "")
  }

  /// The acknowledgement of an entry that was to be appended to `stream` after this sequence number, or its refusal.
  static func appended(_ bytes: [UInt8], to stream: String, after: UInt64) -> ShardMachine.AppendResult {
    guard let answer = JSONMembers(bytes) else { return .unknown }
    if let failure = failure(answer) {
      // "wrong last sequence: 41"
      let digits = failure.text.utf8.suffix(while: { UInt8(ascii: "0")...UInt8(ascii: "9") ~= $0 })
      guard failure.code == Failure.wrongLastSequence, let last = Decimal.number(digits), last < sequenceLimit else {
        return .unknown
      }
      return .refused(last: last)
    }
    guard answer.string("stream") == stream, let sequence = answer.number("seq"), sequence == after &+ 1 else {
      return .unknown
    }
    return .stored
  }

  /// The first and the last sequence number of a stream, from the answer to a request for information about it.
  static func extent(_ answer: JSONMembers) -> (first: UInt64, last: UInt64)? {
    guard let state = answer.object("state"), let first = state.number("first_seq"),
      let last = state.number("last_seq"), last < sequenceLimit, first <= last + 1
    else { return nil }
    return (first, last)
  }

  /// A stored message, from the answer to a request for it.
  enum Stored: Equatable {
    case found([UInt8], sequence: UInt64)
    case none
  }

  static func stored(_ bytes: [UInt8]) -> Stored? {
    guard let answer = JSONMembers(bytes) else { return nil }
    if let failure = failure(answer) { return failure.code == Failure.noMessage ? Stored.none : nil }
    guard let message = answer.object("message"), let sequence = message.number("seq"),
      1..<sequenceLimit ~= sequence
    else { return nil }
    guard message.has("data") else { return .found([], sequence: sequence) }
    return message.base64("data").map { .found($0, sequence: sequence) }
  }
}

extension BidirectionalCollection {
  /// The longest suffix of elements that satisfy the predicate.
  fileprivate func suffix(while predicate: (Element) -> Bool) -> SubSequence {
    var start = endIndex
    while start > startIndex, predicate(self[index(before: start)]) { start = index(before: start) }
    return self[start...]
  }
}
