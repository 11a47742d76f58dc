import Events
import Reactive
import StreamSources

extension Configuration {
  /// A source that receives the messages of a WebSocket.
  struct WebSocket: Sendable, Equatable {
    /// The request that opens it, with a URL of scheme `ws` or `wss`. Only its request's keys are read.
    var http = HTTP()
    /// What is sent after each opening, in order.
    var messages: [Message] = []
    /// What is sent when a message comes that fits.
    var answers: [Answer] = []
    /// Messages that are no events.
    var ignored: [String] = []
    /// How the server encodes binary messages.
    var decode = WebSocketCoding.none
    /// Tokens, each one once.
    var subprotocols: [String] = []
    var heartbeat: Heartbeat?
    /// 1 s to 365 days.
    var pingEvery = Duration.seconds(30)
    /// `nil`: no limit.
    var idleTimeout: Duration?
    /// `nil`: each stream has a connection of its own.
    var together: Together?
    /// What is sent for values that are wanted, and for those that are not any more; `nil`: nothing.
    var subscribe: String?
    var unsubscribe: String?
    /// Messages on one connection in a second; at least 1.
    var pace = 10

    /// A text that is sent after an opening.
    struct Message: Sendable, Equatable {
      /// At most 64 KiB, and not empty.
      var text: NamedValue.Value
      /// A jq program, which is true for the message that the text waits for; `nil`: it waits for none.
      var after: String?
    }

    /// An answer, by jq programs.
    struct Answer: Sendable, Equatable {
      /// Is true for messages that are answered.
      var to: String
      /// Makes the text.
      var with: String
    }

    /// A text of the application that is sent regularly.
    struct Heartbeat: Sendable, Equatable {
      var text: NamedValue.Value
      /// 1 s to 365 days.
      var every: Duration
    }
  }
}

extension Configuration.WebSocket: SourceTable {
  static let name = "websocket"
  static let example = #"{ url = "wss://…" }"#

  static let keys: [ConfigurationKey<Self>] = [
    .init(["together"], \.together) { $1 = $0.together() },
    .init(["url"], \.http.url) { table, url in
      let text = Configuration.HTTP.readURL(
        table, schemes: ["ws://", "wss://"], suchAs: "wss://stream.example.org/")
      url = table.complete(text) ?? url
    },
    .init(["send"], \.messages) { table, messages in
      messages = table.texts("send", .sentMessage, text: { Message(text: .plain($0)) }) { readMessage($0) } ?? messages
    },
    .init(["answer"], \.answers) { table, answers in
      answers =
        table.tables("answer", expecting: "a list of { to = \"program\", with = \"program\" }") { readAnswer($0) }
        ?? answers
    },
    .init("ignore", \.ignored, each: .message),
    .init("subprotocols", \.subprotocols, each: .token("the name of a subprotocol")),
    .check { table, socket in
      if Set(socket.subprotocols).count < socket.subprotocols.count {
        table.addError("expected each subprotocol once", at: "subprotocols")
      }
    },
    .init(["heartbeat"], \.heartbeat) { table, heartbeat in
      heartbeat =
        table.table("heartbeat", expecting: "{ send = \"text\", every = \"20s\" }") { readHeartbeat($0) } ?? heartbeat
    },
    .init("subscribe", \.subscribe, .sentMessage),
    .init("unsubscribe", \.unsubscribe, .sentMessage),
    .init("pace", \.pace, .pace),
    .check { $1.checkTogether($0) },
    .init("split", \.http.split, .choice),
    .init("decode", \.decode, .choice),
    .init("ping_every", \.pingEvery, .duration(from: .seconds(1))),
    .init("idle_timeout", \.idleTimeout, .duration()),
    .part(\.http, Configuration.HTTP.requestKeys),
    .check { $1.checkHeaders($0) },
  ]

  private static func readMessage(_ table: ConfigurationTable) -> Message? {
    guard table.holds("text") || table.holds("after") else {
      return table.credential(allowsLines: true).map { Message(text: .secret($0)) }
    }
    table.require("text")
    let after = table.value("after", .program("a jq program such as '.type == \"connection_ack\"'"))
    table.checkProgram(after, at: "after")
    return table.secretText("text", .sentMessage, allowsLines: true).map { Message(text: $0, after: after) }
  }

  private static func readAnswer(_ table: ConfigurationTable) -> Answer? {
    for key in ["to", "with"] { table.require(key) }
    let to = table.value("to", .program("a jq program such as '.ping'"))
    let with = table.value("with", .program("a jq program such as '{pong: .ping}'"), secret: true)
    table.checkProgram(to, at: "to")
    table.checkProgram(with, at: "with")
    return to.flatMap { to in with.map { Answer(to: to, with: $0) } }
  }

  private static func readHeartbeat(_ table: ConfigurationTable) -> Heartbeat? {
    for key in ["send", "every"] { table.require(key) }
    let text = table.secretText("send", .sentMessage, allowsLines: true)
    let every = table.value("every", .duration(from: .seconds(1)))
    return text.flatMap { text in every.map { Heartbeat(text: text, every: $0) } }
  }

  /// Fields of the handshake would be there twice.
  private func checkHeaders(_ table: ConfigurationTable) {
    for name in http.headers.map(\.name) {
      switch name.lowercased() {
      case "sec-websocket-protocol":
        table.addError("expected subprotocols in place of the header \(name)", at: "headers")
      case let lower where lower.hasPrefix("sec-websocket-"): fallthrough
      case "connection", "expect", "upgrade":
        table.addError("expected no header \(name): it belongs to the handshake", at: "headers")
      default: break
      }
    }
  }
}

extension Configuration.WebSocket {
  static func hides(_ keys: ArraySlice<String>, at index: Int?) -> Bool {
    [["send", "text"], ["answer", "with"]].contains { keys.elementsEqual($0) }
  }

  var definition: [DefinitionField] {
    var fields: [DefinitionField] = [("websocket.url", http.url)]
    for message in messages {
      fields += message.text.definition("websocket.send")
      if let after = message.after { fields.append(("after", after)) }
    }
    fields += answers.flatMap { [("websocket.answer.to", $0.to), ("websocket.answer.with", $0.with)] }
    fields += ignored.map { ("websocket.ignore", $0) }
    fields += subprotocols.map { ("websocket.subprotocols", $0) }
    if let heartbeat {
      fields += heartbeat.text.definition("websocket.heartbeat.send")
      fields.append(("websocket.heartbeat.every", heartbeat.every.definition))
    }
    return fields + http.requestDefinition
  }

  /// Four more for the process that examines messages.
  var descriptorCount: Int { answers.isEmpty && !messages.contains { $0.after != nil } ? 6 : 10 }
  var splitsTexts: Bool { http.split == .json }
  var isTogether: Bool { together != nil }
  var countsMissed: Bool { together != nil }
  var isJSON: Bool { together != nil }
  var eventLimit: (key: String, bytes: Int)? { http.maxBodyBytes.map { ("websocket.max_body", $0) } }
  var programs: [(key: String, program: String)] { answers.map { ("answer", $0.with) } }

  func publisher(of stream: Configuration.Stream, in context: SectionContext) -> AnyPublisher<EventBatch, Never> {
    let configuration = configuration(of: stream)
    guard let together, let union = context.union else {
      return Source(WebSocketSource(configuration), in: context.source).eraseToAnyPublisher()
    }
    let (value, others) = together.value(in: union)
    var connection = configuration
    connection.variables = others
    let definition = WebSocketUnion.Definition(
      connection, most: together.most, pace: pace, expectEvery: stream.expectEvery,
      subscribe: subscribe.flatMap { try? together.text($0, hasList: false) },
      unsubscribe: unsubscribe.flatMap { try? together.text($0, hasList: false) },
      programs: together.programs(in: union))
    let name = together.unionName(in: union)
    let upstream = union.all.union("\(Self.name) \(name)") { WebSocketUnion(definition, in: union.context(name)) }
    upstream.change(to: definition)
    return Source(UnionValue(value, of: upstream), in: context.source).eraseToAnyPublisher()
  }

  private func configuration(of stream: Configuration.Stream) -> WebSocketConfiguration {
    var configuration = WebSocketConfiguration(http.request(of: stream))
    configuration.messages = messages.map { WebSocketMessage($0.text.content, after: $0.after) }
    configuration.answers = answers.map { WebSocketAnswer(to: $0.to, with: $0.with) }
    (configuration.ignored, configuration.subprotocols) = (Set(ignored), subprotocols)
    configuration.variables = stream.variables
    configuration.decode = decode
    configuration.heartbeat = heartbeat.map { ($0.text.content, $0.every) }
    let texts = messages.map(\.text) + (heartbeat.map { [$0.text] } ?? [])
    configuration.messagesArePublic = texts.allSatisfy { if case .plain = $0 { true } else { false } }
    (configuration.pingEvery, configuration.idleTimeout) = (pingEvery, idleTimeout)
    return configuration
  }
}

extension Configuration.WebSocket {
  /// What is said for the values of `together`.
  private func checkTogether(_ table: ConfigurationTable) {
    guard let together else {
      if table.holds("together") { for key in ["subscribe", "unsubscribe", "pace"] { _ = table.holds(key) } }
      if !table.holds("together") {
        table.refuse(["subscribe", "unsubscribe", "pace"], onlyWith: "together", lacking: ["together"])
      }
      return
    }
    if together.list != nil {
      table.addError("expected no as in websocket.together: subscribe has the values", at: "together")
    }
    let texts = [("subscribe", subscribe), ("unsubscribe", unsubscribe)].compactMap { key, text in
      text.flatMap { text in table.unionText(text, together, hasList: false, at: key).map { (key: key, text: $0) } }
    }
    for (key, text) in texts where text.extent == .none {
      table.addError(
        "expected {\(together.parameter)*} in a string in an array, or {\(together.parameter)}, got none", at: key)
    }
    for (key, other) in [("subscribe", "unsubscribe"), ("unsubscribe", "subscribe")] where table.holds(key) {
      if !table.holds(other) { table.addError("expected \(other) with \(key), got none", at: key) }
    }
    if texts.count == 2, texts[0].text.extent != texts[1].text.extent {
      table.addError("expected a star in both or in none of subscribe and unsubscribe", at: "unsubscribe")
    }
    for (key, text) in [("url", http.url)] + messages.map({ ("send", $0.text.plainText) }) {
      guard let text = try? together.text(text, hasList: false), text.extent != .none else { continue }
      table.addError("expected {\(together.parameter)} in subscribe: all streams have the connection together", at: key)
    }
  }
}

extension Configuration.NamedValue.Value {
  /// Empty for a secret.
  fileprivate var plainText: String { if case .plain(let text) = self { text } else { "" } }
}
