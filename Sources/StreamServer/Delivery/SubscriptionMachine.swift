import StreamProtocol
import Reactive
import ReplayLog

/// The position of a subscription: an event of the log, and the sent bytes of that event.
struct Cursor: Equatable {
  /// The id of the next event to be sent.
  var position: UInt64
  /// Data bytes of that event that were sent as fragments; non-zero only between two fragments.
  var sentBytes: Int {
    get { Int(sent) }
    set { sent = UInt32(clamping: newValue) }
  }
  /// Small, because every subscription has one; an event's size has 32 bits.
  private var sent: UInt32

  init(position: UInt64, sentBytes: Int = 0) {
    self.position = position
    sent = UInt32(clamping: sentBytes)
  }
}

/// Missed events of a subscription that were not reported.
struct Gap: Equatable {
  /// The number of missed events, as on the wire: 0 for none, all bits for an unknown number.
  private(set) var count: UInt64

  static let none = Gap(count: 0)
  static let unknown = Gap(count: .max)

  init(count: UInt64) { self.count = count }

  /// - Parameter missed: `nil`: unknown.
  init(_ missed: UInt64?) { count = missed ?? .max }

  static func += (gap: inout Gap, more: Gap) {
    let (sum, overflow) = gap.count.addingReportingOverflow(more.count)
    gap.count = overflow ? .max : sum
  }
}

/// The machine of one subscription: its cursor, its demand, the list in which it waits, and the notes for its next
/// payload. It uses no socket, log, queue or clock.
///
/// Each method is an input; its result is the actions that the caller must perform, in order (`Worker.perform`). A
/// subscription is in exactly one of the lists that the phases name. An input without effect in the present phase
/// returns `.none`: a callback may arrive after the end.
struct SubscriptionMachine: Equatable {
  enum Phase: Equatable {
    /// No demand. Can become: ready, standby, ended.
    case idle
    /// Has demand, but nothing to send: in its lane's waiting list. Can become: ready, standby, ended.
    case waiting
    /// In its user's queue. Can become: serving, ended.
    case ready
    /// Removed from that queue for one write. Can become: idle, waiting, ready, standby, blocked, ended.
    case serving
    /// Like `ready`, but its connection is at the limit of subscriptions in the queue. Can become: ready, ended.
    case standby
    /// Waits for the update of a system stream, to begin with its newest event or at its cursor.
    /// Can become: ready, standby, ended.
    case updating(beginsWithNewest: Bool)
    /// The socket is full. Can become: ready, standby, ended.
    case blocked
    /// Completed, failed or cancelled.
    case ended
  }

  /// The action that the caller must perform.
  enum Action: Equatable {
    case none
    /// Put it into a queue, and call `queue(hasPlace:)`.
    case enqueue
    /// Write the events that were found, and call `wrote`.
    case send
    /// Put it into its lane's waiting list.
    case wait
    /// Do nothing until there is demand or space in the socket. The subscription may stall a lossless stream now.
    case rest
    /// End the request like the stream.
    case finish
    /// End the request: its single event is sent.
    case complete
    /// End the request with an error.
    case fail(Failure)
    /// Count and report events that were evicted before they were sent.
    case lost(UInt64)
    /// Tell the lane that the cursor has moved from this position over events that are not sent.
    case skipped(from: UInt64)
    /// As `skipped`, over events that do not fit the filter. The members for which the subscription is the scout have
    /// passed them, too.
    case passed(from: UInt64)
    /// Tell the lane that the cursor has moved from this position, past this number of events that were sent.
    case moved(from: UInt64, past: Int)
    /// Release the state that it has read to its end.
    case endState
  }

  /// Up to three actions, in order.
  struct Actions: Equatable {
    let first: Action
    let second: Action
    let third: Action

    init(_ first: Action, _ second: Action = .none, _ third: Action = .none) {
      (self.first, self.second, self.third) = (first, second, third)
    }

    func contains(_ action: Action) -> Bool { first == action || second == action || third == action }
  }

  enum Failure: Equatable {
    /// The rest of a partly sent event was evicted: the subscription cannot continue.
    case cutOff(position: UInt64)
    /// The state that it reads is gone, or lacks events.
    case lostState
    /// This number of events was evicted, and `on_lag` is `"fail"`.
    case lagged(UInt64)
  }

  /// The content of the log at the cursor.
  enum Finding: Equatable {
    /// Events, at least one.
    case events
    /// No event: none yet, or the log has ended.
    case nothing
    /// No event, and a marker.
    case marker
    /// None of the events before this position fits the filter; there may be more to examine.
    case passed(upTo: UInt64)
    /// The same in a state. The filter has left out `leftOut` events since the last payload. `isEnd`: the position is
    /// the end of the state.
    case readState(upTo: UInt64, leftOut: UInt64, isEnd: Bool)
    /// The state that it reads is gone, or lacks events.
    case lostState
    /// An event of which only a part was examined. The next turn examines more.
    case unexamined
    /// The event at the cursor was evicted. `next` is the position to continue at, `lost` the number of evicted events
    /// before it, and `missed` the gap before it.
    case overtaken(next: UInt64, lost: UInt64, missed: Gap)
    /// The client has the events before this position, which have come after the subscription: from another host.
    case known(upTo: UInt64)
    /// The cursor is in the hole of the log's ids, which came after the subscription. It continues at this position,
    /// after events that may be lost.
    case inGap(end: UInt64)
  }

  /// The result of a write.
  struct Written: Equatable {
    /// Events whose last byte was written, or buffered as the rest of a frame; each costs one unit of demand.
    var count: Int
    /// The cursor after these events.
    var cursor: Cursor
    /// Whether the log has no event at the cursor.
    var isLast = false
    /// Whether any byte was written.
    var hasBegun = true
    /// The gap before the cursor.
    var gap = Gap.none
    /// Events that the filter has left out since the last event that was sent.
    var leftOut: UInt64 = 0
    /// Whether the payload was a marker.
    var isMarker = false
    /// Whether the events came from a state, and the cursor is at its end.
    var isStateEnd = false
  }

  /// The notes that few subscriptions have: reports for the next payload, and the progress of what was sent.
  struct Notes: Equatable {
    /// Missed events before the cursor.
    var gap = Gap.none
    /// Events that the filter has left out since the last payload.
    var leftOut: UInt64 = 0
    /// Whether it reads a state in place of the log: its cursor then is the id of the state's next event.
    var isReadingState = false
    /// Events of the state that were sent.
    var stateCount: UInt64 = 0
    /// The id after which it resumes, which no event had when it began; 0: none.
    var awaitedID: UInt64 = 0
    /// When it was last sent a payload, in nanoseconds on the loop's clock; nil until its first marker.
    var sentAt: UInt64?
  }

  // The order saves memory: there may be very many subscriptions.
  private var boxedNotes = Boxed<Notes>?.none
  private(set) var cursor: Cursor
  private(set) var phase: Phase
  let onLag: LagPolicy
  let format: EventFormat
  private(set) var demand: Subscribers.Demand
  /// Whether missed events are reported.
  let reportsGaps: Bool

  /// - Parameters:
  ///   - phase: `idle`, or `updating`.
  ///   - gap: missed events before the cursor; nil: missed events are not reported.
  init(
    cursor: Cursor, demand: Subscribers.Demand, onLag: LagPolicy, format: EventFormat, phase: Phase = .idle,
    gap: Gap? = nil
  ) {
    self.cursor = cursor
    self.demand = demand
    self.onLag = onLag
    self.format = format
    self.phase = phase
    reportsGaps = gap != nil
    if let gap { miss(gap) }
  }

  var notes: Notes { boxedNotes?.value ?? Notes() }

  /// A subscription that counts left-out events keeps the memory of its notes for the next ones.
  private mutating func edit(_ change: (inout Notes) -> Void) {
    if boxedNotes == nil { boxedNotes = Boxed(Notes()) }
    boxedNotes?.edit(change)
    if !format.counts, boxedNotes?.value == Notes() { boxedNotes = nil }
  }

  /// The gap before the event at its cursor.
  var gap: Gap { boxedNotes?.value.gap ?? .none }
  /// Whether payloads without data show that it is current.
  var hasMarkers: Bool { format.hasKind }

  /// The position before which its demand covers everything; 0 without demand. The demand of a response is the space in
  /// the socket: while it is blocked, it has none.
  var requestedThrough: UInt64 {
    guard demand > .none, !(format.isBody && phase == .blocked) else { return 0 }
    return demand.max.map { cursor.position &+ UInt64($0) } ?? .max
  }

  /// Whether it waits only for demand or space in its socket.
  var isResting: Bool { phase == .idle || phase == .blocked }

  // MARK: Queues

  /// It was put into its user's queue, or into its connection's standby list.
  mutating func queue(hasPlace: Bool) {
    if phase != .ended { phase = hasPlace ? .ready : .standby }
  }

  /// Its turn begins.
  /// - Returns: false if it has ended in the queue.
  mutating func take() -> Bool {
    guard phase == .ready else { return false }
    phase = .serving
    return true
  }

  /// It gives its turn back, because another member of its pattern has to send first.
  mutating func yield() { if phase == .serving { phase = .idle } }

  // MARK: Events

  /// It has the credit of all members of its pattern.
  mutating func lend(_ demand: Subscribers.Demand) { self.demand = demand }

  /// It begins, or continues in this process; its turn determines whether there are events to send.
  func begin() -> Action { phase == .idle ? .enqueue : .none }

  /// The client requested more.
  mutating func request(_ more: Subscribers.Demand) -> Action {
    guard !format.isMap else {
      grant(more)
      return .none
    }
    demand += more
    return phase == .idle ? .enqueue : .none
  }

  /// The first grant of a map's reader stays its demand; each further one shows that it has read on.
  private mutating func grant(_ more: Subscribers.Demand) {
    guard let count = more.max else {
      demand = .unlimited
      return
    }
    cursor.position = min(cursor.position &+ UInt64(count), EventLog.idLimit)
  }

  /// The log has grown.
  func logGrew() -> Action { phase == .waiting ? .enqueue : .none }

  /// The log has ended. The end is delivered without demand.
  func logEnded() -> Action { phase == .waiting || phase == .idle ? .enqueue : .none }

  /// The system stream is current.
  /// - Parameter newest: the position of its newest event.
  mutating func becameCurrent(newest: UInt64) -> Action {
    guard case .updating(let beginsWithNewest) = phase else { return .none }
    if beginsWithNewest, newest > cursor.position { cursor = Cursor(position: newest) }
    phase = .idle
    return .enqueue
  }

  /// The socket was full before any write.
  mutating func socketIsFull() -> Action {
    guard phase == .serving else { return .none }
    phase = .blocked
    return .rest
  }

  /// The socket has space again.
  func socketIsWritable() -> Action { phase == .blocked ? .enqueue : .none }

  /// The log was read at its cursor.
  /// - Parameter hasEnded: whether the log has ended.
  mutating func found(_ finding: Finding, hasEnded: Bool) -> Actions {
    guard phase == .serving else { return Actions(.none) }
    let position = cursor.position
    switch finding {
    case .overtaken(let next, let lost, let missed):
      guard cursor.sentBytes == 0 else { return Actions(.lost(lost), .fail(.cutOff(position: position))) }
      guard onLag != .fail else { return Actions(.lost(lost), .fail(.lagged(lost))) }
      cursor = Cursor(position: next)
      miss(missed)
      return Actions(.lost(lost), .skipped(from: position), .enqueue)
    case .inGap(let end):
      guard cursor.sentBytes == 0 else { return Actions(.fail(.cutOff(position: position))) }
      cursor = Cursor(position: end)
      miss(.unknown)
      return Actions(.skipped(from: position), .enqueue)
    case .known(let end):
      cursor = Cursor(position: end)
      if end > notes.awaitedID { edit { $0.awaitedID = 0 } }
      return Actions(.skipped(from: position), .enqueue)
    case .unexamined: return Actions(.enqueue)
    case .lostState: return Actions(.fail(.lostState))
    case .passed(let end):
      leaveOut(end - position, upTo: end)
      return Actions(.passed(from: position), .enqueue)
    case .readState(let end, let leftOut, let isEnd):
      cursor = Cursor(position: end)
      edit {
        $0.leftOut = leftOut
        if isEnd { $0.isReadingState = false }
      }
      return Actions(isEnd ? .endState : .none, .skipped(from: position), .enqueue)
    case .nothing where hasEnded: return Actions(.finish)
    case .events where demand > .none, .marker where demand > .none: return Actions(.send)
    case .nothing where demand > .none && !format.isMap:
      phase = .waiting
      return Actions(.wait)
    case .nothing, .events, .marker:
      phase = .idle
      return Actions(.rest)
    }
  }

  /// Events, or a marker, were written.
  ///
  /// - Parameters:
  ///   - isWhole: whether the write was complete.
  ///   - hasEnded: whether the log has ended.
  ///   - now: on the loop's clock.
  mutating func wrote(_ written: Written, isWhole: Bool, hasEnded: Bool, at now: UInt64) -> Actions {
    let position = cursor.position
    cursor = written.cursor
    if written.count > 0 { demand -= .max(written.count) }
    let isLast = note(written, at: now)
    let moved = Action.moved(from: position, past: written.count)
    let next = next(isWhole: isWhole, isLast: isLast, hasEnded: hasEnded, isAnswered: written.count > 0)
    let end = written.isStateEnd ? Action.endState : .none
    // The subscription waits first: once the log has the new position, it may append the next event.
    return next == .wait ? Actions(end, .wait, moved) : Actions(end, moved, next)
  }

  /// - Returns: whether there is nothing else to send.
  private mutating func note(_ written: Written, at now: UInt64) -> Bool {
    guard written.hasBegun, boxedNotes != nil || written.gap != .none || hasMarkers || written.leftOut > 0
    else { return written.isLast }
    let (reportsGaps, hasMarkers) = (reportsGaps, hasMarkers)
    var mayWait = true
    edit { notes in
      notes.gap = reportsGaps ? written.gap : .none
      notes.leftOut = written.leftOut
      if notes.isReadingState { notes.stateCount += UInt64(written.count) }
      if written.isStateEnd { notes.isReadingState = false }
      if written.isMarker || notes.sentAt != nil { notes.sentAt = now } else { mayWait = !hasMarkers }
    }
    return written.isLast && mayWait  // otherwise its first marker follows
  }

  private mutating func next(isWhole: Bool, isLast: Bool, hasEnded: Bool, isAnswered: Bool) -> Action {
    if format.completes, isAnswered { return .complete }
    guard isWhole else {
      phase = .blocked
      return .rest
    }
    if isLast, hasEnded { return .enqueue }
    guard demand > .none else {
      phase = .idle
      return .rest
    }
    guard isLast else { return .enqueue }
    phase = .waiting
    return .wait
  }

  // MARK: Notes

  /// Adds missed events before the cursor.
  mutating func miss(_ more: Gap) {
    if reportsGaps, more != .none { edit { $0.gap += more } }
  }

  /// Events up to a position were examined, and do not fit the filter.
  mutating func leaveOut(_ count: UInt64, upTo position: UInt64) {
    cursor = Cursor(position: position)
    edit { notes in
      // The client has those up to the event after which it resumes.
      notes.leftOut += position > notes.awaitedID ? min(count, position - notes.awaitedID - 1) : 0
      if position > notes.awaitedID { notes.awaitedID = 0 }
    }
  }

  /// It begins with a state.
  mutating func readState() { edit { $0.isReadingState = true } }

  /// It continues a subscription that was sent payloads before.
  /// - Parameter sentAt: as in `Notes`.
  mutating func resume(leftOut: UInt64, sentAt: UInt64?) {
    edit { ($0.leftOut, $0.sentAt) = (leftOut, sentAt) }
  }

  /// It resumes after an event that is still to come; its cursor is at the log's end.
  mutating func awaitEvent(_ id: UInt64) { edit { $0.awaitedID = id } }

  /// The finding in a log with this end, while the subscription awaits an event; nil: it awaits none, or is past it.
  func finding(whileAwaitingIn end: UInt64) -> Finding? {
    guard let id = boxedNotes?.value.awaitedID, id >= cursor.position else { return nil }
    return end > cursor.position ? .known(upTo: min(end, id + 1)) : .nothing
  }

  /// The event after which it resumes does not come: it continues at the log's end, after an unknown number of missed events.
  mutating func awaitNoMore(from end: UInt64) {
    edit { $0.awaitedID = 0 }
    if phase == .idle { cursor = Cursor(position: end) }
    miss(.unknown)
  }

  /// Whether a marker is due if there is nothing else to send.
  /// - Parameter interval: the longest time without a payload.
  func isMarkerDue(at now: UInt64, after interval: Duration) -> Bool {
    hasMarkers && (notes.sentAt.map { now >= $0 + UInt64(interval / .nanoseconds(1)) } ?? true)
  }

  /// Sets another cursor.
  mutating func move(to cursor: Cursor) { self.cursor = cursor }

  /// Ends it: completed, failed, cancelled, or disconnected.
  mutating func end() { phase = .ended }
}

/// A value in memory of its own: an owner without the value needs no room for it.
private struct Boxed<Value: Equatable>: Equatable {
  private final class Storage {
    var value: Value
    init(_ value: Value) { self.value = value }
  }

  private var storage: Storage

  init(_ value: Value) { storage = Storage(value) }

  var value: Value { storage.value }

  mutating func edit(_ change: (inout Value) -> Void) {
    if !isKnownUniquelyReferenced(&storage) { storage = Storage(storage.value) }
    change(&storage.value)
  }

  static func == (one: Boxed, other: Boxed) -> Bool { one.value == other.value }
}
