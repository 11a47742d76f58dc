import HTTP
import Reactive
import ReplayLog
import StreamProtocol
import StreamRuntime

/// A client's request for all streams that a pattern fits: those that there are, and those that come later.
///
/// Each of them is a *member*: a subscription like any other, in its lane and in its user's queue, and a subscriber of its
/// stream. What differs is that members have one request and one credit, come and go without a word, and send one event at a
/// time. A member that cannot send, because there is no credit or because another one has sent a part of an event, is
/// parked. Each turn of a member lets one parked member continue, so that nothing looks at all of them.
final class PatternReader {
  let pattern: NamePattern
  let connection: Connection
  let request: RequestID
  let options: SubscribeOptions
  /// The encoding of JSON; see `encoding(of:)`.
  let encoding: EventFormat.Encoding
  /// False: members end with the events that exist when they begin.
  let follows: Bool
  /// Events before the first one of each stream that the client may have missed.
  let missed: Gap?
  /// The credit of all members.
  private(set) var demand: Subscribers.Demand
  private(set) var members: [ObjectIdentifier: StreamSubscription] = [:]
  /// The streams that there were at the beginning, and that were not looked at.
  private var present: [PresentStreams] = []
  /// Later ones, and where they begin.
  private var later = Fifo<(stream: ServedStream, position: UInt64)>()
  private var parked = Fifo<StreamSubscription>()
  /// The member that has sent a part of an event.
  private var partial: StreamSubscription?
  /// The member that has its turn.
  private var serving: StreamSubscription?
  private(set) var hasEnded = false
  var clock: PatternClock
  var marker = PatternMarker()

  /// A reader counts as this number of requests, of which one is its own, besides one for each member, because each new
  /// stream is compared with its pattern.
  static let cost = 64

  init(
    _ pattern: NamePattern, _ request: RequestID, _ demand: Subscribers.Demand, _ options: SubscribeOptions,
    as encoding: EventFormat.Encoding, follows: Bool = true, missed: Gap? = nil, on connection: Connection
  ) {
    (self.pattern, self.request, self.options, self.connection) = (pattern, request, options, connection)
    (self.encoding, self.follows, self.missed, self.demand) = (encoding, follows, missed, demand)
    clock = PatternClock(start: options.from.resumeTime ?? EventLoop.wallClock())
  }

  private var worker: Worker { connection.worker }
  /// Whether a member has sent a part of an event.
  var isWithinEvent: Bool { partial != nil }
  var requestCount: Int { Self.cost - 1 + members.count }
  /// Whether streams wait to be looked at, in the turns of the connection.
  var hasOffers: Bool { !present.isEmpty || !later.isEmpty }
  /// Whether all streams were looked at, and no later one is to come.
  var hasAll: Bool { !hasOffers && !worker.hasArrivals }

  /// Begins, or continues in this process: looks at all streams, in the turns of the connection.
  /// - Parameter isRestored: streams that are no members are later ones.
  func begin(isRestored: Bool = false) {
    present = worker.watch(for: self)
    if isRestored {
      while let stream = popPresent() {
        if isWanted(stream) { offer(stream, from: stream.firstID.load(ordering: .relaxed)) }
      }
    }
    connection.waitForTurn()
  }

  /// The next of the streams that there were at the beginning.
  private func popPresent() -> ServedStream? {
    while let last = present.indices.last {
      if let stream = present[last].next() { return stream }
      present.removeLast()
    }
    return nil
  }

  private func isWanted(_ stream: ServedStream) -> Bool { stream.rendering == nil && pattern.fits(stream.name) }

  // MARK: Members

  /// Offers a stream that the pattern fits.
  func offer(_ stream: ServedStream, from position: UInt64) {
    guard members[ObjectIdentifier(stream)] == nil else { return }
    later.append((stream, position))
    connection.waitForTurn()
  }

  /// Looks at streams, and joins those that the client may read.
  func join(until deadline: UInt64) {
    while !hasEnded, EventLoop.monotonicNow() < deadline {
      if let stream = popPresent() {
        if isWanted(stream) { join(stream, from: nil) }
      } else if let (stream, position) = later.popFirst() {
        join(stream, from: position)
      } else {
        break
      }
    }
    guard !hasEnded, !hasOffers else { return }
    present = []
    checkMarker()
    connection.speaker?.didJoin(self)
  }

  /// - Parameter position: where the subscription begins; nil: as the client has asked.
  private func join(_ stream: ServedStream, from position: UInt64?) {
    // One that is no longer in the table may have ended its requests already.
    guard members[ObjectIdentifier(stream)] == nil, worker.streams[stream.name] === stream,
      connection.admits(stream.configuration.read), let encoding = encoding(of: stream)
    else { return }
    do throws(Connection.Refusal) {
      try connection.checkRequests(of: pattern.text, adding: 1)
    } catch {
      return connection.end(self, with: error.failure)
    }
    connection.subscribe(
      request, to: stream, isSingle: false, demand, options, as: encoding, follows: follows,
      missed: position == nil ? missed : nil, in: self, at: position)
    if !follows, let member = members[ObjectIdentifier(stream)], member.machine.demand == .none {
      connection.remove(member)
    }
  }

  /// The encoding of a stream's events; nil: the response cannot have them.
  private func encoding(of stream: ServedStream) -> EventFormat.Encoding? {
    guard case .body(let body, let coding) = encoding else { return encoding }
    return body.with(EventEncoding.Content(ofType: stream.configuration.type)).map { .body($0, coding) }
  }

  func insert(_ member: StreamSubscription) {
    let stream = member.lane.stream
    members[ObjectIdentifier(stream)] = member
    if member.cursor.sentBytes > 0 { partial = member }
    if stream.configuration.isOfFleet { clock.slack = PatternClock.fleetSlack }
  }

  /// A member has left its lane.
  func remove(_ member: StreamSubscription) {
    members[ObjectIdentifier(member.lane.stream)] = nil
    if partial === member { partial = nil }
    guard !hasEnded else { return }
    if serving == nil { resume() }
    if hasAll { checkMarker() }
  }

  /// Whether a member leaves for this reason, while the others continue.
  static func isOfOneStream(_ reason: FailureReason) -> Bool {
    [.removed, .noStream, .mayNotRead, .failed, .typeChanged].contains(reason)
  }

  /// Ends all members.
  /// - Returns: those that have to leave their lanes.
  func end() -> [StreamSubscription] {
    hasEnded = true
    worker.unwatch(for: self)
    marker.stop(on: worker.loop)
    let leaving = Array(members.values)
    (members, present, later, parked, partial, serving) = ([:], [], Fifo(), Fifo(), nil, nil)
    for member in leaving {
      if member.phase == .waiting { member.lane.stopWaiting(member) }
      if member.phase == .ready { worker.leaveQueue(connection) }
      member.machine.end()
    }
    return leaving
  }

  // MARK: Credit

  /// The client requested more.
  func request(_ more: Subscribers.Demand) {
    demand += more
    checkMarker()
    for _ in 0..<Slices.subscriptions { resume() }
  }

  /// Takes credit for a marker.
  func takeCredit() { demand -= .max(1) }

  /// A member's turn begins.
  /// - Returns: false if it cannot send now.
  func admit(_ member: StreamSubscription) -> Bool {
    guard partial == nil || partial === member else {
      member.machine.yield()
      park(member)
      return false
    }
    lend(to: member)
    serving = member
    return true
  }

  /// Members that end with the present events have a demand for these.
  private func lend(to member: StreamSubscription) { if follows { member.lane.lend(demand, to: member) } }

  /// A member has no credit, or is not its turn: others have.
  func park(_ member: StreamSubscription) { if !hasEnded { parked.append(member) } }

  /// A member's turn has ended.
  func didServe(_ member: StreamSubscription) {
    guard !hasEnded, serving === member else { return }
    serving = nil
    if follows { demand = member.machine.demand }
    partial = member.phase != .ended && member.cursor.sentBytes > 0 ? member : nil
    resume()
    if member.phase == .waiting { checkMarker() }
  }

  /// Lets one parked member continue.
  private func resume() {
    guard demand > .none, partial == nil else { return }
    while let next = parked.popFirst() {
      guard next.phase == .idle else { continue }  // it has left, or continues already
      lend(to: next)
      return worker.perform(next.machine.begin(), next)
    }
  }
}

extension SubscribeOptions.Start {
  /// The time from which a client of a pattern resumes, in microseconds since the Unix epoch; nil: it begins.
  var resumeTime: UInt64? { if case .after(let time) = self { time } else { nil } }
}
