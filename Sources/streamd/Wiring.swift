// Converts the configuration's values to those of the other modules. Each module has its own types, so that no module
// depends on the form of the configuration. What concerns one kind of source is in `Configuration/Kinds`.

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
      case _ where stream.source.section.isPublished: .always
      case .subscribed: .whileSubscribed(linger: stream.linger)
      case .first: .fromFirstSubscriber
      case .always: .always
      }
    let isAnswer = stream.source.section.takesRequests
    self.init(
      name: stream.name, description: stream.description, type: stream.type, source: stream.source.kind,
      replay: min(stream.replay, stream.buffer.events),
      limits: EventLog.Limits(stream),
      start: isAnswer ? .always : start, onLag: stream.onLag,
      overflow: stream.overflow == .block ? .block(timeout: stream.blockTimeout, pace: stream.blockPace) : .drop,
      read: stream.readRules, write: stream.writeRules)
    var further = properties
    further.isAnswer = isAnswer
    further.hasEnvelopes = stream.source.section.hasEnvelopes && stream.jq == nil
    (further.expectEvery, further.key, further.template) = (stream.expectEvery, stream.key, stream.template)
    (further.requiresJSON, further.isMapped) = (stream.validate == .json, stream.map)
    further.hasProgram = stream.jq != nil
    let isJSON = stream.jq != nil || stream.source.section.isJSON
    further.jsonCheck = isJSON ? .none : stream.source.section.isPublished ? .ends : .whole
    if stream.share == .fleet {
      (further.eventByteLimit, further.isOfFleet) = (Configuration.maximumFleetEventBytes, true)
    }
    properties = further
  }

  /// The same configuration for a stream with another name.
  func named(_ name: String) -> Self {
    var other = self
    other.name = name
    return other
  }
}

extension Configuration.Stream {
  var readRules: AccessRules { AccessRules(read).with(owner: origin.owner).adding(tokens: readers) }
  var writeRules: AccessRules { (write.map { AccessRules($0) } ?? .owner).adding(tokens: writers) }
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

extension SourceHealth {
  /// - Returns: nil when the report does not concern its health.
  init?(_ report: SourceReport) {
    switch report {
    case .failing(let reason, _, _), .halted(let reason): self = .failing(reason)
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
    let split = source.section.splitsTexts ? ["split"] : []
    let variables = variables.sorted { $0.key < $1.key }.map { "\($0.key) \($0.value)" }
    var parts: [String] = [jq ?? "", distinctText, throttle.map { "\($0)" } ?? ""]
    parts += programs
    parts += split
    parts += variables
    return parts.map { "\($0.utf8.count) \($0)" }.joined()
  }

  /// The programs that run in the jq process.
  private var transform: JQTransform {
    var transform = JQTransform(program: jq)
    if case .by(let program) = distinct { transform.distinctBy = program }
    (transform.key, transform.keyDigest) = (programKey, programKey?.digest ?? 0)
    if transform != JQTransform() { (transform.variables, transform.template) = (variables, template) }
    return transform
  }

  /// Whether nothing between a source and the stream's log holds an event back.
  var isDirect: Bool { transform == JQTransform() && throttle == nil && share != .fleet }

  /// Whether anything is between a source and the stream's log; false: the values of clients enter it as they are.
  var hasPipeline: Bool {
    !source.section.isPublished || !isDirect || distinct != .no || receivedForm != nil
  }

  /// The form of what the source receives; nil if nothing before the log depends on it. Published values that must be
  /// JSON, and are not, are refused before.
  var receivedForm: ReceivedForm? {
    guard source.section.isPublished else {
      return ReceivedForm(
        isJSON: jq != nil || hasJSONType, splitsTexts: source.section.splitsTexts, requiresJSON: validate == .json)
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
    let resumption = self.source.section.isPublished ? nil : SourceResumption(checkpoint: checkpoint)
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
  /// a poll then fetches again a page on which the pipeline failed. With a cursor it would ask again for answers of which
  /// nothing is an event. A fleet needs no record without an event.
  private var keepsPosition: Bool { share == .fleet || source.section.fleetKind == .poll && !source.section.advances }
}
