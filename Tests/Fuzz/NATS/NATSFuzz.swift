// An input is what a server of NATS sends, split into pieces. Its first byte decides how.

// Tests/Fuzz/run compiles the sources under test into the module of this file.
#if canImport(JetStream)
  @testable import JetStream
#endif

/// Reads one input; a broken invariant traps.
func fuzzNATS(_ input: UnsafeRawBufferPointer) {
  guard let first = input.first else { return }
  let bytes = UnsafeRawBufferPointer(rebasing: input.dropFirst())
  let whole = operations(in: bytes, pieceByteCount: bytes.count)
  let pieces = operations(in: bytes, pieceByteCount: 1 + Int(first))
  precondition(whole.read == pieces.read, "what is read depends on how it is split")
  precondition(whole.failure == pieces.failure, "\(whole.failure ?? "") or, split, \(pieces.failure ?? "")")
  precondition(whole.failure.map { $0.utf8.count < 200 } ?? true, "a failure of more than a sentence")
}

/// What is read before the end or the first failure, as text.
private func operations(
  in bytes: UnsafeRawBufferPointer, pieceByteCount: Int
) -> (read: [String], failure: String?) {
  var parser = NATSParser()
  var read: [String] = []
  var start = 0
  do throws(NATSFailure) {
    while start < bytes.count {
      let piece = UnsafeRawBufferPointer(rebasing: bytes[start...].prefix(pieceByteCount))
      var index = 0
      while true {
        let former = index
        guard let operation = try parser.next(in: piece, from: &index) else { break }
        precondition(former < index && index <= piece.count, "it does not read on")
        check(operation)
        read.append("\(operation)")
      }
      precondition(index == piece.count, "a part is not read")
      start += piece.count
    }
  } catch {
    return (read, error.reason)
  }
  return (read, nil)
}

private func check(_ operation: NATSOperation) {
  switch operation {
  case .message(let message, _):
    precondition(message.bytes.count <= NATSParser.maximumMessageByteCount, "a message of \(message.bytes.count) bytes")
    precondition(!message.subject.isEmpty && message.reply != "", "an empty subject")
    precondition(!(message.subject + (message.reply ?? "")).utf8.contains { $0 == 0x0A || $0 == 0x0D || $0 == 0x20 })
  case .refused(let reason): precondition(reason.utf8.count <= 3 * 256, "a reason of \(reason.utf8.count) bytes")
  case .information(let information): precondition(information.maximumMessageByteCount >= 0)
  case .ping, .pong, .accepted: break
  }
}
