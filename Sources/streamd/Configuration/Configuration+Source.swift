extension Configuration {
  /// The source of the events.
  enum Source: Sendable, Equatable {
    case timer(Timer)
    case http(HTTP)
    case webSocket(WebSocket)
    case socket(Socket)
    case serial(Serial)
    case exec(Exec)
    /// A stream of another streamd.
    case peer(Peer)
    case journal(JournalEntries)
    /// Other streams, from which this one is derived.
    case streams(Derived)
    /// Clients publish the events. Always active.
    case publish
  }

  /// A timer source.
  struct Timer: Sendable, Equatable {
    /// The interval of the ticks, 1 ms to 365 days.
    var every = Duration.seconds(1)
    /// How late a tick may be, to save wake-ups. Less than `every`.
    var leeway = Duration.zero
    /// Ticks until the stream completes, at least 1; `nil`: without end.
    var times: Int?
  }

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

  /// What an event of a source without messages or lines of its own is.
  enum Split: String, CaseIterable, Sendable {
    /// A message, a page, a line or the output of a program, as the source has it.
    case none
    /// A JSON text in that.
    case json
  }

  /// A header, a parameter of a URL, or a variable of an environment.
  struct NamedValue: Sendable, Equatable {
    var name: String
    var value: Value

    enum Value: Sendable, Equatable {
      case plain(String)
      case secret(Secret)
    }
  }
}

/// A kind of source, which is a key of a stream.
struct SourceKind: Sendable {
  let name: String
  /// - Returns: `nil` when the key is absent or, after recording an error, there is no source.
  let read: @Sendable (ConfigurationTable) -> Configuration.Source?

  /// A kind with a table.
  ///
  /// - Parameters:
  ///   - standard: the defaults of its keys.
  ///   - example: an example of the table, for the message that the value is none.
  private init<Section: ConfigurationSection>(
    _ name: String, _ standard: Section, suchAs example: String,
    _ source: @escaping @Sendable (Section) -> Configuration.Source
  ) {
    self.init(name: name) { $0.section(name, standard, suchAs: example).map(source) }
  }

  private init(name: String, read: @escaping @Sendable (ConfigurationTable) -> Configuration.Source?) {
    (self.name, self.read) = (name, read)
  }

  /// All kinds, in the order in which messages list them.
  static let all = [
    Self("timer", Configuration.Timer(), suchAs: #"{ every = "1s" }"#) { .timer($0) },
    Self("http", Configuration.HTTP(), suchAs: #"{ url = "https://…", every = "1m" }"#) { .http($0) },
    Self("websocket", Configuration.WebSocket(), suchAs: #"{ url = "wss://…" }"#) { .webSocket($0) },
    Self("socket", Configuration.Socket(), suchAs: #"{ address = "tcp:HOST:PORT" }"#) { .socket($0) },
    Self("serial", Configuration.Serial(), suchAs: #"{ device = "/dev/ttyUSB0", baud = 9600 }"#) { .serial($0) },
    Self("exec", Configuration.Exec(), suchAs: #"{ command = ["PROGRAM", "ARGUMENT"] }"#) { .exec($0) },
    Self("streamd", Configuration.Peer(), suchAs: #"{ address = "unix:PATH" }"#) { .peer($0) },
    Self("journal", Configuration.JournalEntries(), suchAs: #"{ match = ["_SYSTEMD_UNIT=NAME.service"] }"#) {
      .journal($0)
    },
    Self(name: "of") { Configuration.Derived.read($0).map { .streams($0) } },
    Self(name: "publish", read: publish),
  ]

  /// Reads the source of a stream.
  static func read(_ table: ConfigurationTable) -> Configuration.Source? {
    let names = all.map(\.name)
    let present = names.filter { table.holds($0) }
    let sources = all.compactMap { $0.read(table) }
    if present.isEmpty {
      let choice = names.dropLast().joined(separator: ", ") + " or " + (names.last ?? "")
      table.addError("expected one source (\(choice)), got none", lacking: names)
    } else if present.count > 1 {
      table.addError("expected one source, got \(present.joined(separator: " and "))")
    }
    return sources.first
  }

  /// `true`, or a table without keys.
  private static func publish(_ table: ConfigurationTable) -> Configuration.Source? {
    guard let isMeant = table.flag("publish") else {
      return table.table("publish", expecting: "true or {}") { _ in .publish }
    }
    if !isMeant { table.addError("expected true or {}; omit publish if clients do not publish", at: "publish") }
    return isMeant ? .publish : nil
  }
}

extension Configuration.Timer: ConfigurationSection {
  static let keys: [ConfigurationKey<Self>] = [
    .init(required: "every", suchAs: "every = \"30s\"", \.every, .duration()),
    .init("leeway", \.leeway, .duration(from: .zero)),
    .init("times", \.times, .count(1...Int.max)),
    .check { table, timer in
      if table.isComplete, timer.leeway >= timer.every { table.expected("less than every", at: "leeway") }
    },
  ]
}

extension Configuration.Exec: ConfigurationSection {
  static let keys: [ConfigurationKey<Self>] = [
    .init(["command"], \.command) { $1 = $0.complete(readCommand($0)) ?? [] },
    .init("environment", \.environment, names: .variableName, texts: .textWithoutNUL),
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
    let words = table.values("command", .textWithoutNUL, mayBeEmpty: false, secret: true)
    guard let program = words?.first else { return words }
    if program.isEmpty {
      table.addError("expected the name of a program first, got \"\"", at: "command")
    } else if table.context.checksPrograms, let reason = ProgramSearch.failure(of: program) {
      table.addError("expected a program that can be run, got \(reason)", at: "command")
    }
    return words
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
