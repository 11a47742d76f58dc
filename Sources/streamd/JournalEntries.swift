import StreamServer
import Systemd

extension Journal.Entry {
  /// The journal entry of a server's report.
  init(_ report: ServerReport) {
    switch report {
    case .clientRefused(let client, let stream, let reason):
      self.init(.clientRefused, .notice, "refused: \(reason)", client.fields(stream: stream))
    case .clientDropped(let client, let reason):
      self.init(.clientCutOff, .notice, "disconnected: \(reason)", client.fields(stream: nil))
    case .clientLagged(let client, let stream, let lost):
      self.init(
        .clientLagged, .notice, "lagged: \(counted(Int(clamping: lost), "event")) lost",
        client.fields(stream: stream))
    case .clientHoldsUp(let client, let stream, let unread):
      self.init(
        .streamHeldUp, .warning, "stalls the source, \(counted(Int(clamping: unread), "event")) behind",
        client.fields(stream: stream))
    case .clientCutOff(let client, let stream, let unread):
      self.init(
        .clientCutOff, .notice,
        "subscription ended: it stalled the source for block_timeout, \(counted(Int(clamping: unread), "event")) behind",
        client.fields(stream: stream))
    case .valuesDropped(let client, let stream, let count):
      self.init(
        .limitReached, .warning,
        "\(counted(count, "value")) dropped: the stream waits for its subscribers",
        client.fields(stream: stream))
    case .acceptingPaused(let error):
      self.init(.limitReached, .warning, "not accepting clients for 1 s: \(error)")
    case .connectionLimitReached(let client, let limit): self.init(refused: client, "max_connections is \(limit)")
    case .hostConnectionLimitReached(let client, let count, let left):
      self.init(refused: client, "clients without credentials have \(count) connections, with \(left) left")
    case .userConnectionLimitReached(let client, let count, let left):
      let reason =
        left.map { "\(count) connections, and \($0) of max_connections left" }
        ?? "max_connections_per_user, \(count), already"
      self.init(refused: client, "\(client.user) has \(reason)")
    case .clientActs(let client, let stream, let what):
      self.init(.clientActs, .debug, what, client.fields(stream: stream))
    case .template(let name, let report): self.init(report, of: name)
    case .streamStale(let stream, let limit):
      self.init(
        .streamStale, .warning, "stale: nothing has come for longer than expect_every, \(limit.inUnits)",
        [.stream(stream)])
    case .streamNotStale(let stream, let isIdle):
      self.init(
        .streamNotStale, .info, "no longer stale" + (isIdle ? ": its source is not asked for events now" : ""),
        [.stream(stream)])
    case .stateIncomplete(let stream, let lack):
      self.init(.stateIncomplete, .warning, "\(lack.sentence); it is refused", [.stream(stream)])
    case .stateComplete(let stream):
      self.init(.stateComplete, .info, "the state is complete again", [.stream(stream)])
    case .mapFailed(let stream, let error):
      self.init(.limitReached, .error, "the stream is not mapped at present: \(error)", [.stream(stream)])
    case .waitingEventsLost(let stream, let count):
      self.init(.limitReached, .warning, "\(counted(count, "event")) lost that waited for space", [.stream(stream)])
    case .eventsTooLarge(let stream, let count, let limit):
      self.init(
        .limitReached, .warning,
        "\(counted(count, "event")) dropped: larger than the stream's limit, \(limit) bytes",
        [.stream(stream)])
    }
  }
}

extension Journal.Entry {
  private init(_ report: TemplateReport, of template: String) {
    switch report {
    case .made(let stream): self.init(.clientActs, .debug, "made", [.stream(stream), .template(template)])
    case .forgotten(let stream): self.init(.clientActs, .debug, "forgotten", [.stream(stream), .template(template)])
    case .full(let reason): self.init(.limitReached, .warning, "no stream made: \(reason)", [.template(template)])
    }
  }

  private init(refused client: ClientIdentity, _ reason: String) {
    self.init(.limitReached, .warning, "connection refused: \(reason)", client.fields(stream: nil))
  }
}

extension ClientIdentity {
  fileprivate func fields(stream: String?) -> [Journal.Field] {
    var fields: [Journal.Field] = [.client(number)]
    if let stream { fields.append(.stream(stream)) }
    if let credentials { fields.append(.uid(credentials.user)) }
    if let token { fields.append(.token(token.name)) }
    return fields
  }
}
