extension ConfigurationReader {
  /// Reads `[streams.NAME]`.
  ///
  /// - Returns: `nil`, after recording an error, without a source.
  func stream(named name: String, _ table: ConfigurationTable) -> Configuration.Stream? {
    table.hintForTable = { "write a stream named \(name).\($0) as [streams.\"\(name).\($0)\"]" }
    let share = table.value("share", .choice, default: Configuration.Share.host)
    let lead = table.value("lead", .flag, default: true)
    var reader = self
    // A host that never fetches the stream needs none of its secrets and programs.
    if share == .fleet && !lead { (reader.readsSecrets, reader.checksPrograms) = (false, false) }
    let source = reader.source(table)
    // Without a source any other one, so that the other keys are still checked.
    var stream = Configuration.Stream(name: name, source: source ?? .timer(.init(every: .seconds(1))))
    (stream.share, stream.lead) = (share, lead)
    stream.description = table.value(
      "description", .text("a text of at most 1024 bytes") { $0.utf8.count <= 1024 }, default: stream.description)
    stream.type = table.value("type", .mediaType, default: stream.type)
    pipeline(table, into: &stream)
    keys(table, into: &stream)
    let errorsBefore = collector.errors.count
    stream.buffer = table.table("buffer", buffer) ?? stream.buffer
    if collector.errors.count == errorsBefore, let (key, bytes) = stream.sizeOverBuffer {
      table.addError(
        "expected \(key) of at most buffer.bytes, which is \(stream.buffer.bytes) bytes, got \(bytes) bytes: "
          + "larger events are dropped", at: key.hasPrefix("http") ? "http" : "exec")
    }
    stream.replay = table.value("replay", .count(0...Self.mostEvents), default: stream.replay)
    // Compared only when both are valid: a default in place of an error would cause a second error.
    if collector.errors.count == errorsBefore && stream.replay > stream.buffer.events {
      table.expected("at most buffer.events, which is \(stream.buffer.events)", at: "replay")
    }
    stream.start = table.value("start", .choice, default: stream.start)
    stream.linger = table.value("linger", .duration(from: .zero), default: stream.linger)
    stream.onLag = table.value("on_lag", .choice, default: stream.onLag)
    stream.overflow = table.value("overflow", .choice, default: stream.overflow)
    stream.blockTimeout = table.value("block_timeout", .durationOrNever, default: stream.blockTimeout)
    stream.blockPace = table.value("block_pace", .duration(), default: stream.blockPace)
    for key in ["block_timeout", "block_pace"] where stream.overflow != .block && table.holds(key) {
      table.addError("expected \(key) only with overflow = \"block\"", at: key, lacking: ["overflow"])
    }
    stream.expectEvery = table.value("expect_every", .duration())
    stream.retry = table.table("retry", retry) ?? stream.retry
    stream.keep = table.value("keep", .choice, default: stream.keep)
    stream.read = table.values("read", .accessRule) ?? stream.read
    if let networkAddress, !table.holds("read") {
      table.addError(
        "expected read, such as read = [\"*\"] for all, as server.listen has \"\(networkAddress)\", which other machines "
          + "reach", lacking: ["read"])
    }
    stream.write = table.values("write", .accessRule)
    if table.holds("publish") {
      for key in ["start", "linger", "retry"] where table.holds(key) {
        table.addError("expected no \(key) with publish: clients may publish at any time", at: key)
      }
    } else if table.holds("write") {
      table.addError(
        "expected write only with publish: no other source accepts values from clients", at: "write",
        lacking: ["publish"])
    }
    checkSharing(stream, table)
    return source == nil ? nil : stream
  }

  /// The highest number of events in a buffer, 2^24; more is assumed to be a typing error.
  private static let mostEvents = 1 << 24

  private func source(_ table: ConfigurationTable) -> Configuration.Source? {
    let present = ["timer", "http", "exec", "publish"].filter { table.holds($0) }
    let timer = table.table("timer", timer)
    let http = table.table("http", http)
    let exec = table.table("exec", exec)
    let publish = publish(table)
    switch present.count {
    case 0:
      table.addError(
        "expected one source (timer, http, exec or publish), got none", lacking: ["timer", "http", "exec", "publish"])
    case 1: break
    default: table.addError("expected one source, got \(present.joined(separator: " and "))")
    }
    return timer.map(Configuration.Source.timer) ?? http.map(Configuration.Source.http)
      ?? exec.map(Configuration.Source.exec) ?? publish
  }

  /// `true`, or a table without keys.
  private func publish(_ table: ConfigurationTable) -> Configuration.Source? {
    guard table.holds("publish") else { return nil }
    if let isMeant = table.flag("publish") {
      if !isMeant {
        table.addError("expected true or {}; omit publish if clients do not publish", at: "publish")
      }
      return isMeant ? .publish : nil
    }
    return table.table("publish", expecting: "true or {}") { _ in Configuration.Source.publish }
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

  /// The interval, which the source requires.
  private func every(_ table: ConfigurationTable) -> Duration? {
    if !table.holds("every") {
      table.addError("expected every, such as every = \"30s\", got none", lacking: ["every"])
    }
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
    let errorsBefore = collector.errors.count
    let retry = Configuration.Retry(
      first: table.value("first", .duration(), default: standard.first),
      max: table.value("max", .duration(), default: standard.max))
    if collector.errors.count == errorsBefore && retry.first > retry.max {
      if table.holds("first") {
        table.expected("at most max" + (table.holds("max") ? "" : ", which is 5m"), at: "first")
      } else {
        table.expected("at least first, which is 1s", at: "max")
      }
    }
    return retry
  }
}
