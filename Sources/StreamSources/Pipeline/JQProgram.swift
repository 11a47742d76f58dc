import CJq
import Events

/// A jq program, compiled.
///
/// jq 1.6 makes a double of every number, so that an integer above 2^53 is rounded. Keys come in jq's order, texts without
/// spaces. The program is a function of the event alone: `env` and `$ENV` are empty, `input` and `inputs` have no input,
/// `input_filename` is null, `input_line_number` is 0, `debug` and `stderr` write nothing, and modules cannot be imported.
///
/// It may run for ever, take all memory there is, or end the process on a failed assertion inside libjq (1.6: `todate`
/// of a number that is too large). Events from outside belong into a process that may come to harm.
final class JQProgram {
  /// Why a text is no program, in jq's own words.
  struct CompileError: Error, Equatable {
    let sentence: String
  }

  /// Why an event gives nothing, in jq's own words, shortened.
  struct ValueError: Error, Equatable {
    let sentence: String

    /// - Parameter sentence: may hold the event; at most 200 bytes of it are kept.
    init(_ sentence: String) {
      let limit = 200
      self.sentence =
        sentence.utf8.count <= limit
        ? sentence : sentence[..<sentence.utf8.index(sentence.startIndex, offsetBy: limit)] + "…"
    }
  }

  /// How many outputs an event may give. More is a program that does not end by itself, such as `range(1e12)`.
  static let outputsLimit = 65536
  /// And how many bytes of them.
  static let bytesLimit = 64 << 20

  private var state: OpaquePointer?
  private let messages = Messages()

  /// What stands before every program: a definition that comes later hides jq's own, which reach out of it, and of which
  /// some abort where there is no command line.
  private static let prologue = """
    def input: error("no more inputs"); def inputs: empty; def input_filename: null; def input_line_number: 0; \
    def stderr: .; def env: {}; {} as $ENV |\u{20}
    """

  /// Compiles.
  /// - Throws: `CompileError`.
  init(_ text: String) throws(CompileError) {
    guard !text.utf8.contains(0) else { throw CompileError(sentence: "a NUL character") }
    guard let state = jq_init() else { throw CompileError(sentence: "no memory") }
    self.state = state
    jq_set_error_cb(
      state,
      { context, message in
        guard let context else { return jv_free(message) }
        Unmanaged<Messages>.fromOpaque(context).takeUnretainedValue().add(JQProgram.text(message))
      }, Unmanaged.passUnretained(messages).toOpaque())
    // Unless it is told, jq 1.6 takes whatever the heap holds for the function to call.
    jq_set_debug_cb(state, { _, message in jv_free(message) }, nil)
    jq_set_input_cb(state, { _, _ in jv_invalid() }, nil)
    guard jq_compile(state, Self.prologue + text) != 0 else {
      throw CompileError(sentence: messages.sentence(namingLines: text.utf8.contains(UInt8(ascii: "\n"))))
    }
  }

  deinit { jq_teardown(&state) }

  /// What happens when libjq gets no memory; it must not return. Unless told, libjq aborts.
  func whenOutOfMemory(_ handler: @escaping @convention(c) (UnsafeMutableRawPointer?) -> Void) {
    jq_set_nomem_handler(state, handler, nil)
  }

  /// Runs the program on one event.
  ///
  /// - Parameter event: one JSON text.
  /// - Returns: its outputs, each one JSON text in its compact form. What came before `halt` counts.
  /// - Throws: `ValueError` when the event is no JSON, the program fails on it, be it after some outputs, or a limit is
  ///   reached.
  func outputs(for event: [UInt8]) throws(ValueError) -> EventBatch {
    jq_start(state, try Self.parse(event).get(), 0)
    var outputs: EventBatch = []
    var byteCount = 0
    while true {
      let value = jq_next(state)
      guard jv_is_valid(value) != 0 else {
        if let failure = failure(ending: value) { throw failure }
        return outputs
      }
      let output = Self.bytes(jv_dump_string(value, 0))
      byteCount += output.count
      guard outputs.count < Self.outputsLimit else { throw ValueError("more than \(Self.outputsLimit) outputs") }
      guard byteCount <= Self.bytesLimit else { throw ValueError("more than \(Self.bytesLimit >> 20) MiB of outputs") }
      outputs.append(output)
    }
  }

  /// - Parameter end: what `jq_next` gave last; consumed.
  private func failure(ending end: jv) -> ValueError? {
    if jv_invalid_has_msg(jv_copy(end)) != 0 { return ValueError(Self.text(jv_invalid_get_msg(end))) }
    jv_free(end)
    guard jq_halted(state) != 0 else { return nil }
    let message = jq_get_error_message(state)
    guard jv_is_valid(message) != 0 else {
      jv_free(message)
      return nil
    }
    return ValueError(Self.text(message))
  }

  // MARK: - Values

  private static func parse(_ event: [UInt8]) -> Result<jv, ValueError> {
    guard let count = CInt(exactly: event.count) else { return .failure(ValueError("more than 2 GiB")) }
    // Not `jv_parse_sized`: its message shows the whole text, and reads on to a NUL.
    let parser = jv_parser_new(0)
    defer { jv_parser_free(parser) }
    return event.withUnsafeBytes { bytes in
      jv_parser_set_buf(parser, bytes.bindMemory(to: CChar.self).baseAddress, count, 0)
      let value = jv_parser_next(parser)
      guard jv_is_valid(value) != 0 else {
        return .failure(message(value) ?? ValueError("not a JSON text"))
      }
      let rest = jv_parser_next(parser)
      guard jv_is_valid(rest) != 0 else {
        guard let failure = message(rest) else { return .success(value) }
        jv_free(value)
        return .failure(failure)
      }
      jv_free(value)
      jv_free(rest)
      return .failure(ValueError("more than one JSON text"))
    }
  }

  /// What an invalid value, which is consumed, says.
  private static func message(_ invalid: jv) -> ValueError? {
    let message = jv_invalid_get_msg(invalid)
    guard jv_get_kind(message) == JV_KIND_STRING else {
      jv_free(message)
      return nil
    }
    return ValueError(text(message))
  }

  /// A message for people; consumes it.
  private static func text(_ message: jv) -> String {
    if jv_get_kind(message) == JV_KIND_STRING { return String(decoding: bytes(message), as: UTF8.self) }
    return String(decoding: bytes(jv_dump_string(message, 0)), as: UTF8.self) + " (not a string)"
  }

  /// Consumes the string.
  private static func bytes(_ string: jv) -> [UInt8] {
    defer { jv_free(string) }
    let count = Int(jv_string_length_bytes(jv_copy(string)))
    return [UInt8](UnsafeRawBufferPointer(start: jv_string_value(string), count: count))
  }
}

/// What jq has said about a program.
private final class Messages {
  private var texts: [String] = []

  /// No more than a person reads.
  func add(_ text: String) {
    if texts.count < 4 { texts.append(text) }
  }

  /// jq's messages, without what it says of a command line, and without the program: its first line says it all.
  func sentence(namingLines: Bool) -> String {
    let prefix = "jq: error: "
    let sentences = texts.filter { $0.hasPrefix(prefix) }.map { text in
      let line = text.dropFirst(prefix.count).prefix { $0 != "\n" }
      guard let place = Self.range(of: " at <top-level>, line ", in: line) else { return String(line) }
      let number = line[place.upperBound...].prefix { $0.isNumber }
      var sentence = line[..<place.lowerBound]
      if let hint = Self.range(of: " (Unix shell quoting issues?)", in: sentence) {
        sentence = sentence[..<hint.lowerBound]
      }
      return namingLines ? "\(sentence) in line \(number)" : String(sentence)
    }
    return sentences.isEmpty ? texts.first ?? "no program" : sentences.joined(separator: "; ")
  }

  private static func range(of part: String, in text: Substring) -> Range<Substring.Index>? {
    var start = text.startIndex
    while start < text.endIndex {
      if text[start...].hasPrefix(part) { return start..<text.index(start, offsetBy: part.count) }
      start = text.index(after: start)
    }
    return nil
  }
}
