// Converts the configuration's values to those of the other modules. Each module has its own types, so that no module
// depends on the form of the configuration.

import Dispatch
import Events
import Fleet
import Reactive
import ReplayLog
import StreamServer
import StreamRuntime
import StreamSources

import func HTTP.sha256

extension StreamConfiguration {
  init(_ stream: Configuration.Stream) {
    let start: ShareStart =
      switch stream.start {
      case .subscribed: .whileSubscribed(linger: stream.linger)
      case .first: .fromFirstSubscriber
      case .always: .always
      }
    self.init(
      name: stream.name, description: stream.description, type: stream.type, source: stream.source.kind,
      replay: stream.replay,
      limits: EventLog.Limits(stream),
      start: start, onLag: stream.onLag,
      overflow: stream.overflow == .block ? .block(timeout: stream.blockTimeout, pace: stream.blockPace) : .drop,
      read: AccessRules(stream.read).adding(tokens: stream.readers),
      write: (stream.write.map { AccessRules($0) } ?? .owner).adding(tokens: stream.writers))
    (expectEvery, key) = (stream.expectEvery, stream.key)
    (requiresJSON, isMapped, hasProgram) = (stream.validate == .json, stream.map, stream.jq != nil)
    let isJSON = stream.jq != nil || ["timer", "journal"].contains(stream.source.kind)
    jsonCheck = isJSON ? .none : stream.source == .publish ? .ends : .whole
    if stream.share == .fleet { (eventByteLimit, isOfFleet) = (Configuration.maximumFleetEventBytes, true) }
  }
}

extension ClientToken {
  convenience init(_ token: Configuration.Token) { self.init(name: token.name, secret: token.secret.content) }
}

extension EventLog.Limits {
  init(_ buffer: Configuration.Buffer) {
    self.init(events: buffer.events, bytes: buffer.bytes, age: buffer.age)
  }

  init(_ stream: Configuration.Stream) {
    self.init(stream.buffer)
    guard let key = stream.key else { return }
    state = unsafe KeyedState.Settings(
      keys: stream.maxKeys, bytes: stream.stateBytes, keyDigest: key.digest, key: EventKeyReader(key).map(Self.keys))
  }

  /// A function that reads the key of a stored event.
  private static func keys(
    _ reader: EventKeyReader
  ) -> @Sendable (_ event: UnsafeRawBufferPointer) -> EventKey? {
    let reader = Locked(reader)
    return { event in reader.withLock { $0.key(of: unsafe event.bindMemory(to: UInt8.self).span) } }
  }
}

extension KeyDefinition {
  fileprivate var digest: UInt64 {
    let text = [key, tombstone ?? ""].map { "\($0.utf8.count) \($0)" }.joined()
    return sha256(Array(text.utf8)).prefix(8).reduce(0) { $0 << 8 | UInt64($1) }
  }
}

extension ProgramConfiguration {
  init(_ exec: Configuration.Exec, of stream: Configuration.Stream) {
    let variables = exec.environment.map { ($0.name, $0.value.content) }
    self.init(
      command: exec.command, environment: Dictionary(uniqueKeysWithValues: variables),
      maximumLineBytes: exec.maxLineBytes ?? 1 << 20, retry: Backoff(stream.retry))
    lineEnd = LineEnd(of: exec.end)
  }
}

extension ProgramPoll.Form {
  fileprivate init(_ exec: Configuration.Exec, of stream: Configuration.Stream) {
    self = exec.hasLines ? .lines : .whole(maximumBytes: stream.maxPageBytes(exec.maxBodyBytes))
  }
}

extension JournalConfiguration {
  init(_ journal: Configuration.JournalEntries, of stream: Configuration.Stream) {
    self.init(
      directory: journal.directory, matches: journal.matches, beginning: journal.since,
      maximumEventBytes: stream.maxPageBytes(journal.maxBodyBytes), retry: Backoff(stream.retry))
    // The log stores a batch as a whole, with its position. A program can make many events of each entry.
    batchEvents = stream.jq == nil ? min(batchEvents, max(1, stream.buffer.events / 4)) : 1
    batchBytes = min(batchBytes, stream.buffer.bytes / 4)
  }
}

extension SourceState {
  /// - Returns: nil when the report does not concern the source's state.
  init?(_ report: SourceReport) {
    switch report {
    case .failing(let reason, _, _): self = .failing(reason)
    case .waiting(let reason): self = .waiting(reason)
    case .recovered: self = .healthy
    case .limited, .lost, .complete, .said, .missed, .current: return nil
    }
  }
}

extension RefreshRefusal {
  /// The reason as the client that requested the refresh receives it, after the stream's name.
  var sentence: String {
    switch self {
    case .noDemand: "no subscriber with credit wants an event"
    case .resting(let time): "its server has asked for no request for another \(time.inWords)"
    case .running: "its source runs, and brings events as they come"
    }
  }
}

extension Configuration.Stream {
  /// Text that identifies the pipeline.
  var pipelineText: String {
    let distinctText = if case .by(let key) = distinct { "by \(key)" } else { "\(distinct)" }
    let programs = programKey.map { [$0.key, $0.tombstone ?? ""] } ?? []
    let split = source.splitsTexts ? ["split"] : []
    return ([jq ?? "", distinctText, throttle.map { "\($0)" } ?? ""] + programs + split).map {
      "\($0.utf8.count) \($0)"
    }
    .joined()
  }

  /// The programs that run in the jq process.
  private var transform: JQTransform {
    var transform = JQTransform(program: jq)
    if case .by(let program) = distinct { transform.distinctBy = program }
    (transform.key, transform.keyDigest) = (programKey, programKey?.digest ?? 0)
    return transform
  }

  /// Whether nothing between a source and the stream's log holds an event back.
  var isDirect: Bool { transform == JQTransform() && throttle == nil && share != .fleet }

  /// The form of what the source receives; nil if nothing before the log depends on it. Published values that must be
  /// JSON, and are not, are refused before.
  var receivedForm: ReceivedForm? {
    guard source == .publish else {
      return ReceivedForm(
        isJSON: jq != nil || hasJSONType, splitsTexts: source.splitsTexts, requiresJSON: validate == .json)
    }
    return jq == nil ? nil : ReceivedForm(isJSON: true)
  }

  /// The operators between a source and the stream's log: its form, validate, jq, distinct, throttle.
  ///
  /// - Parameters:
  ///   - checkpoint: returns the checkpoint in the stream's log, or that of the fleet.
  ///   - sinceLast: returns the time since the stream's last event, of all hosts.
  ///   - hold: the event that throttle holds back.
  ///   - report: called on the source thread.
  func pipeline(
    from source: AnyPublisher<EventBatch, Never>, on thread: SourceThread,
    checkpoint: @escaping @Sendable () -> Checkpoint?, sinceLast: @escaping @Sendable () -> Duration?,
    hold: ThrottleHold, report: @escaping @Sendable (PipelineReport) -> Void
  ) -> AnyPublisher<EventBatch, Never> {
    let keepsPosition = keepsPosition
    var events = source
    if let form = receivedForm { events = events.received(as: form, keepsPosition: keepsPosition, report: report) }
    let transform = transform
    // The checkpoint of published values is the marks of their publishers.
    let resumption = self.source == .publish ? nil : SourceResumption(checkpoint: checkpoint)
    if transform != JQTransform() {
      // This path leads to the running executable, even if its file was replaced.
      events = events.jq(
        transform, name: name, executable: "/proc/self/exe", resumption: resumption, keepsPosition: keepsPosition,
        on: thread, report: report)
    }
    if distinct == .whole { events = events.distinct(resumption: resumption, keepsPosition: keepsPosition) }
    if let throttle { events = events.throttle(to: throttle, sinceLast: sinceLast, hold: hold, on: thread) }
    return events
  }
}

extension Configuration.Stream {
  /// Whether the position of events that the pipeline has removed is stored with the next event only. After a restart,
  /// a poll then fetches again a page on which the pipeline failed. A fleet needs no record without an event.
  private var keepsPosition: Bool { share == .fleet || source.fleetKind == .poll }
}

extension Configuration.Source {
  /// Whether each JSON text of what it receives is an event.
  var splitsTexts: Bool {
    switch self {
    case .http(let http): http.split == .json
    case .webSocket(let socket): socket.http.split == .json
    case .socket(let socket): socket.split == .json
    case .exec(let exec): exec.split == .json
    case .timer, .serial, .peer, .journal, .streams, .publish: false
    }
  }

  /// The source's kind in `$streams`.
  var kind: String {
    switch self {
    case .timer: "timer"
    case .http: "http"
    case .webSocket: "websocket"
    case .socket: "socket"
    case .serial: "serial"
    case .exec: "exec"
    case .peer: "streamd"
    case .journal: "journal"
    case .streams: "of"
    case .publish: "publish"
    }
  }

  /// Whether the source asks an upstream for its events: a server, a device or a program.
  var hasUpstream: Bool {
    switch self {
    case .http, .webSocket, .socket, .serial, .exec, .journal, .peer: true
    case .timer, .streams, .publish: false
    }
  }

  /// The kind of the source for a fleet.
  var fleetKind: FleetMachine.Stream.Kind {
    switch self {
    case .http(let http): if case .poll = http.fetching { .poll } else { .continuous }
    case .exec(let exec): exec.hasLines ? .continuous : .poll
    case .webSocket, .socket, .serial, .timer, .journal, .peer, .streams: .continuous
    case .publish: .publish
    }
  }

  /// The publisher at the start of the stream's pipeline.
  ///
  /// - Parameters:
  ///   - publishSource: the source of a stream to which clients publish.
  ///   - place: the place of a source program.
  ///   - checkpoint: returns the resumption state in the stream's log, or that of the fleet. Called on the source
  ///     thread.
  ///   - stored: returns the resumption state in the stream's log. Called on any thread.
  ///   - derived: makes the source of a derived stream.
  ///   - admission: asked before each fetch of a poll; nil: demand is enough.
  ///   - handover: continues the schedule of another host; nil: there is none.
  ///   - refresh: makes the source ask its upstream at once. Has no effect for a source without an upstream.
  ///   - succeeded: called for each fetch of a poll that did not fail, on the source thread.
  ///   - progress: called on the source thread.
  func publisher(
    for stream: Configuration.Stream, publishSource: PublishSource, in place: ProgramPlace, on thread: SourceThread,
    checkpoint: @escaping @Sendable (_ isOfEvent: Bool) -> Checkpoint?,
    stored: @escaping @Sendable () -> Checkpoint?,
    derived: (Configuration.Derived) -> AnyPublisher<EventBatch, Never>, admission: FetchAdmission? = nil,
    handover: SourceHandover? = nil, refresh: SourceRefresh = SourceRefresh(),
    succeeded: @escaping @Sendable () -> Void = {},
    progress: @escaping @Sendable (SourceProgress) -> Void = { _ in },
    report: @escaping @Sendable (SourceReport) -> Void
  ) -> AnyPublisher<EventBatch, Never> {
    func lines(_ configuration: LineConfiguration) -> AnyPublisher<EventBatch, Never> {
      LineSource(configuration, refresh: refresh, on: thread, progress: progress, report: report).eraseToAnyPublisher()
    }
    let polled = SourceResumption(pipeline: stream.pipelineText) { checkpoint(true) }
    switch self {
    case .publish: return publishSource.eraseToAnyPublisher()
    case .streams(let streams): return derived(streams)
    case .timer(let timer):
      return TimerSource(
        every: timer.every, leeway: timer.leeway, times: timer.times, resumption: SourceResumption(checkpoint: stored)
      ).eraseToAnyPublisher()
    case .http(let http):
      return http.publisher(
        for: stream, polled: polled, streamed: SourceResumption { checkpoint(false) }, admission: admission,
        handover: handover, refresh: refresh, on: thread, succeeded: succeeded, progress: progress, report: report)
    case .webSocket(let socket):
      return WebSocketSource(
        WebSocketConfiguration(socket, of: stream), name: stream.name, handover: handover, refresh: refresh, on: thread,
        progress: progress, report: report
      ).eraseToAnyPublisher()
    case .socket(let socket): return lines(LineConfiguration(socket, of: stream))
    case .serial(let serial): return lines(LineConfiguration(serial, of: stream))
    case .peer(let peer):
      return PeerSource(
        PeerConfiguration(peer, of: stream), resumption: SourceResumption(checkpoint: stored), refresh: refresh,
        on: thread, progress: progress, report: report
      ).eraseToAnyPublisher()
    case .journal(let journal):
      return JournalSource(
        JournalConfiguration(journal, of: stream), name: stream.name, executable: "/proc/self/exe",
        resumption: SourceResumption { checkpoint(false) }, refresh: refresh, on: thread, progress: progress,
        report: report
      ).eraseToAnyPublisher()
    case .exec(let exec):
      let program = ProgramConfiguration(exec, of: stream)
      if let every = exec.every {
        return ProgramPoll(
          program, every: every, form: .init(exec, of: stream), timeout: exec.timeout, phaseKey: stream.name, in: place,
          resumption: polled, admission: exec.hasLines ? nil : admission, handover: handover, refresh: refresh,
          on: thread,
          succeeded: succeeded, progress: progress, report: report
        ).eraseToAnyPublisher()
      }
      return ProgramSource(program, in: place, refresh: refresh, on: thread, progress: progress, report: report)
        .eraseToAnyPublisher()
    }
  }
}
