/// A message that was received.
struct NATSMessage: Sendable, Equatable {
  var subject: String
  /// Where an answer is expected.
  var reply: String?
  /// The status of a message that the server itself has made. 503: the subject has no subscriber; 0: the status is not
  /// a number, or the headers are malformed.
  var status: UInt64?
  /// The sequence number in a log.
  var sequence: UInt64?
  var bytes: [UInt8]

  static let noResponders: UInt64 = 503
  static let notFound: UInt64 = 404
  /// The bytes that each message counts in addition to its own.
  static let overheadByteCount = 512

  /// Reads the headers that this program needs: the status in the first line, and the first Nats-Sequence.
  ///
  /// Other clients have written the headers: malformed ones cost the message, not the connection.
  ///
  /// - Complexity: O(n).
  mutating func readHeaders(_ headers: [UInt8]) {
    guard headers.starts(with: "NATS/1.0".utf8), headers.suffix(4).elementsEqual("\r\n\r\n".utf8),
      var end = headers.firstIndex(of: 0x0D)
    else {
      status = 0
      return
    }
    let words = headers[8..<end].split(separator: UInt8(ascii: " "), maxSplits: 1)
    status = words.first.map { Decimal.number($0) ?? 0 }
    let name = "Nats-Sequence:".utf8
    while let lineFeed = headers[end...].firstIndex(of: 0x0A) {
      let line = headers[(lineFeed + 1)...]
      end = line.firstIndex(of: 0x0D) ?? headers.endIndex
      guard line.starts(with: name) else { continue }
      sequence = Decimal.number(line[..<end].dropFirst(name.count).drop { $0 == UInt8(ascii: " ") })
      return
    }
  }
}
