import StreamProtocol
import StreamRuntime

import func HTTP.sha256

extension Configuration.Stream {
  /// Identifies the settings that determine the stream's events: its source and its pipeline. The hosts of a fleet
  /// compare this digest. A host with another one cannot lead the stream.
  ///
  /// The first 8 bytes of a SHA-256 digest, which is the same on all hosts and in all versions. A key of the
  /// configuration that is added later must therefore be left out while it has its default. The digest covers:
  ///
  /// - the source's kind; a timer's interval; a program's command, environment, interval, form of events and size limit;
  ///   the bases and the filter of a derived stream; the address, name, filter, token and size limit of a stream of another
  ///   streamd;
  /// - the URL of an HTTP source, its interval or format, form of events, headers, parameters, authorization, Unix
  ///   socket, size limit, User-Agent and redirects; the same of a WebSocket, what is sent, and the subprotocols;
  /// - a socket's address, what is sent, split and size limit; a serial port's device;
  /// - validate, jq, distinct, key, tombstone and throttle.
  ///
  /// The digest covers the name of a secret's credential but not the secret itself, which could be guessed from a
  /// digest. Nor does it cover what may differ between hosts that fetch the same: the stream's name (records have it);
  /// how events are described, stored, replayed and protected; when the source is active, its timeouts and pauses after
  /// failures, and the leeway of a timer; how an upstream is reached: proxy, authorities and client certificate.
  var definitionDigest: UInt64 {
    let text = definition.flatMap { [$0.key, $0.value] }.map { "\($0.utf8.count) \($0)" }.joined()
    return sha256(Array(text.utf8)).prefix(8).reduce(0) { $0 << 8 | UInt64($1) }
  }

  private typealias Field = (key: String, value: String)

  /// The keys and values that the digest covers, in a fixed order, without keys that have their default.
  private var definition: [Field] {
    var fields: [Field] = []
    switch source {
    case .timer(let timer): fields.append(("timer.every", timer.every.definition))
    case .http(let http): fields += Self.definition(of: http)
    case .webSocket(let socket): fields += Self.definition(of: socket)
    case .socket(let socket): fields += Self.definition(of: socket)
    case .serial(let serial):
      fields.append(("serial.device", serial.settings.device))
      if let end = serial.end { fields.append(("serial.end", end)) }
    case .exec(let exec):
      fields += exec.command.map { ("exec.command", $0) }
      fields += Self.definition(of: exec.environment, "exec.environment")
      if let bytes = exec.maxLineBytes, bytes != 1 << 20 { fields.append(("exec.max_line", "\(bytes)")) }
      if let end = exec.end { fields.append(("exec.end", end)) }
      if let every = exec.every {
        fields.append(("exec.every", every.definition))
        if exec.hasLines { fields.append(("exec.stream", "lines")) }
      }
      if let bytes = exec.maxBodyBytes, bytes != 8 << 20 { fields.append(("exec.max_body", "\(bytes)")) }
    case .journal(let journal): fields += Self.definition(of: journal)
    case .peer(let peer): fields += Self.definition(of: peer)
    case .streams(let derived):
      fields += derived.bases.map { ("of", $0) }
      if let filter = derived.filter { fields.append(("where", String(decoding: filter.json, as: UTF8.self))) }
    case .publish: fields.append(("publish", "true"))
    }
    if let jq { fields.append(("jq", jq)) }
    switch distinct {
    case .no: break
    case .whole: fields.append(("distinct", "true"))
    case .by(let key): fields.append(("distinct", "by \(key)"))
    }
    if let key {
      fields.append(("key", key.key))
      if let tombstone = key.tombstone { fields.append(("tombstone", tombstone)) }
    }
    if let throttle { fields.append(("throttle", throttle.definition)) }
    if validate != .no { fields.append(("validate", validate.rawValue)) }
    return fields
  }

  private static func definition(of http: Configuration.HTTP) -> [Field] {
    var fields: [Field] = [("http.url", http.url)]
    switch http.fetching {
    case .poll(let every): fields.append(("http.every", every.definition))
    case .stream(let format, _): fields.append(("http.stream", format.rawValue))
    }
    if let end = http.end { fields.append(("http.end", end)) }
    if http.eventForm != .data { fields.append(("http.sse", http.eventForm.rawValue)) }
    return fields + requestDefinition(of: http)
  }

  private static func definition(of socket: Configuration.WebSocket) -> [Field] {
    var fields: [Field] = [("websocket.url", socket.http.url)]
    for message in socket.messages {
      fields += definition(of: message.text, "websocket.send")
      if let after = message.after { fields.append(("after", after)) }
    }
    fields += socket.answers.flatMap { [("websocket.answer.to", $0.to), ("websocket.answer.with", $0.with)] }
    fields += socket.ignored.map { ("websocket.ignore", $0) }
    fields += socket.subprotocols.map { ("websocket.subprotocols", $0) }
    if let heartbeat = socket.heartbeat {
      fields += definition(of: heartbeat.text, "websocket.heartbeat.send")
      fields.append(("websocket.heartbeat.every", heartbeat.every.definition))
    }
    return fields + requestDefinition(of: socket.http)
  }

  private static func definition(of socket: Configuration.Socket) -> [Field] {
    var fields: [Field] = [("socket.address", socket.address.text)]
    fields += socket.messages.flatMap { definition(of: $0, "socket.send") }
    if let end = socket.end { fields.append(("socket.end", end)) }
    if let split = socket.split { fields.append(("socket.split", split.rawValue)) }
    if let bytes = socket.maxBodyBytes, bytes != 1 << 20 { fields.append(("socket.max_body", "\(bytes)")) }
    return fields
  }

  private static func definition(of peer: Configuration.Peer) -> [Field] {
    var fields: [Field] = [("streamd.address", "\(peer.address)")]
    if let stream = peer.stream { fields.append(("streamd.stream", stream)) }
    if let filter = peer.filter { fields.append(("streamd.where", String(decoding: filter.json, as: UTF8.self))) }
    if let token = peer.token { fields.append(("streamd.token", token.name)) }
    if let bytes = peer.maxEventBytes, bytes != 8 << 20 { fields.append(("streamd.max_body", "\(bytes)")) }
    return fields
  }

  private static func definition(of journal: Configuration.JournalEntries) -> [Field] {
    var fields = journal.matches.map { ("journal.match", $0) }
    if let directory = journal.directory { fields.append(("journal.directory", directory)) }
    if let bytes = journal.maxBodyBytes, bytes != 8 << 20 { fields.append(("journal.max_body", "\(bytes)")) }
    return [("journal", "true")] + fields
  }

  private static func requestDefinition(of http: Configuration.HTTP) -> [Field] {
    var fields: [Field] = []
    if let bytes = http.maxBodyBytes, bytes != 8 << 20 { fields.append(("http.max_body", "\(bytes)")) }
    fields += definition(of: http.headers, "http.headers")
    fields += definition(of: http.query, "http.query")
    switch http.authorization {
    case .bearer(let token): fields.append(("http.bearer", token.name))
    case .basic(let login):
      fields += [("http.basic.user", login.user), ("http.basic.password", login.password.name)]
    case nil: break
    }
    if let socket = http.unixSocket { fields.append(("http.unix_socket", socket)) }
    if let agent = http.settings.userAgent { fields.append(("http.user_agent", agent)) }
    if http.settings.redirects != .sameOrigin { fields.append(("http.redirects", http.settings.redirects.rawValue)) }
    return fields
  }

  /// Named values in the order of their names. Their order in the file depends on how a table is written.
  private static func definition(of values: [Configuration.NamedValue], _ key: String) -> [Field] {
    values.sorted { $0.name.utf8.lexicographicallyPrecedes($1.name.utf8) }.flatMap {
      [(key, $0.name)] + definition(of: $0.value, "value")
    }
  }

  private static func definition(of value: Configuration.NamedValue.Value, _ key: String) -> [Field] {
    switch value {
    case .plain(let text): [(key, text)]
    case .secret(let secret): [("credential", secret.name)]
    }
  }
}

extension Duration {
  /// The duration in milliseconds. The durations of the file have no fraction of them.
  fileprivate var definition: String { "\(wholeMilliseconds)" }
}
