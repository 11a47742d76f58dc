import Events

/// What a source says on one connection besides its heartbeat: the messages of the opening, some of which wait for a
/// message of the upstream, and the answers to the upstream's messages. Works on verdicts and times.
///
/// jq gives the verdicts, in a process of its own (`JQExaminer`). One program has all expressions of the
/// configuration; it is run once for each message, while the opening waits or if there are answers.
struct WebSocketConversation {
  /// What the expressions say of one message.
  struct Verdict: Equatable {
    /// For each message of the opening with `after`, whether that is true.
    var fitting: [Bool] = []
    /// Whether the message fits `to`, and so is no event.
    var isAnswered = false
    /// The text to send.
    var answer: [UInt8]?
  }

  /// Bytes of a message above which no expression examines it, and of an answer.
  static let (longestQuestion, longestAnswer) = (64 << 10, 4 << 10)
  /// Answers that may be sent at once, and the time for one more. Services ask each 5 to 30 s.
  static let (burst, pause) = (20, Duration.milliseconds(100))

  private let configuration: WebSocketConfiguration
  /// The messages of the opening that are not sent. The first of them waits.
  private var rest: ArraySlice<WebSocketMessage>
  /// The number of messages with `after` that are sent.
  private var fitCount = 0
  /// When the opening fails, because what it waits for has not come; nil: it does not wait.
  private(set) var due: Duration?
  /// The time at which `burst` answers may be sent at once again.
  private var answersEnd = Duration.zero

  init(_ configuration: WebSocketConfiguration) {
    self.configuration = configuration
    rest = configuration.messages[...]
  }

  /// Whether the opening is complete.
  var isOpened: Bool { rest.isEmpty }

  /// Whether the next message needs a verdict.
  var needsVerdicts: Bool { !isOpened || !configuration.answers.isEmpty }

  /// The texts that are sent first.
  mutating func begin(at now: Duration) -> [[UInt8]] { take(0, at: now) }

  /// Takes the verdict on the next message.
  ///
  /// - Returns: the texts to send.
  /// - Throws: if the upstream asks for too many answers, or one is too long.
  mutating func hear(_ verdict: Verdict, at now: Duration) throws(SourceFailure) -> [[UInt8]] {
    var texts: [[UInt8]] = []
    if let answer = verdict.answer {
      answersEnd = max(answersEnd, now) + Self.pause
      guard answersEnd - now <= Self.pause * Self.burst else {
        throw SourceFailure("the upstream asks for more answers than \(Self.burst) at once and 10 in a second")
      }
      guard answer.count <= Self.longestAnswer else {
        throw SourceFailure("the answer to a message is over \(Self.longestAnswer >> 10) KiB")
      }
      texts.append(answer)
    }
    if !isOpened, verdict.fitting.indices.contains(fitCount), verdict.fitting[fitCount] {
      fitCount += 1
      texts += take(1, at: now)
    }
    return texts
  }

  /// The failure of the opening at its time.
  var lateness: SourceFailure {
    let program = rest.first?.after?.split(separator: "\n").joined(separator: " ") ?? ""
    let shown = program.count > 100 ? program.prefix(100) + "…" : program[...]
    let time = configuration.request.timeout
    return SourceFailure(
      "no message that fits after = '\(shown)' within \(time.inWords): the rest of send was not sent")
  }

  /// Ignores a pause in which the connection was not read.
  mutating func waited(_ time: Duration) { due = due.map { $0 + time } }

  /// - Parameter count: the number of messages that wait no more.
  private mutating func take(_ count: Int, at now: Duration) -> [[UInt8]] {
    let end = rest.dropFirst(count).firstIndex { $0.after != nil } ?? rest.endIndex
    defer {
      rest = rest[end...]
      due = isOpened ? nil : now + configuration.request.timeout
    }
    return rest[..<end].map { Array($0.text.utf8) }
  }

  // MARK: jq

  /// The program for the verdicts on messages, with its variables; nil: none is needed.
  static func transform(for configuration: WebSocketConfiguration) -> JQTransform? {
    program(for: configuration).map { program in
      var transform = JQTransform(program: program)
      transform.variables = configuration.variables
      return transform
    }
  }

  /// The program for the verdicts on messages; nil: none is needed.
  static func program(for configuration: WebSocketConfiguration) -> String? {
    let (afters, answers) = (configuration.messages.compactMap(\.after), configuration.answers)
    guard !afters.isEmpty || !answers.isEmpty else { return nil }
    // Line ends close a comment at the end of an expression; in jq 1.7 a backslash continues it over the first one. An
    // expression that fails on a message is not true for it.
    func fits(_ program: String) -> String { "(try any((\(program)\n\n); .) catch false)" }
    let tos = answers.map { fits($0.to) }
    let first = (afters.map(fits) + ["any(\((tos + ["false"]).joined(separator: ", ")); .)"]).joined(separator: ", ")
    let texts = zip(tos, answers).reversed().reduce("empty") { others, answer in
      "if \(answer.0) then (try [first((\(answer.1.with)\n\n))] catch {error: tostring}) else \(others) end"
    }
    return "[\(first)], \(texts)"
  }

  /// The message as the program's input: itself if it is JSON, else a string, or null if it is no text or too long.
  static func question(on message: [UInt8]) -> [UInt8] {
    guard message.count <= longestQuestion else { return Array("null".utf8) }
    if JSONSyntax.holds(for: message.span) { return message }
    return Array((String(validating: message, as: UTF8.self).map { JSONScalar.quoted($0) } ?? "null").utf8)
  }
}

extension WebSocketConversation.Verdict {
  /// - Parameter answer: of the process that runs the program. A message that jq cannot read fits nothing.
  /// - Throws: if `with` fails.
  init(_ answer: JQAnswer) throws(SourceFailure) {
    guard answer.failure == nil, let first = answer.outputs.first?.event else { return }
    let flags = first.split { "[,]".utf8.contains($0) }.map { $0.first == UInt8(ascii: "t") }
    (fitting, isAnswered) = (flags.dropLast(), flags.last == true)
    guard isAnswered, answer.outputs.count == 2, let result = answer.outputs[1].event,
      JSONSyntax.holds(for: result.span)
    else { return }
    guard result.first == UInt8(ascii: "[") else {
      let message = Self.text(result.dropFirst(#"{"error":"#.utf8.count).dropLast())
      throw SourceFailure("the program of an answer fails: \(String(decoding: message.prefix(200), as: UTF8.self))")
    }
    if result.count > 2 { self.answer = Self.text(result.dropFirst().dropLast()) }
  }

  /// A string's content, or the text of another value.
  private static func text(_ value: ArraySlice<UInt8>) -> [UInt8] {
    guard value.first == UInt8(ascii: "\"") else { return Array(value) }
    var text: [UInt8] = []
    JSONScalar.appendUnescaped(Array(value.dropFirst().dropLast()).span, to: &text)
    return text
  }
}
