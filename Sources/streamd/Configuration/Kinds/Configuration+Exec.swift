import Events
import Fleet
import Reactive
import StreamSources

extension Configuration {
  /// A source that runs a program and reads its output.
  struct Exec: Sendable, Equatable {
    /// The program and its arguments, without a shell. The first is not empty; none contains a NUL.
    var command: [String] = []
    /// Variables of the program's environment, in the order of the file.
    var environment: [NamedValue] = []
    /// Maximum bytes of one line; more is a failure of the program. `nil`: 1 MiB.
    var maxLineBytes: Int?
    /// The time between two runs; `nil`: the program is started again when it ends.
    var every: Duration?
    /// Whether each line is an event, or, with `every`, the whole output.
    var hasLines = true
    /// How lines end; as in the file. `nil`: with LF or CRLF.
    var end: String?
    /// The time limit of a run, with `every`.
    var timeout = Duration.seconds(30)
    /// Maximum bytes of an output that is one event; more is a failure. `nil`: see
    /// `Configuration.Stream.maxPageBytes(_:)`.
    var maxBodyBytes: Int?
    var split = Split.none
  }
}

extension Configuration.Exec: SourceTable {
  static let name = "exec"
  static let example = #"{ command = ["PROGRAM", "ARGUMENT"] }"#

  static let keys: [ConfigurationKey<Self>] = [
    .init(["command"], \.command) { $1 = $0.complete(readCommand($0)) ?? [] },
    .init("environment", \.environment, names: .variableName, texts: .textWithoutNUL.expanding(.text)),
    .init("every", \.every, .duration()),
    .init(["stream"], \.hasLines) { table, hasLines in
      let isNamed = table.value("stream", .text("\"lines\"") { $0 == "lines" }) != nil
      hasLines = isNamed || !table.holds("every")
    },
    .init("end", \.end, .lineEnd),
    .init("timeout", \.timeout, .duration()),
    .init("split", \.split, .choice),
    .init("max_line", \.maxLineBytes, .size(1...1 << 30)),
    .init("max_body", \.maxBodyBytes, .size(1...1 << 30)),
    .check { $1.checkRuns($0) },
  ]

  private func checkRuns(_ table: ConfigurationTable) {
    guard table.holds("every") else {
      return table.refuse(["stream", "timeout", "max_body"], onlyWith: "every", lacking: ["every"])
    }
    if !hasLines { table.refuse(["end"], onlyWith: "lines", lacking: ["stream"]) }
    if hasLines {
      if table.holds("max_body") {
        table.addError("expected max_line in place of max_body with stream = \"lines\"", at: "max_body")
      }
    } else if !table.holds("stream") {
      table.refuse(["max_line"], onlyWith: "stream = \"lines\"; max_body limits the whole output", lacking: ["stream"])
    }
  }

  private static func readCommand(_ table: ConfigurationTable) -> [String]? {
    let form = #"a list such as ["sensor", "--json"] (no shell is used)"#
    guard table.holds("command") else {
      table.addError("expected command, \(form), got none", lacking: ["command"])
      return nil
    }
    guard table.text("command") == nil else {
      table.expected(form, at: "command", secret: true)
      return nil
    }
    let words = table.values("command", .textWithoutNUL.expanding(.word), mayBeEmpty: false, secret: true)
    guard let program = words?.first else { return words }
    if program.isEmpty {
      table.addError("expected the name of a program first, got \"\"", at: "command")
    } else if table.context.checksPrograms, let reason = ProgramSearch.failure(of: program) {
      table.addError("expected a program that can be run, got \(reason)", at: "command")
    }
    return words
  }
}

extension Configuration.Exec {
  static func hides(_ keys: ArraySlice<String>, at index: Int?) -> Bool { keys == ["command"] && (index ?? 0) > 0 }

  var definition: [DefinitionField] {
    var fields: [DefinitionField] = command.map { ("exec.command", $0) } + environment.definition("exec.environment")
    if let maxLineBytes, maxLineBytes != 1 << 20 { fields.append(("exec.max_line", "\(maxLineBytes)")) }
    if let end { fields.append(("exec.end", end)) }
    if let every {
      fields.append(("exec.every", every.definition))
      if hasLines { fields.append(("exec.stream", "lines")) }
    }
    if let maxBodyBytes, maxBodyBytes != 8 << 20 { fields.append(("exec.max_body", "\(maxBodyBytes)")) }
    return fields
  }

  var descriptorCount: Int { 8 }
  var fleetKind: FleetMachine.Stream.Kind { hasLines ? .continuous : .poll }
  var splitsTexts: Bool { split == .json }
  var executable: String? { command.first }

  var eventLimit: (key: String, bytes: Int)? {
    hasLines ? maxLineBytes.map { ("exec.max_line", $0) } : maxBodyBytes.map { ("exec.max_body", $0) }
  }

  func limits(in stream: Configuration.Stream) -> [Int] { hasLines ? [] : [stream.maxPageBytes(maxBodyBytes)] }

  func publisher(of stream: Configuration.Stream, in context: SectionContext) -> AnyPublisher<EventBatch, Never> {
    var program = ProgramConfiguration(
      command: command, environment: Dictionary(uniqueKeysWithValues: environment.map { ($0.name, $0.value.content) }),
      maximumLineBytes: maxLineBytes ?? 1 << 20, retry: stream.retry)
    program.lineEnd = LineEnd(of: end)
    guard let every else { return Source(ProgramSource(program), in: context.source).eraseToAnyPublisher() }
    var source = context.source
    if hasLines { source.admission = nil }
    let form: ProgramPoll.Form = hasLines ? .lines : .whole(maximumBytes: stream.maxPageBytes(maxBodyBytes))
    return Source(ProgramPoll(program, every: every, form: form, timeout: timeout), in: source).eraseToAnyPublisher()
  }
}

extension ConfigurationShape where Value == String {
  fileprivate static var textWithoutNUL: Self { text("a string without NUL") { !$0.utf8.contains(0) } }

  /// A portable name of POSIX (XBD 8.1), in either case.
  fileprivate static var variableName: Self {
    text("a name of letters, digits and \"_\", not a digit first") { name in
      name.isName(upTo: .max, with: "_") && name.utf8.first.map { !(0x30...0x39).contains($0) } == true
    }
  }
}
