import StreamProtocol
import Reactive

/// The position of a subscription: an event of the log, and the sent bytes of that event.
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

/// The state of one subscription: a cursor, a demand, and a wait. Uses no socket, log, queue or clock.
///
/// Each method is an event; its result is the action that the caller must perform (`Worker.perform`).
/// A subscription is in exactly one of the lists that the states name. An event without effect in the present
/// state returns `.none`: a callback may arrive after the end.
struct SubscriptionMachine: Equatable {
  enum State: Equatable {
    /// No demand. Can become: ready, standby, ended.
    case idle
    /// Has demand, but nothing to send: in its lane's waiting list. Can become: ready, standby, ended.
    case waiting
    /// In its user's queue. Can become: serving, ended.
    case ready
    /// Removed from that queue for one write. Can become: idle, waiting, ready, standby, blocked, ended.
    case serving
    /// As ready, but its connection is at the limit of subscriptions in the queue. Can become: ready, ended.
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
    /// Nothing, until there is demand or space in the socket; it may stall a lossless stream now.
    case rest
    /// End the request like the stream.
    case finish
    /// End the request: its single event is sent.
    case complete
    /// End the request with an error.
    case fail(Failure)
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
    /// No event, yet or permanently.
    case nothing
    /// No event, and a marker that says so.
    case marker
    /// None of the events before this position fits the filter; there may be more to examine.
    case passed(upTo: UInt64)
    /// The same of the events of a state; at the end of the state its end.
    case readState(upTo: UInt64)
    /// The state that it reads is gone, or lacks events.
    case lostState
    /// An event whose form is not known yet: a part of it was examined, and the next turn examines more.
    case unexamined
    /// The cursor's event was evicted, with the number of all evicted events; `next` is the position to continue at,
    /// and its gap.
    case overtaken(next: UInt64, lost: UInt64, missed: Gap)
    /// The cursor is in the hole of the log's ids, which came after the subscription; it means this position, after
    /// events that may be lost.
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

  /// Whether it waits only for demand or space in its socket.
  var isResting: Bool { state == .idle || state == .blocked }

  // MARK: Queues

  /// It was put into its user's queue, or into its connection's standby list.
  mutating func queue(hasPlace: Bool) {
    if state != .ended { state = hasPlace ? .ready : .standby }
  }

  /// Its turn begins.
  /// - Returns: false if it has ended in the queue.
  mutating func take() -> Bool {
    guard state == .ready else { return false }
    state = .serving
    return true
  }

  // MARK: Events

  /// It begins, or continues in this process; its turn determines whether there are events to send.
  func begin() -> Action { state == .idle ? .enqueue : .none }

  /// The client requested more.
  mutating func request(_ more: Subscribers.Demand) -> Action {
    demand += more
    return state == .idle ? .enqueue : .none
  }

  /// The log has grown.
  func logGrew() -> Action { state == .waiting ? .enqueue : .none }

  /// The log has ended, which is delivered without demand.
  func logEnded() -> Action { state == .waiting || state == .idle ? .enqueue : .none }

  /// The system stream is current.
  /// - Parameter newest: the position of its newest event.
  mutating func becameCurrent(newest: UInt64) -> Action {
    guard case .updating(let beginsWithNewest) = state else { return .none }
    if beginsWithNewest, newest > cursor.position { cursor = Cursor(position: newest) }
    state = .idle
    return .enqueue
  }

  /// The socket was full before any write.
  mutating func socketIsFull() -> Action {
    guard state == .serving else { return .none }
    state = .blocked
    return .rest
  }

  /// The socket has space again.
  func socketIsWritable() -> Action { state == .blocked ? .enqueue : .none }

  /// The log was read at its cursor.
  /// - Parameter hasEnded: whether the log has ended.
  mutating func found(_ finding: Finding, hasEnded: Bool) -> Action {
    guard state == .serving else { return .none }
    switch finding {
    case .overtaken(let next, let lost, _): return overtaken(next: next, lost: lost)
    case .inGap(let end):
      guard cursor.sentBytes == 0 else { return .fail(.cutOff(position: cursor.position)) }
      cursor = Cursor(position: end)
      return .enqueue
    case .unexamined: return .enqueue
    case .lostState: return .fail(.lostState)
    case .passed(let end), .readState(let end):
      cursor = Cursor(position: end)
      return .enqueue
    case .nothing where hasEnded: return .finish
    case .events where demand > .none, .marker where demand > .none: return .send
    case .nothing where demand > .none:
      state = .waiting
      return .wait
    case .nothing, .events, .marker:
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

  /// Events were written.
  ///
  /// - Parameters:
  ///   - count: events whose last byte was written, or buffered as the rest of a frame; each costs one unit of demand.
  ///   - next: the cursor after that.
  ///   - isWhole: whether the write was complete.
  ///   - isLast: whether the log has no event at `next`.
  ///   - hasEnded: whether the log has ended.
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

  /// Sets another cursor.
  mutating func move(to cursor: Cursor) { self.cursor = cursor }

  /// Ends it: completed, failed, cancelled, or disconnected.
  mutating func end() { state = .ended }
}
