// An input is one byte of choices and then an event, for one of a few programs (3: an answer of the child process
// instead).

import Events

// Tests/Fuzz/run compiles the sources under test into the module of this file.
#if canImport(StreamSources)
  @testable import StreamSources
#endif

// One input is read at a time.
nonisolated(unsafe) private let programs = [".", ".. | scalars", "[paths], to_entries?"].map { text -> JQProgram in
  guard let program = try? JQProgram(text) else { preconditionFailure("\(text) is no program") }
  return program
}

/// Reads one input; a broken invariant traps.
func fuzzJQ(_ input: UnsafeRawBufferPointer) {
  guard let choice = input.first else { return }
  let bytes = UnsafeRawBufferPointer(rebasing: input[1...])
  if choice & 3 == 3 { check(answer: bytes, choice) } else { check(event: [UInt8](bytes), programs[Int(choice & 3)]) }
}

/// Each output is one JSON text, compact or the event, that survives further runs; a failed event leaves the program unchanged.
private func check(event: [UInt8], _ program: JQProgram) {
  do {
    for output in try program.outputs(for: event) {
      precondition(
        JSONSyntax.holds(for: Array(event.withoutByteOrderMark).span), "an event that is not JSON had a result")
      precondition(JSONSyntax.holds(for: output.span), "a result that is not JSON")
      guard let again = try? programs[0].outputs(for: output),
        event.suffix(output.count).elementsEqual(output) || again == [output],
        (try? programs[0].outputs(for: again[0])) == again
      else { preconditionFailure("\(String(decoding: output, as: UTF8.self)) changed") }
    }
  } catch {
    precondition(!error.sentence.isEmpty && error.sentence.utf8.count <= 203, "\(error)")
  }
  guard let outputs = try? programs[0].outputs(for: [0x31]), outputs == [[0x31]] else {
    preconditionFailure("an event changed the program")
  }
}

/// Any output of the child is read the same in any pieces, and never traps.
private func check(answer bytes: UnsafeRawBufferPointer, _ seed: UInt8) {
  let whole = messages(in: bytes, pieces: bytes.count)
  precondition(whole == messages(in: bytes, pieces: Int(seed >> 2) + 1), "a split made a difference")
  for message in whole {
    guard let answer = JQAnswer(message[...]) else { continue }
    precondition(JQAnswer(answer.encoded[...]) == answer, "\(answer) changed")
  }
}

private func messages(in bytes: UnsafeRawBufferPointer, pieces size: Int) -> [[UInt8]] {
  var reader = HelperMessageReader()
  var messages: [[UInt8]] = []
  for start in stride(from: 0, to: bytes.count, by: max(1, size)) {
    reader.append(UnsafeRawBufferPointer(rebasing: bytes[start..<min(bytes.count, start + size)]))
    while let message = reader.next() { messages.append([UInt8](message)) }
  }
  return messages
}
