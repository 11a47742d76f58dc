// An input is one byte, which seeds the splits and sets the limit, and then what the server sends.

import Events

// Tests/Fuzz/run compiles the sources under test into the module of this file.
#if canImport(StreamSources)
  @testable import StreamSources
#endif

/// Reads one input; a broken invariant traps.
func fuzzEventSplitters(_ input: UnsafeRawBufferPointer) {
  guard let choice = input.first else { return }
  let bytes = UnsafeRawBufferPointer(rebasing: input[1...])
  let limit = choice & 1 == 0 ? 16 : 100_000
  check(LineSplitter(maximumBytes: limit), bytes, choice, limit)
  let events = check(ServerSentEventSplitter(maximumBytes: limit), bytes, choice, limit)
  precondition(!events.lastEventID.contains { $0 == 0 || $0 == 10 || $0 == 13 }, "an id that no header can hold")
  checkErrorLines(bytes, choice)
  checkEntry(bytes, limit: choice & 1 == 0 ? 300 : 100_000)
  checkTexts(bytes)
  checkTelnet(bytes, Int(choice) + 1)
  for name in ["iso-8859-1", "utf-16", "shift_jis", "iso-2022-jp"] { checkCharset(name, bytes, Int(choice) + 1) }
  for coding in [ContentCoding.gzip, .deflate] { checkDecoder(coding, bytes, choice) }
}

/// The texts of a message follow each other without separators, and leave out only what is between them; one text is all.
private func checkTexts(_ bytes: UnsafeRawBufferPointer) {
  let message = bytes.bindMemory(to: UInt8.self)
  var (end, count) = (0, 0)
  JSONSyntax.forEachText(in: message.span) { range in
    precondition(
      range.lowerBound >= end && !range.isEmpty && range.upperBound <= message.count, "\(range) after \(end)")
    precondition(message[end..<range.lowerBound].allSatisfy { $0.isWhiteSpace || $0 >= 0x1E && $0 != 0x7F }, "left out")
    precondition(!message[range].contains(JSONSyntax.separator), "a separator in a text")
    (end, count) = (range.upperBound, count + 1)
    return true
  }
  precondition((JSONSyntax.fault(in: message.span) == nil) == JSONSyntax.holds(for: message.span), "a fault of a text")
  if JSONSyntax.holds(for: message.span) { precondition(count == 1, "a text in pieces") }
}

/// The same text and the same answers, which are bounded, whatever the splits.
private func checkTelnet(_ bytes: UnsafeRawBufferPointer, _ size: Int) {
  func filtered(by size: Int) -> (text: [UInt8], answers: [UInt8]) {
    var (filter, text) = (TelnetFilter(), [UInt8]())
    for start in stride(from: 0, to: bytes.count, by: size) {
      let piece = UnsafeRawBufferPointer(rebasing: bytes[start..<min(bytes.count, start + size)])
      do throws(ContentFault) { try filter.filter(piece, into: &text) } catch { break }
    }
    return (text, filter.takeAnswers())
  }
  let (whole, pieces) = (filtered(by: max(1, bytes.count)), filtered(by: size))
  precondition(whole == pieces, "a split made a difference")
  precondition(whole.text.count <= bytes.count && whole.answers.count <= 2 * 3 * 256, "more than came")
}

/// The same text, which is UTF-8 and bounded, whatever the splits.
private func checkCharset(_ name: String, _ bytes: UnsafeRawBufferPointer, _ size: Int) {
  func decoded(by size: Int) -> (text: [UInt8], faultCount: Int) {
    guard let decoder = try? CharsetDecoder.of(name, bytes) else { preconditionFailure("no \(name)") }
    var text: [UInt8] = []
    for start in stride(from: 0, to: bytes.count, by: size) {
      decoder.decode(UnsafeRawBufferPointer(rebasing: bytes[start..<min(bytes.count, start + size)]), into: &text)
    }
    decoder.end(into: &text)
    return (text, decoder.takeFaultCount())
  }
  let (whole, pieces) = (decoded(by: max(1, bytes.count)), decoded(by: size))
  precondition(whole == pieces, "a split made a difference in \(name)")
  precondition(String(validating: whole.text, as: UTF8.self) != nil, "\(name) became no UTF-8")
  precondition(whole.text.count <= 3 * bytes.count + 3, "\(name) grew")
}

/// The same content, or the same fault, whatever the splits.
private func checkDecoder(_ coding: ContentCoding, _ bytes: UnsafeRawBufferPointer, _ seed: UInt8) {
  let (whole, others) = (decoded(coding, bytes, max(1, bytes.count)), decoded(coding, bytes, Int(seed) % 7 + 1))
  precondition(whole.fault == others.fault, "a split decided whether it is refused")
  if whole.fault == nil { precondition(whole.content == others.content, "a split made a difference") }
}

private func decoded(
  _ coding: ContentCoding, _ bytes: UnsafeRawBufferPointer, _ size: Int
) -> (content: [UInt8], fault: ContentFault?) {
  let decoder = ContentDecoder(coding)
  var content: [UInt8] = []
  do throws(ContentFault) {
    for start in stride(from: 0, to: bytes.count, by: size) {
      var piece = bytes[start..<min(bytes.count, start + size)]
      repeat {
        piece = piece.dropFirst(try decoder.decode(UnsafeRawBufferPointer(rebasing: piece)))
        precondition(decoder.output.count <= 16 << 10, "more than a piece at once")
        content += decoder.output
        precondition(!decoder.output.isEmpty || piece.isEmpty, "input that is neither used nor refused")
      } while !decoder.output.isEmpty
    }
    try decoder.end()
    return (content, nil)
  } catch {
    return (content, error)
  }
}

/// An entry of a journal, whose fields are separated here, is one JSON object that is not larger than its limit.
private func checkEntry(_ bytes: UnsafeRawBufferPointer, limit: Int) {
  var text = JournalEntryText(cursor: Array("s=1;i=2".utf8), realtime: 3, monotonic: 4, bootID: "5", limit: limit)
  for field in bytes.split(separator: 0x1E) { text.add([UInt8](field).span) }
  guard !text.isTooLarge else { return }
  let json = text.json()
  precondition(json.count <= limit && JSONSyntax.holds(for: json.span), "an event that is too large, or no JSON")
}

/// The same lines whatever the splits, none much over the limit.
private func checkErrorLines(_ bytes: UnsafeRawBufferPointer, _ seed: UInt8) {
  let size = Int(seed) + 1
  var (whole, pieces) = (ErrorLines(), ErrorLines())
  var (lines, others) = (whole.split(bytes), [String]())
  lines += whole.end()
  for start in stride(from: 0, to: bytes.count, by: size) {
    others += pieces.split(UnsafeRawBufferPointer(rebasing: bytes[start..<min(bytes.count, start + size)]))
  }
  others += pieces.end()
  precondition(lines == others, "a split made a difference")
  // What is not UTF-8 is replaced by three bytes each; the rest reports that it was cut.
  precondition(lines.allSatisfy { (1...3 * ErrorLines.limit + 32).contains($0.utf8.count) }, "a line over the limit")
}

/// The same events, and the same refusal, whatever the splits; none over the limit.
@discardableResult
private func check<S: EventSplitter>(_ splitter: S, _ bytes: UnsafeRawBufferPointer, _ seed: UInt8, _ limit: Int) -> S {
  let whole = run(splitter, bytes) { _ in bytes.count }
  var state = UInt32(seed) | 1
  let pieces = run(splitter, bytes) { left in
    state = state &* 1_664_525 &+ 1_013_904_223
    return min(left, Int(state >> 24 & 7) + 1)
  }
  precondition(whole.failed == pieces.failed, "a split decided whether it is refused")
  if !whole.failed { precondition(whole.events == pieces.events, "a split made a difference") }
  // What is not UTF-8 is replaced by three bytes each.
  precondition(pieces.events.allSatisfy { $0.count <= 3 * limit + 1 }, "an event over the limit")
  return pieces.splitter
}

private func run<S: EventSplitter>(
  _ splitter: S, _ bytes: UnsafeRawBufferPointer, _ size: (Int) -> Int
) -> (events: EventBatch, failed: Bool, splitter: S) {
  var splitter = splitter
  var events: EventBatch = []
  var offset = 0
  while offset < bytes.count {
    let count = max(1, size(bytes.count - offset))
    do {
      try splitter.split(UnsafeRawBufferPointer(rebasing: bytes[offset..<offset + count]), into: &events)
    } catch {
      return (events, true, splitter)
    }
    offset += count
  }
  do { try splitter.end(into: &events) } catch { return (events, true, splitter) }
  return (events, false, splitter)
}
