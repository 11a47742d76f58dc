import Fleet
import StreamRuntime

extension JetStreamEngine {
  package func append(
    _ entry: [UInt8], isClaim: Bool, to shard: Int, after: UInt64,
    _ done: @escaping (ShardMachine.AppendResult) -> Void
  ) {
    let subject = isClaim ? names.claims(shard) : names.parts(shard)
    guard options.fence == .log else { return appendUnsafely(entry, subject, to: shard, after: after, done) }
    append(entry, subject, to: shard, after: after, header: ("Nats-Expected-Last-Sequence", String(after)), done)
  }

  private func append(
    _ entry: [UInt8], _ subject: String, to shard: Int, after: UInt64, header: (name: String, value: String),
    _ done: @escaping (ShardMachine.AppendResult) -> Void
  ) {
    let stream = names.stream(shard)
    request(subject, entry, header: header) { answer in
      if let answer, answer.status == nil {
        done(JetStreamAnswer.appended(answer.bytes, to: stream, after: after))
      } else {
        done(.unknown)
      }
      return true
    }
  }

  /// Appends with the fence that does not hold, for tests.
  private func appendUnsafely(
    _ entry: [UInt8], _ subject: String, to shard: Int, after: UInt64,
    _ done: @escaping (ShardMachine.AppendResult) -> Void
  ) {
    storedLast(of: subject, shard) { [self] stored in
      let last: UInt64
      switch stored {
      case .found(_, sequence: let sequence): last = sequence
      case .some(.none): last = 0
      case nil: return done(.unknown)
      }
      information(about: shard) { [self] extent in
        guard let extent else { return done(.unknown) }
        guard extent.last == after else { return done(.refused(last: extent.last)) }
        append(
          entry, subject, to: shard, after: after, header: ("Nats-Expected-Last-Subject-Sequence", String(last)), done)
      }
    }
  }

  package func read(_ shard: Int, after: UInt64, _ done: @escaping (FleetEntries?) -> Void) {
    let reading = ShardReading(of: shard, after: after, by: self, done)
    waitingReads.append(reading)
    startReads()
  }

  /// Starts waiting reads, up to the limit.
  func startReads() {
    while readCount < ShardReading.concurrencyLimit, let reading = waitingReads.popFirst() {
      if reading.start() { readCount += 1 }
    }
  }

  package func findClaim(_ shard: Int, _ done: @escaping (FleetClaim?) -> Void) {
    get("\"last_by_subj\":\"\(names.claims(shard))\"", shard) { [self] found in
      switch found {
      case nil: done(nil)
      case .found(let bytes, sequence: let sequence): done(.found(bytes, sequence: sequence))
      case .some(.none): findFirstClaim(shard, done)
      }
    }
  }

  /// A replica that lags may not have the claim yet. Only the replica that decides about appends can say that there is
  /// none.
  private func findFirstClaim(_ shard: Int, _ done: @escaping (FleetClaim?) -> Void) {
    information(about: shard) { [self] extent in
      guard let extent else { return done(nil) }
      storedLast(of: names.claims(shard), shard) { stored in
        switch stored {
        case nil: done(nil)
        case .found(let bytes, sequence: let sequence): done(.found(bytes, sequence: sequence))
        case .some(.none): done(FleetClaim.none(last: extent.last))
        }
      }
    }
  }

  package func newest(_ shard: Int, _ done: @escaping (FleetNewest?) -> Void) {
    information(about: shard) { [self] extent in
      guard let extent else { return done(nil) }
      guard extent.last > 0 else { return done(FleetNewest(last: 0, entry: nil)) }
      stored("\"seq\":\(extent.last)", shard) { stored in
        switch stored {
        case nil: done(nil)
        case .found(let bytes, sequence: extent.last): done(FleetNewest(last: extent.last, entry: bytes))
        case .found: done(nil)
        case .some(.none): done(FleetNewest(last: extent.last, entry: nil))
        }
      }
    }
  }

  // MARK: Questions about a stream

  /// Asks the leader of a shard's stream for its first and last sequence numbers.
  func information(about shard: Int, _ done: @escaping ((first: UInt64, last: UInt64)?) -> Void) {
    request("$JS.API.STREAM.INFO.\(names.stream(shard))", []) { [self] answer in
      let members = answer.flatMap { $0.status == nil ? JSONMembers($0.bytes) : nil }
      if let members, JetStreamAnswer.failure(members)?.code == JetStreamAnswer.Failure.streamNotFound {
        restoreStream(shard)
      }
      done(members.flatMap(JetStreamAnswer.extent))
      return true
    }
  }

  /// Asks the leader of a shard's stream for the last entry of a subject.
  private func storedLast(of subject: String, _ shard: Int, _ done: @escaping (JetStreamAnswer.Stored?) -> Void) {
    stored("\"last_by_subj\":\"\(subject)\"", shard, done)
  }

  private func stored(
    _ question: String, _ shard: Int, timeout: Duration? = nil, _ done: @escaping (JetStreamAnswer.Stored?) -> Void
  ) {
    request("$JS.API.STREAM.MSG.GET.\(names.stream(shard))", Array("{\(question)}".utf8), timeout: timeout) { answer in
      done(answer.flatMap { $0.status == nil ? JetStreamAnswer.stored($0.bytes) : nil })
      return true
    }
  }

  /// Whether any replica may answer a question.
  var readsReplicas: Bool { EventLoop.monotonicNow() >= replicasTime }

  /// Asks only the leaders of the logs for some time.
  func avoidReplicas() { replicasTime = EventLoop.monotonicNow() &+ Self.replicasNanoseconds }

  /// Asks any replica of a shard's stream for an entry, and then the leader if no answer comes soon. Brokers may take
  /// more than a minute to notice that one of them is frozen or cut off, and send it questions until then.
  func get(_ question: String, _ shard: Int, _ done: @escaping (JetStreamAnswer.Stored?) -> Void) {
    let soon = options.answerTimeout / 10
    guard readsReplicas else {
      return stored(question, shard, timeout: options.answerTimeout - soon, done)
    }
    request("$JS.API.DIRECT.GET.\(names.stream(shard))", Array("{\(question)}".utf8), timeout: soon) { [self] answer in
      switch (answer?.status, answer?.sequence) {
      case (nil, _) where answer == nil && isReady:
        avoidReplicas()
        stored(question, shard, timeout: options.answerTimeout - soon, done)
      case (NATSMessage.notFound, _): done(JetStreamAnswer.Stored.none)
      case (nil, .some(1..<JetStreamAnswer.sequenceLimit)):
        guard let answer, let sequence = answer.sequence else { return true }
        done(.found(answer.bytes, sequence: sequence))
      case _: done(nil)
      }
      return true
    }
  }
}

/// One read of a shard's log. Asks for the log's extent and the first entry at the same time. Then asks for several
/// entries at a time, each as the first one from some sequence number on.
final class ShardReading {
  /// Maximum number of concurrent reads; others wait.
  static let concurrencyLimit = 2
  /// Number of entries that are requested at the same time.
  private static let windowCount: UInt64 = 16

  private let shard: Int
  private let after: UInt64
  private unowned let engine: JetStreamEngine
  private let loop: EventLoop
  private var done: ((FleetEntries?) -> Void)?
  private var timer: TimerID?
  private var isRunning = false
  private var extent: (first: UInt64, last: UInt64)?
  private var entries: [(sequence: UInt64, bytes: [UInt8])] = []
  private var byteCount = 0
  /// The answers to questions that were asked at the same time, in the order of the questions.
  private var answers: [JetStreamAnswer.Stored?] = []
  private var missingCount = 0
  /// Whether any replica may have given the answers.
  private var isByReplicas = false

  /// - Parameter done: called after the engine's `answerTimeout` at the latest.
  init(of shard: Int, after: UInt64, by engine: JetStreamEngine, _ done: @escaping (FleetEntries?) -> Void) {
    (self.shard, self.after, self.engine, self.done) = (shard, after, engine, done)
    loop = engine.loop
    timer = loop.schedule(after: engine.options.answerTimeout) { [weak self] in
      guard let self else { return }
      end(hasFailed: entries.isEmpty)
    }
  }

  /// - Returns: false if the read has ended.
  func start() -> Bool {
    guard done != nil, after < JetStreamAnswer.sequenceLimit else {
      end()
      return false
    }
    isRunning = true
    missingCount = 1
    // The engine retains this by its requests.
    engine.information(about: shard) { [self] extent in
      self.extent = extent
      received()
    }
    ask(from: after + 1, count: 1)
    return true
  }

  /// Ends the read without calling its closure or the engine.
  func cancel() {
    done = nil
    if let timer { loop.cancel(timer) }
  }

  private func ask(from sequence: UInt64, count: UInt64) {
    isByReplicas = engine.readsReplicas
    answers = Array(repeating: nil, count: Int(count))
    missingCount += Int(count)
    for index in 0..<count {
      let question = "\"seq\":\(sequence + index),\"next_by_subj\":\"\(engine.names.log(shard))\""
      engine.get(question, shard) { [self] answer in
        answers[Int(index)] = answer
        received()
      }
    }
  }

  private func received() {
    missingCount -= 1
    guard missingCount == 0, done != nil else { return }
    guard let extent else { return end() }
    let formerCount = entries.count
    for answer in answers {
      let next = max((entries.last?.sequence ?? after) + 1, extent.first)
      let sequence: UInt64? = if case .found(_, sequence: let sequence)? = answer { sequence } else { nil }
      if isByReplicas, answer != nil, next <= extent.last, sequence ?? .max > next {
        // This replica lags or has lost entries, possibly for long, or the entries were removed. The log's leader knows
        // which.
        engine.avoidReplicas()
        return ask(from: next, count: min(Self.windowCount, extent.last - next + 1))
      }
      guard case .found(let bytes, sequence: let sequence) = answer else {
        // The read ends here: an answer is missing.
        return end(hasFailed: answer == nil && entries.isEmpty)
      }
      if sequence <= entries.last?.sequence ?? after { continue }  // several questions have one answer, after a gap
      entries.append((sequence, bytes))
      byteCount += bytes.count
      if entries.count == FleetEntries.maximumCount || byteCount >= FleetEntries.byteCount { return end() }
    }
    let next = (entries.last?.sequence ?? after) + 1
    guard next <= extent.last, entries.count > formerCount else { return end() }
    ask(from: next, count: min(Self.windowCount, extent.last - next + 1))
  }

  private func end(hasFailed: Bool = false) {
    if let timer { loop.cancel(timer) }
    timer = nil
    let done = done
    self.done = nil
    let wasRunning = isRunning
    isRunning = false
    if wasRunning { engine.readCount -= 1 }
    if let extent, !hasFailed {
      done?(FleetEntries(entries: entries, first: extent.first, last: max(extent.last, entries.last?.sequence ?? 0)))
    } else {
      done?(nil)
    }
    if wasRunning { engine.startReads() }
  }
}
