import RSocket
import Reactive
import StreamProtocol
import StreamRuntime

/// The speaker of RSocket: converts frames into requests, and their results into frames.
class RSocketSpeaker: Speaker {
  var machine: ConnectionMachine
  /// Created for the first publishing request.
  private var inbound: RSocketChannels?
  /// The request whose stream is being made. No other input is processed before that is done.
  private var awaiting: AwaitingRequest?

  private struct AwaitingRequest {
    let id: StreamID
    let kind: RequestKind
    let demand: UInt32
    let payload: Payload
    let isComplete: Bool
  }

  /// Input is not read while values of more bytes than this wait for space in their streams, or while the values of a
  /// channel exceed its share of its stream. Credit keeps a publisher below these limits, unless its values grow
  /// suddenly. A connection with a subscription is read nevertheless, because the stream may wait for its credit. Bytes
  /// over the limit count in its user's account.
  private static let heldLimit = 8 << 20
  /// The cost of a partial request besides its bytes.
  private static let assemblyBytes = 256

  /// - Parameter machine: the machine of a restored connection; nil for a new one.
  init(_ connection: Connection, machine: ConnectionMachine? = nil) {
    self.machine = machine ?? ConnectionMachine(acceptingWith: connection.worker.limits.ofConnection)
    super.init(connection)
  }

  override var isEstablished: Bool { machine.isOpen }
  override var requestCount: Int { machine.liveCount }
  override var answerByteCount: Int { machine.outputByteCount }
  override func takeAnswers() -> [UInt8] { machine.takeOutput() }
  override var hasInbound: Bool { inbound != nil }
  override var publishedStreams: [String] { inbound?.streamNames ?? [] }

  override var heldByteCount: Int {
    (inbound.map { max($0.excessBytes, $0.heldBytes - Self.heldLimit) + $0.examinedBytes } ?? 0)
      + machine.partialByteCount(perRequest: Self.assemblyBytes) + (awaiting?.payload.data.count ?? 0)
  }

  override var holdsInput: Bool {
    guard awaiting == nil else { return true }
    guard let inbound, connection.subscriptions.isEmpty else { return false }
    return inbound.heldBytes > Self.heldLimit || inbound.excessBytes > 0
  }

  // MARK: Input

  override func process(_ bytes: UnsafeRawBufferPointer, until deadline: UInt64) -> Int {
    var (offset, frameCount) = (0, 0)
    var events: [ConnectionMachine.Event] = []
    repeat {
      let rest = unsafe UnsafeRawBufferPointer(rebasing: bytes[offset...])
      // One frame at a time: a frame may end its request, and the next frame may reuse the ID.
      unsafe offset += machine.receive(rest, gathersValues: true, frameLimit: 1, into: &events)
      frameCount += 1
      for event in events where connection.phase == .open { unsafe handle(event, of: rest) }
      events.removeAll(keepingCapacity: true)
    } while offset < bytes.count && connection.phase == .open && !isBusy && frameCount < Slices.connectionFrames
      && EventLoop.monotonicNow() < deadline
    if isExamining, connection.phase == .open { connection.waitForTurn() }
    return connection.phase == .open ? offset : bytes.count
  }

  override func finishProcessing() { inbound?.passOn() }

  /// Whether no other input is processed for now: a stream is being made, or a published value is examined in slices.
  var isBusy: Bool { awaiting != nil || isExamining }
  private var isExamining: Bool { inbound?.isExamining ?? false }

  override func takeTurn() -> Bool {
    guard awaiting == nil else { return true }
    guard isExamining else { return false }
    inbound?.examine(until: EventLoop.monotonicNow() + Slices.connection)
    if !isExamining {
      finishProcessing()
      connection.settle()
      _ = connection.flush()
    }
    if connection.phase == .open { connection.waitForTurn() }
    return true
  }

  override func finishTurns() {
    guard isExamining else { return }
    inbound?.examine(until: .max)
    finishProcessing()
  }

  /// - Parameter bytes: the bytes that the event's range refers to.
  private func handle(_ event: ConnectionMachine.Event, of bytes: UnsafeRawBufferPointer) {
    switch event {
    case .setup(let setup): accept(setup)
    case .request(let id, let kind, let demand, let payload, let isComplete):
      request(id, kind, demand, payload, isComplete: isComplete)
    case .payload(let id, let payload, let isComplete):
      inbound?.receive(id, payload.data, isComplete: isComplete)
    case .payloads(let id, let range):
      let frames = unsafe PayloadFrames(UnsafeRawBufferPointer(rebasing: bytes[range]))
      unsafe inbound?.receive(id, frames.lazy.map(unsafe \.data), isComplete: false)
    case .valueTooLarge(let id): inbound?.refuseLargeValue(id)
    case .complete(let id): unsafe inbound?.receive(id, EmptyCollection(), isComplete: true)
    case .requestN(let id, let count):
      if let subscription = connection.subscriptions[RequestID(id)], !subscription.machine.format.completes {
        subscription.lane.request(Self.demand(count), by: subscription)
      } else if let reader = connection.readers[RequestID(id)] {
        reader.request(Self.demand(count))
      } else {
        inbound?.grant(id, count)
      }
    case .cancel(let id), .error(let id, _, _):
      connection.commands?.leave(id)
      if let subscription = connection.subscriptions[RequestID(id)] {
        connection.remove(subscription)
      } else if let reader = connection.readers[RequestID(id)] {
        connection.end(reader)
      } else {
        inbound?.leave(id)
      }
    case .closed(let code, let message):
      if code != .connectionClose { connection.drop(message) }
      connection.finishClosing()
    case .lease, .metadataPush: break
    }
  }

  /// Over TCP the SETUP may have a token.
  private func accept(_ setup: Setup) {
    machine.knowsReasons = FailureReason.areAnnounced(by: setup.payload.data)
    do throws(RoutingError) {
      if identity.credentials == nil, !worker.tokens.isEmpty,
        let secret = try machine.metadataFormat.bearerToken(in: setup.payload.metadata)
      {
        guard let token = worker.tokens[secret] else { return refuse(setup: .invalidToken) }
        if let sentence = connection.become(token) { return refuse(setup: .init(.tooManyConnections, sentence)) }
      }
      accepted()
    } catch {
      refuse(setup: .init(.invalidAuthentication, error.message))
    }
  }

  private func refuse(setup failure: RequestFailure) {
    connection.report(.init(nil, failure))
    machine.close(ErrorCode(failure.reason), failure.sentence)
    connection.finishClosing()
  }

  private func accepted() {
    worker.trace(identity, "connected")
    watchLifetime()
    if machine.usesLeases { renewLease() }
  }

  /// Closes a connection that was silent for its maximum lifetime, or the server's. Zero means no maximum of its own.
  private func watchLifetime() {
    connection.clearClock()
    let promised = machine.maximumLifetime
    let isPromised = promised > .zero && promised <= worker.limits.lifetime
    let lifetime = isPromised ? promised : worker.limits.lifetime
    // The client may have sent something: it is not read.
    if holdsInput || connection.isWaitingForTurn { connection.lastReceivedAt = worker.loop.now }
    let silence = Duration.nanoseconds(Int64(connection.silence))
    guard silence < lifetime else {
      connection.drop(
        "silent for \(isPromised ? "its maximum lifetime of \(lifetime.inUnits)" : "\(lifetime.inUnits), the longest allowed")"
      )
      return connection.close()
    }
    connection.setClock(after: lifetime - silence)
  }

  override func timeIsOver() {
    guard !isEstablished else { return watchLifetime() }
    connection.drop("no SETUP within the handshake timeout")
    connection.close()
  }

  private func renewLease() {
    guard connection.phase == .open else { return }
    machine.sendLease(timeToLive: worker.limits.leaseTime, count: UInt32(clamping: machine.limits.maximumRequests))
    connection.setSecondClock(after: worker.limits.leaseTime * 4 / 5) { [self] in renewLease() }
    _ = connection.flush()
  }

  // MARK: Requests

  /// - Parameter mayMake: false: the stream was made for this request just now.
  private func request(
    _ id: StreamID, _ kind: RequestKind, _ demand: UInt32, _ payload: Payload, isComplete: Bool, mayMake: Bool = true
  ) {
    let name: String
    var publisher: PublisherEntry?
    do {
      name = try machine.metadataFormat.route(in: payload.metadata)
      if kind == .channel { publisher = try machine.metadataFormat.publisher(in: payload.metadata) }
    } catch {
      return sendFailure(RequestID(id), .init(.invalidRequest, error.message))
    }
    if name == ControlCommand.route, kind == .response {
      return needCommands().request(id, payload.data)
    }
    if kind == .response, let answer = nameOfAnswer(name, payload.data) {
      let request = AwaitingRequest(id: id, kind: kind, demand: demand, payload: payload, isComplete: isComplete)
      return ask(answer, request)
    }
    if let pattern = NamePattern(name) {
      return read(pattern, RequestID(id), kind, Self.demand(demand), payload.data)
    }
    let stream: ServedStream
    do {
      stream = try connection.stream(named: name)
    } catch {
      let request = AwaitingRequest(id: id, kind: kind, demand: demand, payload: payload, isComplete: isComplete)
      guard mayMake, error.failure.reason == .noStream else { return connection.refuse(RequestID(id), error) }
      return make(name, for: request, insteadOf: error)
    }
    switch kind {
    case .stream, .response:
      subscribe(RequestID(id), to: stream, isSingle: kind == .response, Self.demand(demand), payload.data)
    case .channel, .fireAndForget:
      needInbound().request(
        id, kind, to: stream, payload.data, isComplete: isComplete, demand: demand, publisher: publisher)
    }
  }

  /// The stream of an answer, if a request is one for the upstream of a template.
  private func nameOfAnswer(_ route: String, _ data: [UInt8]) -> String? {
    guard !data.isEmpty, !worker.templates.isEmpty else { return nil }
    if let stream = worker.streams[route] {
      // The options of a request for the newest event of an answer that is there.
      guard stream.configuration.isAnswer, (try? SubscribeOptions(json: data)) == nil else { return nil }
    }
    return connection.nameOfAnswer(route)
  }

  /// Has the upstream of a template asked. The reply is the name of the stream.
  private func ask(_ name: String, _ request: AwaitingRequest) {
    do throws(Connection.Refusal) {
      _ = try connection.neededStream(name, for: .asking)
      try connection.checkRequests(of: name, adding: 0)
    } catch {
      return connection.refuse(RequestID(request.id), error)
    }
    awaiting = request
    connection.ask(name, StreamRequest(body: request.payload.data, type: nil)) { [self] failure, _ in
      goOn { request in
        if let failure {
          connection.refuse(RequestID(request.id), .init(name, failure))
        } else {
          machine.sendPayload(request.id, Payload(data: Array(name.utf8)), isComplete: true)
        }
      }
    }
  }

  /// Ends the wait for a stream, and processes further input.
  private func goOn(_ body: (AwaitingRequest) -> Void) {
    guard let request = awaiting.take() else { return }
    body(request)
    connection.settle()
    _ = connection.flush()
    if connection.phase == .open { connection.waitForTurn() }
  }

  /// Has the stream of a request made, if a template fits, and begins the request then.
  private func make(_ name: String, for request: AwaitingRequest, insteadOf refusal: Connection.Refusal) {
    let purpose: NeededStream.Purpose = request.kind == .stream || request.kind == .response ? .reading : .writing
    let needed: NeededStream?
    do {
      // A request for one value makes no stream.
      needed = try connection.neededStream(name, for: purpose, isMade: request.kind != .response)
    } catch {
      return connection.refuse(RequestID(request.id), error)
    }
    guard let needed else { return connection.refuse(RequestID(request.id), refusal) }
    if let hold = connection.makeAtOnce(needed) {
      return withExtendedLifetime(hold) { begin(request) }
    }
    awaiting = request
    connection.make(needed) { [self] failure, _ in
      goOn { request in
        if let failure {
          connection.refuse(RequestID(request.id), .init(name, failure))
        } else {
          begin(request)
          finishProcessing()
        }
      }
    }
  }

  /// Begins a request, for which a stream was made.
  private func begin(_ request: AwaitingRequest) {
    self.request(
      request.id, request.kind, request.demand, request.payload, isComplete: request.isComplete, mayMake: false)
  }

  /// The stream of this request is not made in this process any more.
  private func endAwaiting(_ failure: RequestFailure) {
    if let request = awaiting.take() { sendFailure(RequestID(request.id), failure) }
  }

  /// - Parameter data: the request's options.
  private func subscribe(
    _ request: RequestID, to stream: ServedStream, isSingle: Bool, _ demand: Subscribers.Demand, _ data: [UInt8]
  ) {
    guard connection.admits(stream.configuration.read) else {
      return connection.refuse(request, connection.mayNotRead(stream))
    }
    do throws(SubscribeOptions.Malformed) {
      var options = try SubscribeOptions(json: data)
      guard !options.names else { throw SubscribeOptions.Malformed("option \"names\" is for patterns") }
      guard !options.map else { return map(request, of: stream, isSingle: isSingle, demand, options) }
      if isSingle {
        guard options.from == .replay, options.onLag == nil, !options.gaps, options.filter == nil,
          !options.marker
        else {
          throw SubscribeOptions.Malformed("a request for one value accepts only the options \"ids\" and \"key\"")
        }
        (options.from, options.onLag) = (.latest, .latest)
        if let key = options.key { return try subscribe(request, toNewestOf: key, in: stream, options) }
      } else if options.key != nil {
        throw SubscribeOptions.Malformed("option \"key\" is for a request for one value")
      }
      connection.subscribe(request, to: stream, isSingle: isSingle, demand, options, as: encoding)
    } catch {
      sendFailure(request, .init(error))
    }
  }

  private func read(
    _ pattern: NamePattern, _ request: RequestID, _ kind: RequestKind, _ demand: Subscribers.Demand, _ data: [UInt8]
  ) {
    guard kind == .stream else {
      return sendFailure(
        request, .init(.invalidRequest, "\"\(pattern.text)\" is a pattern, which only REQUEST_STREAM reads"))
    }
    do {
      var options = try SubscribeOptions(json: data)
      if options.names { options.gaps = true }
      try connection.read(PatternReader(pattern, request, demand, options, as: encoding, on: connection))
    } catch let error as SubscribeOptions.Malformed {
      sendFailure(request, .init(error))
    } catch {
      if let refusal = error as? Connection.Refusal { connection.refuse(request, refusal.failure, of: pattern.text) }
    }
  }

  override func append(answer: [UInt8]) { machine.append(answer) }

  /// - Parameter text: the text of a key.
  private func subscribe(
    _ request: RequestID, toNewestOf text: String, in stream: ServedStream, _ options: SubscribeOptions
  ) throws(SubscribeOptions.Malformed) {
    var options = options
    options.from = .state
    var id: UInt64?
    // Another thread may replace the event before the state keeps it for this request.
    for _ in 0..<Self.keyAttempts {
      let newest = try stream.newestID(ofKey: text).get()
      if let id, newest == id { return }
      if let former = connection.subscriptions[request] { connection.remove(former) }
      guard let newest else {
        return sendFailure(request, .init(.noKey, "no event of \"\(stream.name)\" has this key"))
      }
      connection.subscribe(request, to: stream, isSingle: true, .max(1), options, as: encoding, stateFrom: newest)
      guard connection.subscriptions[request] != nil else { return }
      id = newest
    }
  }

  private static let keyAttempts = 8

  /// The encoding of events on this connection.
  var encoding: EventFormat.Encoding { .rsocket }

  private func needCommands() -> ClientCommands {
    let needed = connection.commands ?? ClientCommands(self)
    connection.commands = needed
    return needed
  }

  private func needInbound() -> RSocketChannels {
    let needed = inbound ?? RSocketChannels(self)
    inbound = needed
    return needed
  }

  /// On the wire 2^31-1 means unlimited.
  private static func demand(_ count: UInt32) -> Subscribers.Demand {
    count >= Credit.unlimited ? .unlimited : .max(Int(count))
  }

  override func sendFailure(_ request: RequestID, _ failure: RequestFailure) {
    machine.sendError(StreamID(request), ErrorCode(failure.reason), failure.sentence)
  }

  override func encoded(_ failure: RequestFailure, of request: RequestID) -> [UInt8] {
    machine.encodedError(StreamID(request), ErrorCode(failure.reason), failure.sentence)
  }

  override func sendCompletion(_ request: RequestID) { machine.sendComplete(StreamID(request)) }

  override func forget(_ request: RequestID) { machine.end(StreamID(request)) }

  override func reapplyWriteAccess() {
    inbound?.reapplyAccess()
    if inbound != nil { _ = connection.flush() }
  }

  // MARK: From one process to the next

  override func save(to saved: inout SavedConnection) {
    connection.commands?.end(with: .notHandedOver)
    endAwaiting(.notHandedOver)
    saved.channels = inbound?.save() ?? []
    _ = connection.flush()
    guard connection.phase == .open else { return }
    saved.machine = machine.save()
    inbound?.leaveAll()
    inbound = nil
  }

  override func restore(_ saved: SavedConnection) {
    // A member that cannot go on may end its pattern, and so the others.
    let patterns = Set(saved.patterns.map(\.id))
    for subscription in saved.subscriptions
    where !patterns.contains(subscription.id) || connection.readers[RequestID(subscription.id)] != nil {
      connection.restore(subscription)
    }
    for channel in saved.channels { restore(channel) }
  }

  private func restore(_ saved: SavedConnection.Channel) {
    let request = RequestID(saved.id)
    guard let stream = worker.streams[saved.stream] else {
      return sendFailure(request, .removed(saved.stream))
    }
    needInbound().restore(saved, to: stream)
    if inbound?.ids.isEmpty == true { inbound = nil }  // the channel could not continue
  }

  override func resume() { if machine.isOpen { accepted() } }

  // MARK: The end

  override func refuse(_ sentence: String) {
    machine.close(ErrorCode(.tooMuchInput), sentence)
    connection.finishClosing()
  }

  override func stop(_ failure: RequestFailure) {
    endAwaiting(failure)
    let requests = connection.subscriptions.map(\.request) + connection.readers.keys
    let ids = requests.map { StreamID($0) } + (inbound?.ids ?? [])
    for id in (ids + (connection.commands?.ids ?? [])).sorted() {
      machine.sendError(id, ErrorCode(failure.reason), failure.sentence)
    }
    machine.close(ErrorCode(failure.reason, over: .connectionClose), failure.sentence)
    connection.finishClosing()
  }

  override func leave() {
    awaiting = nil
    connection.commands?.leaveAll()
    connection.commands = nil
    inbound?.leaveAll()
    inbound = nil
  }
}

extension RequestID {
  init(_ id: StreamID) { self.init(id.rawValue) }
}

extension StreamID {
  init(_ request: RequestID) { self.init(request.rawValue) }
}
