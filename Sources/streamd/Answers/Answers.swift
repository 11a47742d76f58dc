import StreamRuntime
import StreamServer
import StreamSources
import TaggedFields

/// The requests of clients whose answers are streams, in files and as a machine. Thread-safe.
///
/// A file has what a process after a kill must know: the request, until it is made, and that it was made. The queue of the files
/// waits for the disk; nothing else here does, except for `store`.
final class Answers: Sendable {
  private struct State {
    var machine = AnswerMachine()
    /// Without their bodies.
    var records: [String: AnswerRecord] = [:]
    /// What waits for the turn of each request, and for its body.
    var turns: [String: SingleRequest.Begin] = [:]
    var sendings: [String: SingleRequest.Send] = [:]
    var refusals: [String: SingleRequest.Refusal] = [:]
    var nextNumber: UInt64 = 0
    /// Whether requests are made again of which it is not known whether the upstream has them.
    var repeats: Set<String> = []
    /// Whether the process ends: its sources stop, which is no failure of theirs.
    var isEnding = false
  }

  private let state = Locked(State())
  private let files: StateFiles
  private static let folder = "requests"

  /// - Parameter files: of the state directory.
  init(_ files: StateFiles) {
    self.files = files.folder(Self.folder)
    state.withLock { state in
      // One after the other: together, the bodies need not fit into memory.
      for name in self.files.names {
        guard let bytes = self.files.content(of: name),
          var record = try? RecordFields.read(AnswerRecord.self, from: bytes[...]),
          AnswerRecord.file(of: record.name) == name
        else { continue }
        record.body = []
        state.nextNumber = max(state.nextNumber, record.number + 1)
        state.records[record.name] = record
      }
    }
  }

  /// Who has made the requests of a former process, by the names of their streams, in their order.
  var owners: [(name: String, owner: StreamOwner?)] {
    state.withLock { state in
      state.records.values.sorted { $0.number < $1.number }.map { ($0.name, StreamOwner(saved: $0.owner)) }
    }
  }

  func owner(of name: String) -> StreamOwner? {
    state.withLock { $0.records[name].map(\.owner) }.flatMap { StreamOwner(saved: $0) }
  }

  func has(_ name: String) -> Bool { state.withLock { $0.records[name] != nil } }

  /// Whether a stream may get another source: it is no answer, or its request has not been made.
  func mayRenew(_ name: String) -> Bool {
    state.withLock { [nil, .waiting, .ready].contains($0.machine.phase(of: name)) }
  }

  /// Sets the limits of templates, and which of them repeat requests.
  func serve(_ templates: [Configuration.Template]) {
    perform { state in
      state.repeats = Set(templates.filter { $0.sample.source.section.repeatsRequests }.map(\.name.text))
      return templates.filter { $0.sample.source.section.takesRequests }.flatMap {
        state.machine.setLimit($0.terms.running, of: $0.name.text)
      }
    }
  }

  // MARK: Requests

  /// Stores a request. Waits for the disk.
  /// - Throws: with a sentence for the client.
  func store(
    _ request: StreamRequest, for name: String, of template: String, by owner: StreamOwner
  ) throws(StreamFailure) {
    var record = AnswerRecord()
    (record.name, record.owner, record.type, record.body) = (name, owner.saved, request.type ?? "", request.body)
    record.digest = AnswerRecord.digest(of: record.body, record.type)
    record.number = state.withLock { state in
      state.nextNumber += 1
      return state.nextNumber - 1
    }
    if let reason = files.writeNow(RecordFields.bytes(of: record), to: AnswerRecord.file(of: name)) {
      throw StreamFailure("the request cannot be stored: \(reason)")
    }
    record.body = []
    state.withLock { [record] state in
      state.records[name] = record
      state.machine.add(name, of: template, number: record.number)
    }
  }

  /// Takes over the request of a stream that is made again.
  ///
  /// - Parameters:
  ///   - events: the ids that the log has.
  /// - Returns: false if there is none.
  func restore(_ name: String, of template: String, events: Range<UInt64>) -> Bool {
    state.withLock { state in
      guard let record = state.records[name] else { return false }
      guard state.machine.phase(of: name) == nil else { return true }
      state.machine.add(
        name, of: template, number: record.number,
        record.phase(repeats: state.repeats.contains(template), events))
      return true
    }
  }

  func relation(of request: StreamRequest, to name: String) -> RequestRelation {
    let digest = AnswerRecord.digest(of: request.body, request.type ?? "")
    return state.withLock { state in
      guard state.records[name]?.digest == digest else { return .other }
      switch state.machine.phase(of: name) {
      case .closing(failure: .some), .ended(failure: .some), nil: return .again
      case .waiting, .ready, .marking, .answering, .closing, .ended: return .same
      }
    }
  }

  /// These streams are gone.
  func remove(_ names: [String]) {
    perform { state in
      let known = names.filter { state.records.removeValue(forKey: $0) != nil }
      for name in known { (state.turns[name], state.sendings[name], state.refusals[name]) = (nil, nil, nil) }
      files.remove(known.map { AnswerRecord.file(of: $0) })
      return known.flatMap { state.machine.remove($0) }
    }
  }

  // MARK: Answers

  /// The request of a stream, for its source. A source that has not noticed its end has no part in a later request of that name.
  func single(of name: String) -> SingleRequest {
    let number = state.withLock { $0.records[name]?.number }
    return SingleRequest(
      turn: { [self] begin in
        let isGone = perform { state in
          guard state.records[name]?.number == number else { return nil }
          state.turns[name] = begin
          return state.machine.ask(name)
        }
        if isGone { begin(false) }
      },
      body: { [self] send in
        let isGone = perform { state in
          guard state.records[name]?.number == number else { return nil }
          state.sendings[name] = send
          return state.machine.send(name)
        }
        if isGone { send(nil) }
      },
      ended: { [self] failure, refusal in
        perform { state in
          guard !state.isEnding, state.records[name]?.number == number else { return nil }
          state.refusals[name] = refusal
          return state.machine.answered(name, failure: failure)
        }
      })
  }

  /// With what the stream of an answer ends, once its source has ended; nil: it is complete.
  func failure(of name: String) -> StreamFailure? {
    state.withLock { state in
      switch state.machine.phase(of: name) {
      case .closing(let failure?), .ended(let failure?):
        var failure = StreamFailure(failure)
        failure.refusal = state.refusals.removeValue(forKey: name).map {
          .init(status: $0.status, type: $0.type, body: $0.body)
        }
        return failure
      case .closing, .ended: return nil
      case .waiting, .ready, .marking, .answering, nil:
        return StreamFailure("the request has ended without an answer")
      }
    }
  }

  /// The log of an answer has begun or ended to wait for a reader.
  func note(_ name: String, waits: Bool) { perform { $0.machine.note(name, waits: waits) } }

  /// The log has all events of an answer.
  func ended(_ name: String, lastID: UInt64) {
    perform { state in
      guard !state.isEnding else { return [] }
      state.records[name]?.lastID = lastID
      return state.machine.ended(name)
    }
  }

  /// The process ends: answers that have not ended are cut off. Returns when that is stored, and nothing is stored after it.
  func stop() {
    state.withLock { $0.isEnding = true }
    // What is being marked, is answered then, or waits for the next process.
    files.flush()
    perform { state in
      state.records.keys.filter { name in
        switch state.machine.phase(of: name) {
        case .answering, .closing: true
        case .waiting, .ready, .marking, .ended, nil: false
        }
      }.map { .store($0) }
    }
    files.flush()
  }

  // MARK: Performing

  /// - Parameter body: returns nil if there is no such request any more.
  /// - Returns: whether there is none.
  @discardableResult private func perform(_ body: (inout State) -> [AnswerMachine.Action]?) -> Bool {
    var calls: [@Sendable () -> Void] = []
    let isGone = state.withLock { state in
      guard let actions = body(&state) else { return true }
      for action in actions {
        switch action {
        case .begin(let name): if let begin = state.turns.removeValue(forKey: name) { calls.append { begin(true) } }
        case .mark(let name): mark(name, in: &state)
        case .send: break  // the queue of the files has the body
        case .end(let name):
          if let begin = state.turns.removeValue(forKey: name) { calls.append { begin(false) } }
          if let send = state.sendings.removeValue(forKey: name) { calls.append { send(nil) } }
        case .store(let name): store(name, in: &state)
        }
      }
      return false
    }
    for call in calls { call() }
    return isGone
  }

  /// Stores that the upstream may have a request, then lets it have it.
  private func mark(_ name: String, in state: inout State) {
    let keepsBody = state.machine.template(of: name).map { state.repeats.contains($0) } == true
    let file = AnswerRecord.file(of: name)
    files.perform { [self] files in
      guard !self.state.withLock({ $0.isEnding }) else { return }
      var failure: String?
      var body: HTTPBody?
      if let bytes = files.content(of: file), var record = try? RecordFields.read(AnswerRecord.self, from: bytes[...]) {
        body = HTTPBody(record.body, type: record.type, isSecret: true)
        record.step = .sent
        if !keepsBody { record.body = [] }
        failure = files.replace(file, with: RecordFields.bytes(of: record))
      } else {
        failure = "its file cannot be read"
      }
      marked(name, body, failure.map { "the request was not made: it cannot be stored that it is: \($0)" })
    }
  }

  private func marked(_ name: String, _ body: HTTPBody?, _ failure: String?) {
    var send: SingleRequest.Send?
    perform { state in
      let actions = state.machine.marked(name, failure: failure)
      guard actions == [.send(name)] else { return actions }
      state.records[name]?.step = .sent
      send = state.sendings.removeValue(forKey: name)
      return []
    }
    send?(body)
  }

  /// Stores the present step. The body of a request stays in its file while it may be made again.
  private func store(_ name: String, in state: inout State) {
    guard var record = state.records[name] else { return }
    switch state.machine.phase(of: name) {
    case .ended(let failure): (record.step, record.failure) = (failure == nil ? .complete : .failed, failure ?? "")
    case .closing(let failure?): (record.step, record.failure) = (.failed, failure)
    // The stream may lack the last events of an answer that is complete.
    case .answering, .closing: record.step = .cutOff
    case .waiting, .ready, .marking, nil: return
    }
    state.records[name] = record
    let keepsBody = record.step == .cutOff
    let file = AnswerRecord.file(of: name)
    files.perform { [record] files in
      var record = record
      if keepsBody, let bytes = files.content(of: file) {
        record.body = (try? RecordFields.read(AnswerRecord.self, from: bytes[...]))?.body ?? []
      }
      // Without it, the next process takes the answer for one that was cut off.
      _ = files.replace(file, with: RecordFields.bytes(of: record))
    }
  }
}

extension AnswerRecord {
  /// What has become of the request of a former process.
  /// - Parameter events: the ids that the log has.
  fileprivate func phase(repeats: Bool, _ events: Range<UInt64>) -> AnswerMachine.Phase {
    switch step {
    case .waiting: return .waiting
    case .sent where repeats, .cutOff where repeats: return .waiting
    case .sent: return .closing(failure: "the request may have been sent before a kill")
    case .cutOff:
      let place = events.isEmpty ? "before its first event" : "after event \(events.upperBound - 1)"
      return .closing(failure: "cut off by a restart \(place)")
    case .failed: return .ended(failure: failure)
    case .complete:
      let hasAll = lastID == 0 || events.contains(lastID)
      return .ended(failure: hasAll ? nil : "the events of the answer are lost")
    }
  }
}
