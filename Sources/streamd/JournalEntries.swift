import StreamServer
import StreamSources
import Systemd

extension Journal.Entry {
  /// The journal entry of a server's report.
  init(_ report: ServerReport) {
    switch report {
    case .clientRefused(let client, let stream, let reason):
      self.init(.clientRefused, .notice, "client refused: \(reason)", client.fields(stream: stream))
    case .clientDropped(let client, let reason):
      self.init(.clientCutOff, .notice, "client disconnected: \(reason)", client.fields(stream: nil))
    case .clientLagged(let client, let stream, let lost):
      self.init(
        .clientLagged, .notice, "client lagged: \(counted(Int(clamping: lost), "event")) lost",
        client.fields(stream: stream))
    case .clientHoldsUp(let client, let stream, let unread):
      self.init(
        .streamHeldUp, .warning, "source stalled by \(client), \(counted(Int(clamping: unread), "event")) behind",
        client.fields(stream: stream))
    case .clientCutOff(let client, let stream, let unread):
      self.init(
        .clientCutOff, .notice,
        "subscription ended: it stalled the source for block_timeout, \(counted(Int(clamping: unread), "event")) behind",
        client.fields(stream: stream))
    case .valuesDropped(let client, let stream, let count):
      self.init(
        .limitReached, .warning,
        "\(counted(count, "value")) of a client dropped: the stream waits for its subscribers",
        client.fields(stream: stream))
    case .acceptingPaused(let error):
      self.init(.limitReached, .warning, "not accepting clients for 1 s: \(error)")
    case .connectionLimitReached(let limit):
      self.init(.limitReached, .warning, "connection refused: max_connections is \(limit)")
    case .userConnectionLimitReached(let client, let count, let left):
      let reason =
        left.map { "\(count) connections, and \($0) of max_connections left" }
        ?? "max_connections_per_user, \(count), already"
      self.init(
        .limitReached, .warning, "connection refused: \(client.user) has \(reason)", client.fields(stream: nil))
    case .clientActs(let client, let stream, let what):
      self.init(.clientActs, .debug, "client \(what)", client.fields(stream: stream))
    case .streamStale(let stream, let limit):
      self.init(
        .streamStale, .warning, "stream stale: nothing has come for longer than expect_every, \(limit.inUnits)",
        [.stream(stream)])
    case .streamNotStale(let stream, let isIdle):
      self.init(
        .streamNotStale, .info, "stream no longer stale" + (isIdle ? ": nothing is expected of it now" : ""),
        [.stream(stream)])
    case .stateIncomplete(let stream, let lack):
      self.init(.stateIncomplete, .warning, "\(lack.sentence); it is refused", [.stream(stream)])
    case .stateComplete(let stream):
      self.init(.stateComplete, .info, "the state is complete again", [.stream(stream)])
    case .eventsTooLarge(let stream, let count, let limit):
      self.init(
        .limitReached, .warning,
        "\(counted(count, "event")) dropped: larger than the stream's limit, \(limit) bytes",
        [.stream(stream)])
    }
  }

  /// The journal entry of an event on which a program of its stream failed.
  init(valueError reason: String, of stream: String) {
    self.init(.eventFailed, .warning, "event failed: \(reason)", [.stream(stream)])
  }

  /// The journal entry of a source's report.
  init(_ report: SourceReport, of stream: String) {
    switch report {
    case .failing(let reason, let attempt, let retry):
      let time = retry > .zero ? "in \(retry.inSeconds)" : "at once"
      self.init(
        .sourceFailing, .warning,
        "source failing: \(reason); failure \(attempt) in a row, next try \(time)", [.stream(stream)])
    case .waiting(let reason):
      self.init(.sourceWaiting, .notice, "source waits: \(reason)", [.stream(stream)])
    case .recovered(afterFailures: 0):
      self.init(.sourceWaiting, .info, "source resumed", [.stream(stream)])
    case .recovered(let failures):
      self.init(.sourceRecovered, .info, "source recovered after \(counted(failures, "failure"))", [.stream(stream)])
    case .limited(let what): self.init(.limitReached, .warning, "source limited: \(what)", [.stream(stream)])
    case .said(let line):
      self.init(.programSaid, .info, "program wrote: \(line)", [.stream(stream)])
    }
  }
}

extension ClientIdentity {
  fileprivate func fields(stream: String?) -> [Journal.Field] {
    var fields: [Journal.Field] = [.client(number)]
    if let stream { fields.append(.stream(stream)) }
    if let credentials { fields.append(.uid(credentials.user)) }
    return fields
  }
}
