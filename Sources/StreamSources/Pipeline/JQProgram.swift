import CJq
import Events

/// A jq program, compiled.
///
/// jq 1.6 converts every number to a double, so an integer above 2^53 is rounded: see `roundsNumbers`. Two kinds of output
/// are as exact as the event: the value at a path, if the program is nothing else, and the event itself, such as that of
/// `select`, which is passed on byte for byte. All other output is compact, with keys in jq's order. The program is a
/// function of the event alone: `env` and `$ENV` are empty, `input` and `inputs` have no input, `input_filename` is
/// null, `input_line_number` is 0, `debug` and `stderr` write nothing, and modules cannot be imported.
///
/// A program may run for ever, exhaust memory, or abort the process by a failed assertion inside libjq (1.6: `todate`
/// of a number that is too large). Untrusted events therefore belong in a separate process.
@safe final class JQProgram {
  /// jq's error message for a text that is not a program.
  struct CompileError: Error, Equatable {
    let sentence: String
  }

  /// jq's error message for an event, shortened.
  struct ValueError: Error, Equatable {
    let sentence: String

    /// - Parameter sentence: may contain the event; it is cut at 200 bytes.
    init(_ sentence: String) {
      let limit = 200
      self.sentence =
        sentence.utf8.count <= limit
        ? sentence : sentence[..<sentence.utf8.index(sentence.startIndex, offsetBy: limit)] + "…"
    }

    fileprivate init(_ fault: JSONFault) { self.init(fault.remedied(fault.sentence)) }

    fileprivate static var tooManyBytes: ValueError {
      ValueError("more than \(JQProgram.bytesLimit >> 20) MiB of outputs")
    }
  }

  /// Maximum number of outputs per event. A program with more, such as `range(1e12)`, does not end in useful time.
  static let outputsLimit = 65536
  /// Maximum bytes of an event's outputs.
  static let bytesLimit = 64 << 20

  private var state: OpaquePointer?
  /// Finds the result of a program that is a path; nil for any other.
  private var path: JSONFinder?
  private let messages = Messages()
  private let variables = Variables()

  /// Precedes every program: it overrides jq's own functions that reach outside the program, some of which abort
  /// without a command line.
  private static let prologue = """
    def input: error("no more inputs"); def inputs: empty; def input_filename: null; def input_line_number: 0; \
    def stderr: .; def env: {}; {} as $ENV |\u{20}
    """

  /// Compiles a program.
  /// - Parameter variables: the names of its variables, whose values `setVariables` sets.
  /// - Throws: `CompileError`.
  init(_ text: String, variables: [String] = []) throws(CompileError) {
    path = JSONPaths.steps(ofProgram: text, mayBeLast: true).map { JSONFinder(JSONPaths([$0])) }
    guard !text.utf8.contains(0) else { throw CompileError(sentence: "a NUL character") }
    guard let state = unsafe jq_init() else { throw CompileError(sentence: "no memory") }
    unsafe self.state = unsafe state
    unsafe jq_set_error_cb(
      state,
      { context, message in
        guard let context = unsafe context else { return unsafe jv_free(message) }
        unsafe Unmanaged<Messages>.fromOpaque(context).takeUnretainedValue().add(JQProgram.text(message))
      }, unsafe Unmanaged.passUnretained(messages).toOpaque())
    // jq 1.6 without a callback calls a function at an uninitialised address.
    unsafe jq_set_debug_cb(state, { _, message in unsafe jv_free(message) }, nil)
    // The only input besides the event is the object with the variables, which the prologue takes once for each event.
    unsafe jq_set_input_cb(
      state,
      { _, context in
        guard let context = unsafe context else { return unsafe jv_invalid() }
        return unsafe Unmanaged<Variables>.fromOpaque(context).takeUnretainedValue().copy()
      }, unsafe Unmanaged.passUnretained(self.variables).toOpaque())
    let names = variables.sorted().map { "$\($0)" }.joined(separator: ", ")
    let binding = names.isEmpty ? "" : "input as {\(names)} | "
    guard unsafe jq_compile(state, binding + Self.prologue + text) != 0 else {
      throw CompileError(sentence: messages.sentence(namingLines: text.utf8.contains(UInt8(ascii: "\n"))))
    }
  }

  deinit { unsafe jq_teardown(&state) }

  /// Sets the values of variables, by name, for the next events. There may be more than the program has.
  func setVariables(_ values: [String: String]) { variables.set(values) }

  /// Sets the handler for a failed allocation in libjq; it must not return. By default libjq aborts.
  func whenOutOfMemory(_ handler: @escaping @convention(c) (UnsafeMutableRawPointer?) -> Void) {
    unsafe jq_set_nomem_handler(state, handler, nil)
  }

  /// Runs the program on one event.
  ///
  /// - Parameter event: one JSON text, perhaps after a byte order mark. libjq does not decide that: it would take the text
  ///   up to a NUL or U+001E for all of it, and numbers such as `nan` and 007.
  /// - Returns: its outputs, each one JSON text. Outputs before `halt` count.
  /// - Throws: `ValueError` when the event is not JSON, when the program fails on it, even after some outputs, or when
  ///   a limit is exceeded.
  func outputs(for event: [UInt8]) throws(ValueError) -> EventBatch {
    let event = event.first == 0xEF ? Array(event.withoutByteOrderMark) : event
    if let value = value(in: event) {
      guard value.count <= Self.bytesLimit else { throw .tooManyBytes }
      return [value]
    }
    if let fault = JSONSyntax.fault(in: event.span) { throw ValueError(fault) }
    let input = try unsafe Self.parse(event).get()
    // While `input` is referenced here, jq changes a copy of it: an output that is the same value is unchanged.
    defer { unsafe jv_free(input) }
    unsafe jq_start(state, jv_copy(input), 0)
    var outputs: EventBatch = []
    var byteCount = 0
    while true {
      let value = unsafe jq_next(state)
      guard unsafe jv_is_valid(value) != 0 else {
        if let failure = unsafe failure(ending: value) { throw failure }
        return outputs
      }
      let isEvent = unsafe jv_identical(jv_copy(value), jv_copy(input)) != 0
      let output = unsafe isEvent ? event : Self.bytes(jv_dump_string(jv_copy(value), 0))
      unsafe jv_free(value)
      byteCount += output.count
      guard outputs.count < Self.outputsLimit else { throw ValueError("more than \(Self.outputsLimit) outputs") }
      guard byteCount <= Self.bytesLimit else { throw .tooManyBytes }
      if !isEvent, let fault = JSONSyntax.fault(in: output.span) {
        throw ValueError("an output is \(fault.sentence)")
      }
      outputs.append(output)
    }
  }

  /// The result for one event of a program that is a path, as it is written there, in compact form; nil: only jq knows it.
  func value(in event: [UInt8]) -> [UInt8]? {
    guard path?.find(in: event.span) == true else { return nil }
    return path?.value(at: 0, in: event.span)
  }

  /// Whether jq rounds integers above 2^53, as 1.6 does. 1.7 preserves numbers that it does not compute with.
  static let roundsNumbers: Bool = {
    let number = Array("[9007199254740993]".utf8)
    return (try? JQProgram("[.[]]").outputs(for: number)) != [number]
  }()

  /// - Parameter end: the last result of `jq_next`; consumed.
  private func failure(ending end: jv) -> ValueError? {
    if unsafe jv_invalid_has_msg(jv_copy(end)) != 0 { return unsafe ValueError(Self.text(jv_invalid_get_msg(end))) }
    unsafe jv_free(end)
    guard unsafe jq_halted(state) != 0 else { return nil }
    let message = unsafe jq_get_error_message(state)
    guard unsafe jv_is_valid(message) != 0 else {
      unsafe jv_free(message)
      return nil
    }
    return unsafe ValueError(Self.text(message))
  }

  // MARK: - Values

  /// - Parameter event: one JSON text.
  private static func parse(_ event: [UInt8]) -> Result<jv, ValueError> {
    guard let count = CInt(exactly: event.count) else { return unsafe .failure(ValueError("more than 2 GiB")) }
    // Not `jv_parse_sized`: its message contains the whole text.
    let parser = unsafe jv_parser_new(0)
    defer { unsafe jv_parser_free(parser) }
    return unsafe event.withUnsafeBytes { bytes in
      unsafe jv_parser_set_buf(parser, bytes.bindMemory(to: CChar.self).baseAddress, count, 0)
      let value = unsafe jv_parser_next(parser)
      guard unsafe jv_is_valid(value) != 0 else {
        return unsafe .failure(message(value) ?? ValueError("not a JSON text"))
      }
      return unsafe .success(value)
    }
  }

  /// The message of an invalid value, which is consumed.
  private static func message(_ invalid: jv) -> ValueError? {
    let message = unsafe jv_invalid_get_msg(invalid)
    guard unsafe jv_get_kind(message) == JV_KIND_STRING else {
      unsafe jv_free(message)
      return nil
    }
    return unsafe ValueError(text(message))
  }

  /// The message as text; consumes it.
  private static func text(_ message: jv) -> String {
    if unsafe jv_get_kind(message) == JV_KIND_STRING { return unsafe String(decoding: bytes(message), as: UTF8.self) }
    return unsafe String(decoding: bytes(jv_dump_string(message, 0)), as: UTF8.self) + " (not a string)"
  }

  /// Consumes the string.
  private static func bytes(_ string: jv) -> [UInt8] {
    defer { unsafe jv_free(string) }
    let count = unsafe Int(jv_string_length_bytes(jv_copy(string)))
    return unsafe [UInt8](UnsafeRawBufferPointer(start: jv_string_value(string), count: count))
  }
}

/// The variables of a program, as an object.
@safe private final class Variables {
  private var object = unsafe jv_object()

  func set(_ values: [String: String]) {
    unsafe jv_free(object)
    unsafe object = unsafe values.reduce(jv_object()) {
      unsafe jv_object_set($0, jv_string($1.key), jv_string($1.value))
    }
  }

  deinit { unsafe jv_free(object) }

  func copy() -> jv { unsafe jv_copy(object) }
}

/// jq's messages about a program.
private final class Messages {
  private var texts: [String] = []

  /// Keeps a limited number, as many as a person reads.
  func add(_ text: String) {
    if texts.count < 4 { texts.append(text) }
  }

  /// jq's messages, without remarks on a command line, and without the program: its first line suffices.
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

extension JSONFault {
  /// The fault of an event of a source, with the remedy if there is one.
  func remedied(_ text: String) -> String {
    switch self {
    case .severalTexts: text + "; split = \"json\" of a source makes an event of each"
    case .gzip: text + "; decode = \"gzip\" of a WebSocket decodes it"
    case .byte(0xFF, at: 0): text + "; telnet = true of a socket takes telnet's commands out"
    case .empty, .tooDeep, .byte, .cutOff: text
    }
  }
}
