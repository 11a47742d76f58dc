extension Configuration {
  /// A source that receives the messages of a WebSocket.
  struct WebSocket: Sendable, Equatable {
    /// The request that opens it, with a URL of scheme `ws` or `wss`. Only its request's keys are read.
    var http = HTTP()
    /// Texts that are sent after each opening, in order; each of at most 64 KiB, and not empty.
    var messages: [NamedValue.Value] = []
    /// Tokens, each one once.
    var subprotocols: [String] = []
    var heartbeat: Heartbeat?
    /// 1 s to 365 days.
    var pingEvery = Duration.seconds(30)
    /// `nil`: no limit.
    var idleTimeout: Duration?

    /// A text of the application that is sent regularly.
    struct Heartbeat: Sendable, Equatable {
      var text: NamedValue.Value
      /// 1 s to 365 days.
      var every: Duration
    }
  }
}

extension Configuration.WebSocket: ConfigurationSection {
  static let keys: [ConfigurationKey<Self>] = [
    .init(["url"], \.http.url) { table, url in
      let text = Configuration.HTTP.readURL(
        table, schemes: ["ws://", "wss://"], suchAs: "wss://stream.example.org/")
      url = table.complete(text) ?? url
    },
    .init(["send"], \.messages) { $1 = $0.messages() ?? $1 },
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
    .init("ping_every", \.pingEvery, .duration(from: .seconds(1))),
    .init("idle_timeout", \.idleTimeout, .duration()),
    .part(\.http, Configuration.HTTP.requestKeys),
    .check { $1.checkHeaders($0) },
  ]

  private static func readHeartbeat(_ table: ConfigurationTable) -> Heartbeat? {
    for key in ["send", "every"] { table.require(key) }
    let text = table.secretText("send", .message, allowsLines: true)
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
