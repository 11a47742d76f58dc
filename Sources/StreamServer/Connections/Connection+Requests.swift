import Glibc
import HTTP
import RSocket
import StreamProtocol
import StreamRuntime
import Reactive

/// Why a request or a connection ends or is refused, with one sentence for the client.
struct RequestFailure: Error, Equatable {
  let reason: FailureReason
  /// For people: it may change.
  let sentence: String

  init(_ reason: FailureReason, _ sentence: String) { (self.reason, self.sentence) = (reason, sentence) }

  init(_ error: SubscribeOptions.Malformed) { self.init(error.reason, error.sentence) }

  static let stopping = Self(.stopping, "streamd is stopping")
  static let restarting = Self(.restarting, "streamd is restarting")
  /// The next process cannot continue the request, and has the connection.
  static let notHandedOver = Self(.restarting, "streamd restarts")
  static let notStored = Self(.restarting, "streamd restarts before the stream has stored all values")
  static let invalidToken = Self(.invalidToken, "the token is not valid")
  static let invalidTicket = Self(
    .invalidToken, "the ticket is not valid: it admits one request, within \(ClientTickets.lifetime.inWords)")

  /// - Parameter meant: a stream with a similar name.
  static func noStream(_ name: String, meant: String? = nil) -> Self {
    Self(.noStream, "no stream named \"\(name)\"" + (meant.map { "; did you mean \"\($0)\"?" } ?? ""))
  }

  /// A template could make the stream.
  static func notMade(_ name: String) -> Self {
    Self(.noStream, "no stream named \"\(name)\" yet: a subscription or a published value makes it")
  }

  static func mayNotRead(_ name: String, _ client: ClientIdentity) -> Self {
    Self(.mayNotRead, "\(client.user) may not read \"\(name)\"")
  }

  /// - Parameter rules: the present rules.
  static func mayNotWrite(_ name: String, _ rules: AccessRules, _ client: ClientIdentity) -> Self {
    let change: String
    if let user = client.credentials?.user {
      func list(_ users: Set<UInt32>) -> String { users.sorted().map { "\"uid:\($0)\"" }.joined(separator: ", ") }
      // Without a list, root and the daemon's user may write: a list without them would lock them out.
      change = rules.hasOwnRules ? "add \(list([user])) to its write" : "set write = [\(list([user, 0, geteuid()]))]"
    } else if client.token != nil {
      change = "add it to write of the token"
    } else {
      change = "give it a token with write = [\"\(name)\"] ([[tokens]])"
    }
    return Self(.mayNotWrite, "\(client.user) may not write \"\(name)\"; to admit it, \(change)")
  }

  static func removed(_ name: String) -> Self { Self(.removed, "\"\(name)\" is no longer served") }

  static func tooManyViews(of name: String) -> Self { Self(.tooManyViews, "too many views of \"\(name)\"") }

  /// The part of a state that a subscription has not read is lost.
  static func lostState(of stream: String) -> Self {
    Self(.stateLost, "the rest of the state of \"\(stream)\" is lost: subscribe again")
  }

  static func lagged(_ count: UInt64) -> Self { Self(.lagged, "lagged: \(count) events lost") }

  static func eventLost(_ id: UInt64) -> Self {
    Self(.eventLost, "lagged: event \(id) was lost after a part of it had been sent")
  }
}

extension ErrorCode {
  /// The code for a reason.
  /// - Parameter code: for the end of a connection; nil: that of the reason.
  init(_ reason: FailureReason, over code: ErrorCode? = nil) {
    self.init(rawValue: reason.wireCode(over: code?.rawValue))
  }
}

// The requests of a connection, in all protocols.

extension Connection {
  /// Maximum bytes of a name that is looked up and quoted in the reply: the size of a routing tag.
  private static let nameLimit = 255
  /// All hosts together may have this number of times the requests of one user: each takes memory.
  private static let hostRequestFactor = 16

  /// Finds the requested stream, as this client sees it.
  /// - Parameter count: requests that begin with this one, and that the connection does not count yet.
  /// - Throws: for an unknown name, and at a limit of requests.
  func stream(named name: String, adding count: Int = 0) throws(Refusal) -> ServedStream {
    guard name.utf8.count <= Self.nameLimit else {
      throw Refusal(nil, .init(.noStream, "no stream has a name of \(name.utf8.count) bytes"))
    }
    guard let named = worker.streams[name] else {
      throw Refusal(nil, absence(of: name))
    }
    try checkRequests(of: name, adding: count)
    guard let stream = view(of: named) else { throw Refusal(name, .tooManyViews(of: name)) }
    return stream
  }

  /// Checks the limits of requests.
  /// - Parameters:
  ///   - name: of a stream, or a pattern.
  ///   - count: as above.
  func checkRequests(of name: String, adding count: Int) throws(Refusal) {
    let limit = worker.limits.requestsPerUser
    let others = share.account.requests.load(ordering: .relaxed) + held.uncounted(requestCount)
    guard others + count <= limit else {
      throw Refusal(
        name,
        .init(
          .tooManyRequests,
          count > 1 && others < limit
            ? "\(identity.user) has \(others) of \(limit) requests, and this one needs \(count)"
            : "\(identity.user) has \(limit) requests already"))
    }
    if let hosts = share.account.hosts {
      let most = limit.multipliedReportingOverflow(by: Self.hostRequestFactor)
      guard most.overflow || hosts.requests.load(ordering: .relaxed) + count <= most.partialValue else {
        throw Refusal(
          name,
          .init(
            .tooManyRequests, "the clients without credentials have \(most.partialValue) requests together already"))
      }
    }
  }

  private func absence(of name: String) -> RequestFailure {
    guard worker.templates.match(name) == nil else { return .notMade(name) }
    if let (template, rule) = worker.templates.rule(brokenBy: name) {
      return .init(.noStream, "no stream named \"\(name)\": in \"\(template.name.text)\", \(rule)")
    }
    return .noStream(name, meant: worker.stream(similarTo: name) { visibility })
  }

  /// A rejected request, which is counted and reported.
  struct Refusal: Error {
    let stream: String?
    let failure: RequestFailure

    init(_ stream: String?, _ failure: RequestFailure) { (self.stream, self.failure) = (stream, failure) }
  }

  /// Whether a part of an event was written, so that the next bytes must continue it. This holds for the events of a
  /// response, which have no request number.
  func isWithinEvent(ofOtherThan subscription: StreamSubscription? = nil) -> Bool {
    subscriptions.contains { $0 !== subscription && $0.cursor.sentBytes > 0 }
      || readers.values.contains { $0.isWithinEvent }
  }

  /// Reports why the connection ends.
  func drop(_ reason: String) {
    worker.report(.clientDropped(identity, reason: reason + origin(of: identity)))
  }

  /// The address of a client that nothing else identifies, for the end of a sentence about it.
  private func origin(of identity: ClientIdentity) -> String {
    guard identity.credentials == nil, identity.token == nil else { return "" }
    return TCPSocket.peerAddress(of: socket.raw).map { ", from \($0)" } ?? ""
  }

  func refuse(_ request: RequestID, _ refusal: Refusal) {
    worker.loop.assertOnLoop()
    sendFailure(request, refusal.failure)
    report(refusal)
  }

  /// Sends the error that ends a request; its subscription has ended already, or never began.
  func sendFailure(_ request: RequestID, _ failure: RequestFailure) { speaker?.sendFailure(request, failure) }

  /// Ends a request that cannot begin. At a limit that is a refusal.
  /// - Parameter name: of a stream, or a pattern.
  func refuse(_ request: RequestID, _ failure: RequestFailure, of name: String) {
    guard failure.reason.meaning.code != ErrorCode.rejected.rawValue else {
      return refuse(request, Refusal(name, failure))
    }
    sendFailure(request, failure)
  }

  /// Reports a refusal.
  /// - Parameter isWithoutToken: whether the connection's token belongs to an earlier request, and not to this one.
  func report(_ refusal: Refusal, isWithoutToken: Bool = false) {
    reportRefusal(refusal.failure.sentence, of: refusal.stream, isWithoutToken: isWithoutToken)
  }

  /// - Parameters: as for `report`.
  func reportRefusal(_ sentence: String, of stream: String? = nil, isWithoutToken: Bool) {
    var identity = identity
    if isWithoutToken { identity.token = nil }
    worker.report(.clientRefused(identity, stream: stream, reason: sentence + origin(of: identity)))
  }

  /// The stream as this client sees it.
  /// - Returns: nil at the limit of views of system streams.
  private func view(of stream: ServedStream) -> ServedStream? { view(of: stream, inPlaceOf: nil) }

  /// - Parameter former: a view that must not be returned; nil: each view may be.
  private func view(of stream: ServedStream, inPlaceOf former: ServedStream?) -> ServedStream? {
    // A client without the right to read needs no view: the request is refused next.
    guard stream.rendering != nil, admits(stream.configuration.read) else { return stream }
    let visibility = visibility
    return visibility == .all
      ? stream : worker.systemStreams.view(of: stream.name, visibility, inPlaceOf: former)
  }

  /// The streams that the client may see.
  var visibility: Visibility {
    worker.systemStreams.visibility(for: identity.credentials, token: identity.token) { worker.groups(of: self) }
  }

  func admits(_ rules: AccessRules) -> Bool {
    rules.admit(identity.credentials, token: identity.token) { worker.groups(of: self) }
  }

  func mayNotRead(_ stream: ServedStream) -> Refusal { Refusal(stream.name, .mayNotRead(stream.name, identity)) }

  func mayNotWrite(_ stream: ServedStream) -> Refusal {
    Refusal(stream.name, .mayNotWrite(stream.name, stream.configuration.write, identity))
  }

  /// The exceeded limit of bytes, as a sentence; nil: none.
  /// - Parameter count: bytes in addition to those that are counted.
  func excess(adding count: Int = 0) -> String? {
    let limits = worker.limits
    let held = share.account.heldBytes.load(ordering: .relaxed) + count
    if held > limits.inputBytesPerUser {
      return "\(identity.user) has more than \(limits.inputBytesPerUser) bytes of unprocessed data (max_input_per_user)"
    }
    let hosts = share.account.hosts.map { $0.heldBytes.load(ordering: .relaxed) + count }
    let all = worker.accounts.heldBytes.load(ordering: .relaxed) + count
    if limits.exceedsInputShare(held, ofHosts: hosts, ofAll: all, share.account.standing) {
      return "\(identity.user) has more bytes of unprocessed data than are free of \(limits.inputBytes) (max_input)"
    }
    return nil
  }

  /// Begins a subscription, or ends the request with an error.
  ///
  /// - Parameters:
  ///   - isSingle: whether the first event completes the request.
  ///   - options: the request's own.
  ///   - encoding: the encoding of its events.
  ///   - follows: false: the subscription receives only the events that exist now, which limits the demand.
  ///   - missed: events before the first one that the client has missed; nil: as `options` show.
  ///   - first: the id from which a state is read.
  ///   - reader: the reader of a pattern, of which the subscription becomes a member.
  ///   - beginning: where a member begins; nil: as `options` say.
  func subscribe(
    _ request: RequestID, to stream: ServedStream, isSingle: Bool, _ demand: Subscribers.Demand,
    _ options: SubscribeOptions, as encoding: EventFormat.Encoding = .rsocket, follows: Bool = true,
    missed: Gap? = nil, stateFrom first: UInt64 = 0, in reader: PatternReader? = nil, at beginning: UInt64? = nil
  ) {
    worker.loop.assertOnLoop()
    guard !hasLostReader else {
      speaker?.forget(request)
      return
    }
    let configuration = stream.configuration
    guard admits(configuration.read) else { return refuse(request, mayNotRead(stream)) }
    let lane = worker.lane(of: stream)
    defer { worker.release(lane) }
    do throws(RequestFailure) {
      let start = options.from
      let isCurrent = start == .new || refresh(stream)
      let awaits = follows && configuration.isOfFleet
      var place = try stream.log.read { storage, _ in
        Result { () throws(SubscribeOptions.Malformed) in
          if let place = reader?.beginning(in: storage, at: beginning) { return place }
          return try start.beginning(in: storage, replay: configuration.replay, awaits: awaits)
        }
      }.mapError { RequestFailure($0) }.get()
      let awaitedID = place.awaitedID
      let extras = try extras(
        options.filter, isNeeded: start == .state || awaitedID > 0, of: stream, in: reader, within: worker.limits)
      if start == .state, let keys = extras?.beginReading(of: stream, from: first) {
        (place.position, place.count) = (first, UInt64(keys))
      }
      var demand = demand
      let markers = options.marker && reader == nil ? 1 : 0
      if !follows { demand = .max(min(demand.max ?? .max, Int(clamping: place.count) + markers)) }
      var machine = SubscriptionMachine(
        cursor: Cursor(position: place.position), demand: demand,
        onLag: options.onLag ?? configuration.onLag,
        format: EventFormat(
          encoding, ids: options.ids, completes: isSingle, counts: options.filter != nil, hasKind: options.marker,
          hasName: options.names),
        phase: isCurrent ? .idle : .updating(beginsWithNewest: start == .replay || start == .latest),
        gap: options.gaps ? missed ?? place.gap : nil)
      if extras?.reading != nil { machine.readState() }
      if awaitedID > 0 { machine.awaitEvent(awaitedID) }
      let subscription = insert(request, lane, machine, extras)
      lane.add(subscription)
      if awaitedID > 0 { limitAwaiting(of: subscription) }
      worker.trace(
        identity, stream: stream.name,
        isSingle
          ? "requests a value"
          : "subscribes from event \(place.position), with \(demand.max.map { "a credit of \($0)" } ?? "unlimited credit")"
      )
    } catch {
      if let reader { end(reader, with: error) } else { refuse(request, error, of: stream.name) }
    }
  }

  /// The extras of a subscription, which joins the others with its filter.
  /// - Parameter limits: the limits for the filter of a new subscription; nil: the subscription exists already.
  private func extras(
    _ filter: EventFilter?, isNeeded: Bool = false, of stream: ServedStream, in reader: PatternReader? = nil,
    within limits: ServerLimits? = nil
  ) throws(RequestFailure) -> SubscriptionExtras? {
    guard filter != nil || isNeeded || reader != nil else { return nil }
    var verdicts: FilterVerdicts?
    if let filter {
      verdicts = try stream.filters.join(
        worker.compiled(filter), share.account, of: stream, in: worker.accounts, within: limits)
    }
    return SubscriptionExtras(verdicts: verdicts, reader: reader)
  }

  /// Ends a subscription if the event after which it resumes does not come in time. A response, which has begun, goes on
  /// after a gap.
  private func limitAwaiting(of subscription: StreamSubscription) {
    let wait = worker.limits.resumeWait
    subscription.extras?.awaitTimer = worker.loop.schedule(after: wait) { [weak subscription] in
      guard let subscription else { return }
      subscription.extras?.awaitTimer = nil
      let id = subscription.machine.notes.awaitedID
      let end = subscription.lane.stream.log.read { storage, _ in storage.endPosition }
      guard id >= end else { return }
      let connection = subscription.connection
      guard !subscription.machine.format.isBody else { return subscription.machine.awaitNoMore(from: end) }
      let time = wait.inWords
      connection.fail(
        subscription,
        .init(.unknownPosition, SubscribeOptions.Start.unknown(id) + ": this host was given \(time) to receive it"))
    }
  }

  /// Creates a subscription of this connection; the caller adds it to its lane.
  func insert(
    _ request: RequestID, _ lane: Lane, _ machine: SubscriptionMachine, _ extras: SubscriptionExtras? = nil
  ) -> StreamSubscription {
    let subscription = StreamSubscription(connection: self, lane: lane, request: request, machine, extras)
    if let reader = extras?.reader { reader.insert(subscription) } else { subscriptions.insert(subscription) }
    worker.perform(machine.begin(), subscription)
    return subscription
  }

  /// - Returns: whether the stream is current; if not, its lane is notified when it is.
  private func refresh(_ stream: ServedStream) -> Bool {
    guard let rendering = stream.rendering else { return true }
    return rendering.isCurrent(in: stream, for: worker) { [worker] in
      worker.loop.execute { worker.existingLane(of: stream)?.streamIsCurrent() }
    }
  }

  // MARK: Calls of the worker

  /// Whether neither the subscription nor the connection has ended. A loop over subscriptions may reach one that has
  /// ended, because the end of another one can close the connection.
  private func isLive(_ subscription: StreamSubscription) -> Bool { phase == .open && subscription.phase != .ended }

  /// The stream has ended, and all events were sent.
  func end(_ subscription: StreamSubscription, with completion: Subscribers.Completion<StreamFailure>) {
    worker.loop.assertOnLoop()
    guard isLive(subscription) else { return }
    guard subscription.extras?.reader == nil else { return remove(subscription) }
    switch completion {
    case .finished:
      speaker?.sendCompletion(subscription.request)
      remove(subscription)
      _ = flush()
    case .failure(let failure): fail(subscription, .init(.failed, failure.message))
    }
  }

  /// Ends one request with an error. Does nothing for one that has ended.
  func fail(_ subscription: StreamSubscription, _ failure: RequestFailure) {
    guard isLive(subscription) else { return }
    if let reader = subscription.extras?.reader {
      guard !PatternReader.isOfOneStream(failure.reason) else { return remove(subscription) }
      return end(reader, with: failure)
    }
    sendFailure(subscription.request, failure)
    remove(subscription)
    _ = flush()
  }

  /// The last piece of the request is written, or buffered.
  func complete(_ subscription: StreamSubscription) {
    guard isLive(subscription) else { return }
    speaker?.forget(subscription.request)
    remove(subscription)
  }

  /// The client has cancelled, or the request has ended. Does nothing if the connection has ended meanwhile, because an answer
  /// was written to a socket that the client has closed.
  func remove(_ subscription: StreamSubscription) {
    worker.loop.assertOnLoop()
    guard subscription.phase != .ended else { return }
    subscriptions.remove(subscription)
    if subscription.phase == .ready { worker.leaveQueue(self) }
    subscription.lane.remove(subscription)
    subscription.extras?.reader?.remove(subscription)
    worker.release(subscription.lane)
    settle()
    speaker?.didRemove()
  }

  // MARK: Changes of streams

  /// Ends a subscription to a stream that the client may no longer read.
  func reapplyReadAccess(to subscription: StreamSubscription) {
    worker.loop.assertOnLoop()
    let stream = subscription.lane.stream
    guard isLive(subscription), !admits(stream.configuration.read) else { return }
    if subscription.extras?.reader == nil { refuse(subscription.request, mayNotRead(stream)) }
    remove(subscription)
    _ = flush()
  }

  /// Ends a subscription whose stream now has events of another type, if its response would have to write them in
  /// another form than its head says, or cannot write them. The client can make the request again.
  func reapplyType(to subscription: StreamSubscription) {
    worker.loop.assertOnLoop()
    guard isLive(subscription),
      let failure = Self.typeFailure(of: subscription.lane.stream, subscription.machine.format)
    else { return }
    let (reader, stream, position) = (
      subscription.extras?.reader, subscription.lane.stream, subscription.cursor.position
    )
    fail(subscription, failure)
    reader?.offer(stream, from: position)  // a member goes on in another form
  }

  private static func typeFailure(of stream: ServedStream, _ format: EventFormat) -> RequestFailure? {
    guard case .body(let encoding, _) = format.encoding else { return nil }
    let type = stream.configuration.type
    guard encoding.with(EventEncoding.Content(ofType: type)) != encoding else { return nil }
    return .init(.typeChanged, "the type of \"\(stream.name)\" is \(type) now")
  }

  /// Moves to the view of a system stream for the client's present access, at its newest event.
  func changeView(of subscription: StreamSubscription) {
    worker.loop.assertOnLoop()
    let (name, former) = (subscription.lane.stream.name, subscription.machine)
    var visible = worker.streams[name].flatMap(view)
    guard visible !== subscription.lane.stream else { return }
    // Another view does not know which rows the client has.
    guard subscription.lane.stream.configuration.key == nil else { return fail(subscription, .lostState(of: name)) }
    // A client's ids never decrease.
    if let behind = visible,
      behind.log.read({ storage, _ in storage.position(ofLast: 1) }) < former.cursor.position
    {
      visible = worker.streams[name].flatMap { view(of: $0, inPlaceOf: behind) }
    }
    guard let stream = visible else { return fail(subscription, .tooManyViews(of: name)) }
    // A response with one event has the event's size in its head.
    guard former.cursor.sentBytes == 0, !(former.format.isBody && former.format.completes) else {
      return fail(subscription, .eventLost(former.cursor.position))
    }
    let extras: SubscriptionExtras?
    do {
      extras = try self.extras(subscription.extras?.verdicts?.filter, of: stream)
    } catch {
      return fail(subscription, error)
    }
    remove(subscription)
    let lane = worker.lane(of: stream)
    var machine = SubscriptionMachine(
      cursor: Cursor(position: stream.log.read { storage, _ in storage.position(ofLast: 1) }), demand: former.demand,
      onLag: former.onLag, format: former.format,
      phase: refresh(stream) ? .idle : .updating(beginsWithNewest: true), gap: former.reportsGaps ? .unknown : nil)
    let notes = subscription.machine.notes  // with the events that the group of its filter has left out
    machine.resume(leftOut: notes.leftOut, sentAt: notes.sentAt)
    lane.add(insert(subscription.request, lane, machine, extras))
  }

  // MARK: Handover

  /// Restores a subscription of another process. If it would be refused now, it ends with the same error.
  func restore(_ saved: SavedConnection.Subscription) {
    worker.loop.assertOnLoop()
    let (request, name) = (RequestID(saved.id), saved.stream)
    let reader = readers[request]
    func sendFailure(_ request: RequestID, _ failure: RequestFailure) {
      guard let reader else { return self.sendFailure(request, failure) }
      if !PatternReader.isOfOneStream(failure.reason) { end(reader, with: failure) }
    }
    guard let stream = worker.streams[name].flatMap(view) else { return sendFailure(request, .removed(name)) }
    guard admits(stream.configuration.read) else {
      return reader == nil ? refuse(request, mayNotRead(stream)) : ()
    }
    guard stream.rendering == nil || stream.configuration.key == nil else {
      return sendFailure(request, .lostState(of: name))
    }
    // An earlier version has written raw text without separators: the response continues without them.
    let isBare =
      if case .body(let encoding, _) = saved.format.encoding {
        encoding.format == .raw && encoding.content == .binary
      } else {
        false
      }
    if !isBare, let failure = Self.typeFailure(of: stream, saved.format) { return sendFailure(request, failure) }
    guard !saved.format.isMap else { return restoreDemand(saved, on: stream) }
    guard let cursor = saved.state == nil ? stream.restored(saved.cursor) : saved.cursor else {
      return sendFailure(request, .eventLost(saved.cursor.position))
    }
    let lost = saved.state == nil ? stream.eventsLost(from: saved.cursor) : 0
    if lost > 0 { worker.countLost(lost, by: identity, of: stream) }
    guard lost == 0 || saved.onLag != .fail else {
      return sendFailure(request, .lagged(lost))
    }
    let extras: SubscriptionExtras?
    do {
      extras = try self.extras(
        saved.filter, isNeeded: saved.state != nil || saved.awaitedID > 0, of: stream, in: reader)
    } catch {
      return sendFailure(request, error)
    }
    if let state = saved.state {
      extras?.beginReading(of: stream, from: cursor.position, continuing: state)
      guard extras?.reading != nil else {
        if let filter = saved.filter { stream.filters.leave(filter, share.account, in: worker.accounts) }
        return sendFailure(request, .lostState(of: name))
      }
    }
    var gap = saved.gap
    if cursor.position != saved.cursor.position { gap? += stream.gap(from: saved.cursor) }
    let lane = worker.lane(of: stream)
    var machine = SubscriptionMachine(
      cursor: cursor, demand: saved.credit, onLag: saved.onLag,
      format: saved.format.with(names: reader?.options.names == true), gap: gap)
    if saved.state != nil { machine.readState() }
    machine.resume(leftOut: saved.leftOut, sentAt: saved.markers == .current ? worker.loop.now : nil)
    if saved.awaitedID > 0 { machine.awaitEvent(saved.awaitedID) }
    let subscription = insert(request, lane, machine, extras)
    lane.addRestored(subscription)
    if saved.awaitedID > 0 { limitAwaiting(of: subscription) }
  }
}

extension Connection: Hashable {
  static func == (one: Connection, other: Connection) -> Bool { one === other }
  func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(self)) }
}
