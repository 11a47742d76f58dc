import Glibc
import StreamClient
import StreamProtocol
import StreamRuntime

/// The parsed command line.
struct Arguments: Equatable {
  enum Command: Equatable {
    /// The streams as a table.
    case list(Listing)
    /// The streams as the daemon sends them.
    case listJSON
    case subscribe(Subscription)
    /// `key`: the key whose newest event is printed; `nil`: the newest event of the stream. `timeout`: maximum wait for
    /// the event; `nil`: no limit.
    case get(name: String, key: String?, OutputFormat, timeout: Duration?)
    case publish(name: String, Publication)
    /// `data`: what the upstream is asked; `nil`: standard input.
    case request(name: String, data: String?)
    case status(isJSON: Bool)
    case configuration(isJSON: Bool)
    case clients(isJSON: Bool)
    /// One after the other.
    case control([ControlCommand])
    /// `timeout`: maximum wait for the outcome.
    case reload(process: Int32, timeout: Duration)
    case top(Top)
    case check(name: String, Check)
    /// nil: the help for all commands.
    case help(of: String?)
    case version
  }

  /// The options of `list`.
  struct Listing: Equatable {
    /// The streams that are shown; `nil`: all.
    var streams: StreamSelection?
    /// Whether only streams that need a person are shown.
    var isOfFailing = false
    /// Whether the ids of the newest events are shown.
    var isLong = false
  }

  /// The options of `sub`.
  struct Subscription: Equatable {
    var streams = StreamSelection([])
    var options = SubscribeOptions()
    var format = OutputFormat.data
    /// Number of events requested at a time.
    var credit = 256
    /// Number of events after which it stops; `nil`: no limit.
    var count: Int?
    /// Whether it reconnects after a lost connection.
    var reconnects = true
    /// Maximum time without an event before the program ends; `nil`: no limit.
    var timeout: Duration?
    /// Whether it shows that it has printed every stored event.
    var showsMarkers = false
    /// Whether it continues with new events after the stored ones.
    var follows = true
  }

  /// The options of `pub`.
  struct Publication: Equatable {
    /// One event; `nil`: standard input.
    var data: String?
    /// The publisher's name; `nil`: a unique one.
    var publisher: String?
    /// Whether it reconnects after a lost connection.
    var reconnects = true
  }

  /// The options of `top`.
  struct Top: Equatable {
    var order = TopTable.Order.name
    /// Whether it prints the daemon's counters instead of tables.
    var isJSON = false
    /// Number of tables after which it stops; `nil`: no limit.
    var count: Int?
  }

  /// The options of `check`.
  struct Check: Equatable {
    /// The maximum time since the stream was last known to be fresh; `nil`: any.
    var maxAge: Duration?
    /// Maximum wait for the daemon's reply.
    var timeout = Duration.seconds(10)
    /// Whether it prints a JSON object.
    var isJSON = false
  }

  /// A path, or an address of TCP.
  var socket: String
  /// The file with the token; nil: there is none.
  var tokenFile: String?
  var command: Command
  /// Maximum bytes of a received event.
  var maximumEventBytes = 64 << 20

  static let defaultSocket = "/run/streamd/streamd.sock"
}

extension Arguments {
  /// Options may stand anywhere, as `--name value` or `--name=value`; `--` ends them.
  /// - Parameter words: without the program's name.
  /// - Parameter environment: the defaults of options, by the names of variables.
  init(_ words: [String], environment: [String: String]) throws(Stop) {
    var values: [String: String] = [:]
    var conditions: [String] = []
    var operands: [String] = []
    var rest = words[...]
    while let given = rest.popFirst() {
      let word = Self.long(given)
      if word == "--" {
        operands += rest
        break
      }
      guard word.hasPrefix("-"), word != "-" else {
        operands.append(word)
        continue
      }
      if ["-h", "--help"].contains(word) {
        self.init(socket: "", command: try Self.help(of: operands.first ?? rest.first { !$0.hasPrefix("-") }))
        return
      }
      if word == "--version" {
        self.init(socket: "", command: .version)
        return
      }
      let parts = word.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false).map(String.init)
      if Self.flags.contains(word) {
        values[word] = ""
        continue
      }
      guard Self.options.contains(parts[0]) else {
        guard !Self.flags.contains(parts[0]) else { throw .usage("\(parts[0]) accepts no value") }
        let known = Help.options(of: operands.first ?? rest.first { !$0.hasPrefix("-") })
        throw .usage("unknown option \(given.prefix { $0 != "=" })", meant: nearest(to: parts[0], among: known))
      }
      // A value may begin with a dash: --from -5m.
      guard let value = parts.count == 2 ? parts[1] : rest.popFirst() else {
        throw .usage("\(parts[0]) requires a value")
      }
      values[parts[0]] = value
      if parts[0] == Self.condition { conditions.append(value) }
    }
    func value(_ option: String, _ variable: String) -> String? {
      values.removeValue(forKey: option) ?? environment[variable].flatMap { $0.isEmpty ? nil : $0 }
    }
    let path = value("--socket", "STREAMD_SOCKET")
    if let path, ["", "unix:", "tcp:"].contains(path) { throw .usage("--socket requires a path or an address") }
    if let path, let form = Self.otherForm(of: path) { throw .usage("--socket requires \(form), not \"\(path)\"") }
    let tokenFile = value("--token-file", "STREAMD_TOKEN_FILE")
    let maximumEventBytes = try Self.size("--max-event", values)
    self.init(
      socket: path ?? Self.defaultSocket, tokenFile: tokenFile, command: try Self.command(operands, values, conditions))
    if let maximumEventBytes { self.maximumEventBytes = maximumEventBytes }
  }

  /// What an operator who wrote a URL or the name of a host without a port means; nil: `text` is a path or an address.
  private static func otherForm(of text: String) -> String? {
    if text.contains("://") { return "an address without http://, such as 127.0.0.1:7878, or the path of a socket" }
    let isName = !text.contains(where: "/:".contains)
    return unsafe isName && access(text, F_OK) != 0
      ? "the path of a socket, or an address with a port, such as \(text):7878" : nil
  }

  // The options without a value.
  private static let noReconnect = "--no-reconnect"
  private static let json = "--json"
  private static let marker = "--marker"
  private static let noFollow = "--no-follow"
  private static let follow = "--follow"
  private static let longList = "--long"
  private static let failing = "--failing"
  private static let flags: Set = [noReconnect, json, marker, noFollow, follow, longList, failing]

  /// The options with a letter of their own, as in tail, journalctl, kubectl and ls.
  private static let letters = ["-n": "--last", "-f": follow, "-o": "--format", "-l": longList]

  /// An option in its long form: `-n 5`, `-n5` and `-n=5` are `--last 5` and `--last=5`.
  private static func long(_ word: String) -> String {
    guard word.count > 1, !word.hasPrefix("--"), let option = letters[String(word.prefix(2))] else { return word }
    let rest = word.dropFirst(2)
    return rest.isEmpty ? option : option + (rest.hasPrefix("=") ? "" : "=") + rest
  }

  /// The option that may occur more than once.
  private static let condition = "--where"

  /// Shorter than the time that the unit gives a reload, 30 s (TimeoutStartSec=).
  private static let reloadTimeout = Duration.seconds(25)

  private static let options: Set = [
    "--socket", "--token-file", "--credit", "--count", "--from", "--last", "--on-lag", "--format", "--max-event",
    "--sort", "--timeout",
    "--as", "--max-age", "--key", condition,
  ]

  private static func command(
    _ operands: [String], _ values: [String: String], _ conditions: [String]
  ) throws(Stop) -> Command {
    guard let verb = operands.first else {
      throw .usage("a command is missing, such as list or sub; streamctl help shows all, streamctl list the streams")
    }
    switch verb {
    case "help": return try help(of: operands.dropFirst().first)
    case "version": return .version
    case "list", "ls": return try listing(operands, values)
    case "status", "config", "clients", "top":
      guard operands.count == 1 else { throw .usage("\(verb) accepts no \"\(operands[1])\"") }
      let others: Set = verb == "top" ? ["--count", "--sort"] : []
      try refuse(values, except: others.union([json, "--format"]), for: verb)
      let isJSON = try isJSON(values)
      if verb == "status" { return .status(isJSON: isJSON) }
      if verb == "config" { return .configuration(isJSON: isJSON) }
      if verb == "clients" { return .clients(isJSON: isJSON) }
      if isJSON, values["--sort"] != nil { throw .usage("--sort cannot be combined with \(json)") }
      return .top(
        Top(order: try choice("--sort", values) ?? .name, isJSON: isJSON, count: try number("--count", values)))
    case "reload":
      try refuse(values, except: ["--timeout"], for: verb)
      guard operands.count == 2, let process = Int32(operands[1]), process > 0 else {
        throw .usage("reload requires the process id of the daemon; under systemd use systemctl reload")
      }
      return .reload(process: process, timeout: try time("--timeout", values) ?? reloadTimeout)
    case "kick", "refresh", "make", "forget":
      try refuse(values, except: [], for: verb)
      return .control(try control(operands))
    case "get":
      try refuse(values, except: ["--format", "--key", "--max-event", "--timeout"], for: verb)
      let format: OutputFormat? = try choice("--format", values)
      return .get(
        name: try name(operands), key: values["--key"], format ?? .data, timeout: try time("--timeout", values))
    case "check":
      try refuse(values, except: ["--max-age", "--timeout", json, "--format"], for: verb)
      var check = Check(maxAge: try time("--max-age", values), isJSON: try isJSON(values))
      check.timeout = try time("--timeout", values) ?? check.timeout
      return .check(name: try name(operands), check)
    case "pub":
      try refuse(values, except: ["--as", noReconnect], for: verb)
      return .publish(name: try name(Array(operands.prefix(2))), try publication(operands, values))
    case "request":
      try refuse(values, except: [], for: verb)
      guard operands.count <= 3 else { throw .usage("request accepts one body, not also \"\(operands[3])\"") }
      let data = operands.count == 3 ? operands[2] : nil
      guard data != "" else { throw .usage("request requires a body that is not empty") }
      return .request(name: try name(Array(operands.prefix(2))), data: data)
    case "sub":
      try refuse(
        values,
        except: options.union(flags).subtracting(["--sort", "--as", "--max-age", "--key", json, longList, failing]),
        for: verb)
      return .subscribe(try subscription(operands, values, conditions))
    default: throw unknown(verb)
    }
  }

  private static func control(_ operands: [String]) throws(Stop) -> [ControlCommand] {
    switch operands[0] {
    case "kick":
      guard operands.count == 2, let client = UInt64(operands[1]) else {
        throw .usage("kick requires the number of a client, which streamctl clients shows")
      }
      return [.kick(client: client)]
    case "refresh": return [.refresh(stream: try name(operands))]
    case let verb:
      guard operands.count > 1 else { throw .usage("\(verb) requires a stream's name") }
      return operands.dropFirst().map { verb == "make" ? .make(stream: $0) : .forget(stream: $0) }
    }
  }

  private static func listing(_ operands: [String], _ values: [String: String]) throws(Stop) -> Command {
    try refuse(values, except: [longList, failing, json, "--format"], for: operands[0])
    let names = Array(operands.dropFirst())
    let listing = Listing(
      streams: names.isEmpty ? nil : StreamSelection(names), isOfFailing: values[failing] != nil,
      isLong: values[longList] != nil)
    guard try isJSON(values) else { return .list(listing) }
    if listing != Listing(isLong: listing.isLong) { throw .usage("\(json) prints all streams: select with jq") }
    return .listJSON
  }

  private static func publication(_ operands: [String], _ values: [String: String]) throws(Stop) -> Publication {
    guard operands.count <= 3 else { throw .usage("pub accepts one event, not also \"\(operands[3])\"") }
    guard operands.count < 3 || !operands[2].isEmpty else { throw .usage("pub requires an event that is not empty") }
    let publication = Publication(
      data: operands.count == 3 ? operands[2] : nil, publisher: values["--as"], reconnects: values[noReconnect] == nil
    )
    if publication.publisher != nil, !publication.reconnects {
      throw .usage("--as cannot be combined with \(noReconnect)")
    }
    return publication
  }

  private static func subscription(
    _ operands: [String], _ values: [String: String], _ conditions: [String]
  ) throws(Stop) -> Subscription {
    var subscription = Subscription()
    if let from = values["--from"] { subscription.options.from = position(from) }
    if let count = try number("--last", values) {
      guard values["--from"] == nil else { throw .usage("--last cannot be combined with --from") }
      subscription.options.from = .last(UInt64(count))
    }
    subscription.options.onLag = try choice("--on-lag", values)
    subscription.format = try choice("--format", values) ?? .data
    subscription.credit = try number("--credit", values) ?? subscription.credit
    subscription.count = try number("--count", values)
    subscription.reconnects = values[noReconnect] == nil
    subscription.showsMarkers = values[marker] != nil
    subscription.follows = values[noFollow] == nil
    if !subscription.follows, values[follow] != nil {
      throw .usage("\(follow) cannot be combined with \(noFollow)")
    }
    subscription.options.marker = subscription.showsMarkers || !subscription.follows
    if !conditions.isEmpty { subscription.options.filter = try EventFilter(conditions) }
    subscription.timeout = try time("--timeout", values)
    subscription.streams = try streams(operands, subscription)
    return subscription
  }

  /// Whether a command that can print text or JSON is to print JSON: `--json`, or `-o json` as elsewhere.
  private static func isJSON(_ values: [String: String]) throws(Stop) -> Bool {
    guard let format = values["--format"] else { return values[json] != nil }
    guard format == "json" else { throw .usage("--format requires json here, not \"\(format)\"") }
    return true
  }

  private static func help(of command: String?) throws(Stop) -> Command {
    if let command, !Help.commands.contains(command) { throw unknown(command) }
    return .help(of: command)
  }

  private static func unknown(_ command: String) -> Stop {
    .usage("unknown command \(command)", meant: nearest(to: command, among: Set(Help.commands)))
  }

  private static func name(_ operands: [String]) throws(Stop) -> String {
    guard operands.count > 1 else { throw .usage("\(operands[0]) requires a stream's name") }
    guard operands.count == 2 else { throw .usage("\(operands[0]) accepts one name, not also \"\(operands[2])\"") }
    return operands[1]
  }

  private static func streams(_ operands: [String], _ wanted: Subscription) throws(Stop) -> StreamSelection {
    guard operands.count > 1 else { throw .usage("sub requires a stream's name") }
    let streams = StreamSelection(Array(operands.dropFirst()))
    guard streams.isSeveral else { return streams }
    if wanted.format == .raw { throw .usage("--format raw is possible with one stream only") }
    if case .after = wanted.options.from { throw .usage("--from requires a time or a word with several streams") }
    return streams
  }

  private static func refuse(
    _ values: [String: String], except allowed: Set<String>, for verb: String
  ) throws(Stop) {
    if let option = values.keys.filter({ !allowed.contains($0) }).min() {
      throw .usage("\(option) is not an option of \(verb)")
    }
  }

  /// The daemon checks a word that is neither a keyword nor a number.
  private static func position(_ text: String) -> SubscribeOptions.Start {
    switch text {
    case "replay": .replay
    case "latest": .latest
    case "new": .new
    case "state": .state
    default: SubscribeOptions.Start(number: text) ?? .since(text)
    }
  }

  private static func number(_ option: String, _ values: [String: String]) throws(Stop) -> Int? {
    guard let text = values[option] else { return nil }
    guard let number = Int(text), number > 0 else {
      throw .usage("\(option) requires a number above 0, not \"\(text)\"")
    }
    return number
  }

  /// A size in bytes: digits, optionally with `B`, `KiB`, `MiB` or `GiB`; at most the wire's largest number.
  private static func size(_ option: String, _ values: [String: String]) throws(Stop) -> Int? {
    guard let text = values[option] else { return nil }
    let units = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("B", 1)]
    let unit = units.first { text.hasSuffix($0.0) } ?? ("", 1)
    guard let number = Int(text.dropLast(unit.0.count)), number > 0, number <= 4 << 30 / unit.1 else {
      throw .usage("\(option) requires a size from 1 to 4GiB, such as 64MiB, not \"\(text)\"")
    }
    return number * unit.1
  }

  /// A time: digits and `ms`, `s`, `m`, `h` or `d`; at most a year.
  private static func time(_ option: String, _ values: [String: String]) throws(Stop) -> Duration? {
    guard let text = values[option] else { return nil }
    let units = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)]
    guard let unit = units.first(where: { text.hasSuffix($0.0) }), let number = Int(text.dropLast(unit.0.count)),
      number > 0, number <= 365 * 86_400_000 / unit.1
    else { throw .usage("\(option) requires a time from 1ms to 365d, such as 30s, not \"\(text)\"") }
    return .milliseconds(number * unit.1)
  }

  private static func choice<Choice: RawRepresentable<String> & CaseIterable>(
    _ option: String, _ values: [String: String]
  ) throws(Stop) -> Choice? {
    guard let text = values[option] else { return nil }
    guard let choice = Choice(rawValue: text) else {
      let known = Choice.allCases.map(\.rawValue).joined(separator: ", ")
      throw .usage("\(option) requires one of \(known), not \"\(text)\"")
    }
    return choice
  }
}
