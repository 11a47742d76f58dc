import Events
import Glibc
import StreamProtocol

/// Runs the commands.
enum Program {
  /// - Parameter words: the command line without the program's name.
  /// - Throws: the reason why the program ends, unless its work is done.
  static func run(_ words: [String]) throws(Stop) {
    signal(SIGPIPE, SIG_IGN)  // a closed reader is reported as EPIPE
    var environment: [String: String] = [:]
    for name in ["STREAMD_SOCKET", "STREAMD_TOKEN_FILE"] {
      environment[name] = unsafe getenv(name).map { unsafe String(cString: $0) }
    }
    let arguments = try Arguments(words, environment: environment)
    switch arguments.command {
    case .help(let command): try Output.print(command.flatMap { Help.text(of: $0) } ?? Help.text)
    case .version: try Output.print("streamctl \(Version.description)\n")
    case .listJSON: try printValue(of: "$streams", arguments, .data)
    case .list(let listing):
      let session = try Session(arguments)
      let streams = try catalogue(session)
      let templates = try TemplateListing(session.optionalValue(of: "$templates"))
      let selected = try streams.selected(by: listing, besides: templates)
      let event = try session.value(of: "$stats")
      let table = try selected.text(StatisticsSnapshot(event), at: event.time, isLong: listing.isLong)
      try Output.print(table + templates.selected(by: listing).text)
    case .status(isJSON: true): try printValue(of: "$stats", arguments, .data)
    case .status:
      let session = try Session(arguments)
      let streams = try catalogue(session)
      try Output.print(StatusReport(json: session.value(of: "$stats").data, streams: streams).text)
    case .configuration(isJSON: true): try printValue(of: "$config", arguments, .data)
    case .configuration:
      try Output.print(ConfigurationReport(Session(arguments).value(of: "$config")).shownText)
    case .reload(let process, let timeout):
      try Session(arguments, watchesOutput: false).reload(process, within: timeout)
    case .get(let name, let key, let format, let timeout):
      try printValue(of: name, key: key, arguments, format, within: timeout)
    case .clients(isJSON: true): try printValue(of: "$clients", arguments, .data)
    case .clients:
      let event = try Session(arguments).value(of: "$clients")
      try Output.print(ClientTable(json: event.data).text(at: event.time))
    case .control(let commands): try Session(arguments, watchesOutput: false).perform(commands)
    case .publish(let name, let publication):
      let session = try Session(arguments, watchesOutput: false)
      if let data = publication.data {
        try session.publish(Array(data.utf8), to: name, publication)
      } else {
        try session.publishLines(to: name, publication)
      }
    case .request(let name, let data):
      let body: [UInt8]
      if let data { body = Array(data.utf8) } else { body = try InputLines.whole() }
      let reply = try Session(arguments, watchesOutput: false).ask(name, body)
      try Output.print(String(decoding: reply.data, as: UTF8.self) + "\n")
    case .top(let wanted) where wanted.isJSON: try Session(arguments).printSnapshots(count: wanted.count)
    case .top(let wanted): try Session(arguments, screen: Screen()).top(wanted)
    case .check(let name, let wanted): try check(name, wanted, arguments)
    case .subscribe(let subscription): try Session(arguments).follow(subscription)
    }
  }

  private static func printValue(
    of name: String, key: String? = nil, _ arguments: Arguments, _ format: OutputFormat, within timeout: Duration? = nil
  ) throws(Stop) {
    let event = try Session(arguments).value(of: name, key: key, within: timeout)
    var output = Output()
    if format == .data, Terminal.isOutput, JSONSyntax.holds(for: event.data.span) {
      try output.write(Terminal.shown(JSONText.indented(event.data), isJSON: true))
    } else {
      try format.append(event, to: &output)
    }
    // Without a line end, the shell's prompt would follow the bytes.
    if format == .raw, event.data.last != UInt8(ascii: "\n"), Terminal.isOutput {
      try output.write(CollectionOfOne(UInt8(ascii: "\n")))
    }
    try output.flush()
  }

  /// Prints whether a stream is fresh.
  /// - Throws: the exit code, unless the stream is fresh. The printed line has the reason.
  private static func check(_ name: String, _ wanted: Arguments.Check, _ arguments: Arguments) throws(Stop) {
    let result = try result(of: name, wanted, arguments)
    do throws(Stop) {
      try Output.print(wanted.isJSON ? result.json : result.text)
    } catch {
      // The exit code is the outcome even if nobody reads the line.
      guard error == .done else { throw error }
    }
    if result.verdict != .ok { throw .checked(result.verdict) }
  }

  private static func result(
    of name: String, _ wanted: Arguments.Check, _ arguments: Arguments
  ) throws(Stop) -> StreamCheck {
    do throws(Stop) {
      let session = try Session(arguments, watchesOutput: false)
      let streams = try StreamListing(json: session.value(of: "$streams", within: wanted.timeout).data)
      guard let entry = streams.rows.first(where: { $0.name == name }) else {
        return StreamCheck(of: name, unknown: "there is no stream \"\(name)\", or no access to it")
      }
      let event = try session.value(of: "$stats", within: wanted.timeout)
      let counts = try StatisticsSnapshot(event).byStream?.first { $0.name == name }
      return StreamCheck(entry, counts, at: event.time, maxAge: wanted.maxAge)
    } catch {
      // A signal has no message.
      guard let message = error.message else { throw error }
      return StreamCheck(of: name, unknown: message)
    }
  }

  private static func catalogue(_ session: Session) throws(Stop) -> StreamListing {
    try StreamListing(json: session.value(of: "$streams").data)
  }
}
