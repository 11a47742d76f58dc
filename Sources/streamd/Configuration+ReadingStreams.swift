extension ConfigurationReader {
  /// Reads `[streams.NAME]`.
  ///
  /// - Returns: `nil` without a source to run; that is told.
  func stream(named name: String, _ table: ConfigurationTable) -> Configuration.Stream? {
    table.hintForTable = { "a stream of the name \(name).\($0) is written [streams.\"\(name).\($0)\"]" }
    let source = source(table)
    refuseWhatIsNotBuiltYet(table)
    // Any source, when there is none: the other keys are still to be checked.
    var stream = Configuration.Stream(name: name, source: source ?? .timer(.init(every: .seconds(1))))
    stream.description = table.value(
      "description", .text("a text of at most 1024 bytes") { $0.utf8.count <= 1024 }, default: stream.description)
    stream.type = table.value("type", .mediaType, default: stream.type)
    pipeline(table, into: &stream)
    let mistakesBefore = collector.mistakes.count
    stream.buffer = table.table("buffer", buffer) ?? stream.buffer
    stream.replay = table.value("replay", .count(0...Self.mostEvents), default: stream.replay)
    // Compared only when both are as written: a default in place of a mistake would make a second one of it.
    if collector.mistakes.count == mistakesBefore && stream.replay > stream.buffer.events {
      table.expected("at most buffer.events, which is \(stream.buffer.events)", at: "replay")
    }
    stream.start = table.value("start", .choice, default: stream.start)
    stream.linger = table.value("linger", .duration(from: .zero), default: stream.linger)
    stream.onLag = table.value("on_lag", .choice, default: stream.onLag)
    stream.overflow = table.value("overflow", .choice, default: stream.overflow)
    stream.blockTimeout = table.value("block_timeout", .duration())
    if stream.overflow != .block, table.holds("block_timeout") {
      table.mistake("expected block_timeout only beside overflow = \"block\"", at: "block_timeout")
    }
    stream.retry = table.table("retry", retry) ?? stream.retry
    stream.read = table.values("read", .accessRule) ?? stream.read
    stream.write = table.values("write", .accessRule)
    if table.holds("publish") {
      for key in ["start", "linger", "retry"] where table.holds(key) {
        table.mistake("expected no \(key) beside publish: clients may publish at any time", at: key)
      }
    } else if table.holds("write") {
      table.mistake("expected write only beside publish: no other source takes values from clients", at: "write")
    }
    return source == nil ? nil : stream
  }

  /// The highest number of events in a buffer, 2^24; more is taken for a slip of the pen.
  private static let mostEvents = 1 << 24

  private func source(_ table: ConfigurationTable) -> Configuration.Source? {
    let present = ["timer", "http", "exec", "publish"].filter { table.holds($0) }
    let timer = table.table("timer", timer)
    let http = table.table("http", http)
    let exec = table.table("exec", exec)
    let publish = publish(table)
    switch present.count {
    case 0: table.mistake("expected one source (timer, http, exec or publish), got none")
    case 1: break
    default: table.mistake("expected one source, got \(present.joined(separator: " and "))")
    }
    return timer.map(Configuration.Source.timer) ?? http.map(Configuration.Source.http)
      ?? exec.map(Configuration.Source.exec) ?? publish
  }

  /// `true`, or a table, which has no keys.
  private func publish(_ table: ConfigurationTable) -> Configuration.Source? {
    guard table.holds("publish") else { return nil }
    if let isMeant = table.flag("publish") {
      if !isMeant {
        table.mistake("expected true or {}; leave publish out where clients do not publish", at: "publish")
      }
      return isMeant ? .publish : nil
    }
    return table.table("publish", expecting: "true or {}") { _ in Configuration.Source.publish }
  }

  private func refuseWhatIsNotBuiltYet(_ table: ConfigurationTable) {
    if let keep = table.value("keep", ConfigurationShape<Keep>.choice), keep != .no {
      table.mistake("not built yet: \"\(keep)\", events that outlive the daemon; use \"no\"", at: "keep")
    }
  }

  private enum Keep: String, CaseIterable {
    case no, memory, disk
  }

  private func timer(_ table: ConfigurationTable) -> Configuration.Timer? {
    let every = every(table)
    let timer = Configuration.Timer(
      every: every ?? .seconds(1),
      leeway: table.value("leeway", .duration(from: .zero), default: .zero),
      times: table.value("times", .count(1...Int.max)))
    if let every, timer.leeway >= every { table.expected("less than every", at: "leeway") }
    return every == nil ? nil : timer
  }

  /// The interval that a source cannot do without.
  private func every(_ table: ConfigurationTable) -> Duration? {
    if !table.holds("every") { table.mistake("expected every, such as every = \"30s\", got none") }
    return table.value("every", .duration())
  }

  private func buffer(_ table: ConfigurationTable) -> Configuration.Buffer {
    let standard = Configuration.Buffer()
    return Configuration.Buffer(
      events: table.value("events", .count(1...Self.mostEvents), default: standard.events),
      bytes: table.value("bytes", .size(4096...64 << 30), default: standard.bytes),
      age: table.value("age", .duration()))
  }

  private func retry(_ table: ConfigurationTable) -> Configuration.Retry {
    let standard = Configuration.Retry()
    let mistakesBefore = collector.mistakes.count
    let retry = Configuration.Retry(
      first: table.value("first", .duration(), default: standard.first),
      max: table.value("max", .duration(), default: standard.max))
    if collector.mistakes.count == mistakesBefore && retry.first > retry.max {
      if table.holds("first") {
        table.expected("at most max" + (table.holds("max") ? "" : ", which is 5m"), at: "first")
      } else {
        table.expected("at least first, which is 1s", at: "max")
      }
    }
    return retry
  }
}

// MARK: - HTTP

extension ConfigurationReader {
  private func http(_ table: ConfigurationTable) -> Configuration.HTTP? {
    let url = url(table)
    for key in ["proxy", "ca_file", "client_certificate", "client_key", "user_agent"] {
      table.refuse(key, notBuiltYet: "the manners of a transfer")
    }
    let fetching = fetching(table)
    var http = Configuration.HTTP(url: url ?? "", fetching: fetching ?? .poll(every: .seconds(1)))
    http.timeout = table.value("timeout", .duration(), default: http.timeout)
    http.maxBodyBytes = table.value("max_body", .size(1...1 << 30), default: http.maxBodyBytes)
    http.headers = table.table("headers", headers) ?? []
    http.bearer = table.table("bearer", expecting: "{ credential = \"name\" }", secret)
    http.unixSocket = table.value("unix_socket", .socketPath)
    if table.holds("bearer"), let header = http.headers.first(where: { $0.name.lowercased() == "authorization" }) {
      table.mistake("expected bearer or the header \(header.name), got both", at: "bearer")
    }
    return url == nil || fetching == nil ? nil : http
  }

  /// `every`, or `stream` with what belongs to it.
  private func fetching(_ table: ConfigurationTable) -> Configuration.HTTP.Fetching? {
    let format: Configuration.HTTP.Format? = table.value("stream", .choice)
    let idleTimeout = table.value("idle_timeout", .duration())
    guard table.holds("stream") else {
      if table.holds("idle_timeout") { table.mistake("expected idle_timeout only beside stream", at: "idle_timeout") }
      if !table.holds("every") { table.mistake("expected every, such as every = \"30s\", or stream, got neither") }
      return table.value("every", .duration()).map { .poll(every: $0) }
    }
    if table.holds("every") {
      table.mistake("expected every or stream, got both")
      _ = table.value("every", .duration())
    }
    return format.map { .stream($0, idleTimeout: idleTimeout) }
  }

  private func url(_ table: ConfigurationTable) -> String? {
    if !table.holds("url") { table.mistake("expected url, such as url = \"https://example.org/\", got none") }
    guard let text = table.value("url", .text("a URL such as \"https://example.org/\"") { _ in true }) else {
      return nil
    }
    do {
      try UpstreamURL.check(text)
      return text
    } catch {
      switch error {
      case .holdsCredentials:
        table.mistake("expected a URL without a user or password; use bearer or headers with a credential", at: "url")
      case .noURL:
        // It may still hold a password.
        table.expected("a URL such as \"https://example.org/\"", at: "url", secret: text.contains("@"))
      }
    }
    return nil
  }

  private func headers(_ table: ConfigurationTable) -> [Configuration.Header] {
    table.keys.compactMap { name in
      if !isToken(name) { table.mistake("expected the name of a header", at: name) }
      return header(name, table).map { Configuration.Header(name: name, value: $0) }
    }
  }

  private func header(_ name: String, _ table: ConfigurationTable) -> Configuration.Header.Value? {
    guard let text = table.text(name) else {
      return table.table(name, expecting: "a string or { credential = \"name\" }", secret).map { .secret($0) }
    }
    guard text.utf8.count <= 8192, !text.hasControlCharacters else {
      table.expected("at most 8192 bytes without control characters", at: name, secret: true)
      return nil
    }
    return .plain(text)
  }

  /// A token as RFC 9110 (5.6.2) defines it.
  private func isToken(_ text: String) -> Bool {
    !text.isEmpty && text.utf8.count <= 256
      && text.unicodeScalars.allSatisfy {
        $0.isASCII && ($0.properties.isAlphabetic || "0123456789!#$%&'*+-.^_`|~".unicodeScalars.contains($0))
      }
  }

  func secret(_ table: ConfigurationTable) -> Secret? {
    if !table.holds("credential") { table.mistake("expected { credential = \"name\" }, got no credential") }
    let name = table.value("credential", .text("the name of a credential", where: CredentialFolder.isName))
    guard let name else { return nil }
    do {
      return try credentials.secret(named: name)
    } catch {
      table.mistake("the credential \"\(name)\" cannot be read: \(error.reason)", at: "credential")
      return nil
    }
  }
}
