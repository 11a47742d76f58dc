import StreamProtocol
import Reactive

/// The position of a subscriber: an event of the log, and how much of that event was sent.
struct Cursor: Equatable {
  /// The id of the next event to be sent.
  var position: UInt64
  /// Data bytes of it that were sent as fragments; non-zero only between two fragments.
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

/// The state of one subscription: a cursor, a demand, and what it waits for. Knows no socket, no log, no queue and no clock.
///
/// Each method is an event; its result is the action that the caller must perform (`Worker.perform`), and never performed
/// here. A subscription is in exactly one of the lists that the states name. An event that means nothing in the present
/// state returns `.none`: a callback may arrive after the end.
struct SubscriptionMachine: Equatable {
  enum State: Equatable {
    /// No demand. Can become: ready, standby, ended.
    case idle
    /// Demand, and nothing to send: in its lane's waiting list. Can become: ready, standby, ended.
    case waiting
    /// In its user's queue. Can become: serving, ended.
    case ready
    /// Taken out of that queue for one write. Can become: idle, waiting, ready, standby, blocked, ended.
    case serving
    /// As ready, but its connection has as many in the queue as it may. Can become: ready, ended.
    case standby
    /// Waits for a system stream to be brought up to date, to begin with its newest event or at its cursor.
    /// Can become: ready, standby, ended.
    case updating(beginsWithNewest: Bool)
    /// The socket is full. Can become: ready, standby, ended.
    case blocked
    /// Answered or cancelled.
    case ended
  }

  /// What the caller must do.
  enum Action: Equatable {
    case none
    /// Put it into the queue, and tell `queue(hasPlace:)` which one.
    case enqueue
    /// Write what was found, and tell `wrote`.
    case send
    /// Put it into its lane's waiting list.
    case wait
    /// Nothing, until demand or room in the socket comes; where no event may be dropped it may hold the stream up now.
    case rest
    /// End the request as the stream has ended.
    case finish
    /// End the request: its one value is sent.
    case complete
    /// End the request with an error.
    case fail(Failure)
  }

  enum Failure: Equatable {
    /// The rest of an event is gone of which the client has a part: the subscription cannot continue.
    case cutOff(position: UInt64)
    /// So many events are gone, and the client asked to fail then.
    case lagged(UInt64)
  }

  /// What the log has at the cursor.
  enum Finding: Equatable {
    /// Events, at least one.
    case events
    /// Nothing yet, or ever.
    case nothing
    /// The cursor's event is gone, with so many in all; `next` is where the subscription continues, and what it then
    /// misses.
    case overtaken(next: UInt64, lost: UInt64, missed: Gap)
    /// The cursor stands in the gap of the log's ids, which another log has moved; it stands for this position.
    case inGap(end: UInt64)
  }

  private(set) var cursor: Cursor
  private(set) var demand: Subscribers.Demand
  private(set) var state: State
  let onLag: LagPolicy
  let format: EventFormat

  /// - Parameter state: `idle`, or `updating`.
  init(
    cursor: Cursor, demand: Subscribers.Demand, onLag: LagPolicy, format: EventFormat, state: State = .idle
  ) {
    self.cursor = cursor
    self.demand = demand
    self.onLag = onLag
    self.format = format
    self.state = state
  }

  /// The position before which its demand covers everything; 0 without demand. Of a response the space in the socket is
  /// the demand: one that is blocked demands nothing.
  var requestedThrough: UInt64 {
    guard demand > .none, !(format.isBody && state == .blocked) else { return 0 }
    return demand.max.map { cursor.position &+ UInt64($0) } ?? .max
  }

  /// Whether only demand or room in its socket brings it further.
  var isResting: Bool { state == .idle || state == .blocked }

  // MARK: Queues

  /// It was put into its user's queue, or into its connection's of those that have no place there.
  mutating func queue(hasPlace: Bool) {
    if state != .ended { state = hasPlace ? .ready : .standby }
  }

  /// Its turn has come.
  /// - Returns: false for one that has ended in the queue.
  mutating func take() -> Bool {
    guard state == .ready else { return false }
    state = .serving
    return true
  }

  // MARK: Events

  /// It begins, or continues in this process: whether there is something to send shows in its turn.
  func begin() -> Action { state == .idle ? .enqueue : .none }

  /// The client requested more.
  mutating func request(_ more: Subscribers.Demand) -> Action {
    demand += more
    return state == .idle ? .enqueue : .none
  }

  /// The log has more than when it was looked at.
  func logGrew() -> Action { state == .waiting ? .enqueue : .none }

  /// The log has ended: that is delivered without demand.
  func logEnded() -> Action { state == .waiting || state == .idle ? .enqueue : .none }

  /// The system stream is current.
  /// - Parameter newest: the position of its newest event.
  mutating func becameCurrent(newest: UInt64) -> Action {
    guard case .updating(let beginsWithNewest) = state else { return .none }
    if beginsWithNewest, newest > cursor.position { cursor = Cursor(position: newest) }
    state = .idle
    return .enqueue
  }

  /// The socket is full before anything was written.
  mutating func socketIsFull() -> Action {
    guard state == .serving else { return .none }
    state = .blocked
    return .rest
  }

  /// The socket has room again.
  func socketIsWritable() -> Action { state == .blocked ? .enqueue : .none }

  /// It has looked at the log.
  /// - Parameter hasEnded: the log gets no more events.
  mutating func found(_ finding: Finding, hasEnded: Bool) -> Action {
    guard state == .serving else { return .none }
    switch finding {
    case .overtaken(let next, let lost, _): return overtaken(next: next, lost: lost)
    case .inGap(let end):
      guard cursor.sentBytes == 0 else { return .fail(.cutOff(position: cursor.position)) }
      cursor = Cursor(position: end)
      return .enqueue
    case .nothing where hasEnded: return .finish
    case .events where demand > .none: return .send
    case .nothing where demand > .none:
      state = .waiting
      return .wait
    case .nothing, .events:
      state = .idle
      return .rest
    }
  }

  private mutating func overtaken(next: UInt64, lost: UInt64) -> Action {
    guard cursor.sentBytes == 0 else { return .fail(.cutOff(position: cursor.position)) }
    guard onLag != .fail else { return .fail(.lagged(lost)) }
    cursor = Cursor(position: next)
    return .enqueue
  }

  /// It has written.
  ///
  /// - Parameters:
  ///   - count: events whose last byte was written, or is kept as the rest of a frame; each costs one unit of demand.
  ///   - next: the cursor after that.
  ///   - isWhole: the socket took all that it was given.
  ///   - isLast: nothing was left in the log at `next`.
  ///   - hasEnded: the log gets no more events.
  mutating func wrote(_ count: Int, upTo next: Cursor, isWhole: Bool, isLast: Bool, hasEnded: Bool) -> Action {
    cursor = next
    if count > 0 { demand -= .max(count) }
    if format.completes, count > 0 { return .complete }
    guard isWhole else {
      state = .blocked
      return .rest
    }
    if isLast, hasEnded { return .enqueue }
    guard demand > .none else {
      state = .idle
      return .rest
    }
    guard isLast else { return .enqueue }
    state = .waiting
    return .wait
  }

  /// It continues elsewhere than where it was made for.
  mutating func move(to cursor: Cursor) { self.cursor = cursor }

  /// Answered, cancelled, or its connection is gone.
  mutating func end() { state = .ended }
}
