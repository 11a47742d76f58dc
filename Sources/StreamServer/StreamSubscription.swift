import RSocket
import Reactive

/// Where a subscriber stands: a position in the log, and how much of that event it has already got.
struct Cursor: Equatable {
  /// The id of the next event to be sent.
  var position: UInt64
  /// Data bytes of it that were sent as fragments. Only ever non-zero between two fragments.
  var sentBytes: Int {
    get { Int(sent) }
    set { sent = UInt32(clamping: newValue) }
  }
  /// Small, as every subscription has one; an event's size has 32 bits.
  private var sent: UInt32

  init(position: UInt64, sentBytes: Int = 0) {
    self.position = position
    sent = UInt32(clamping: sentBytes)
  }
}

/// Events that a subscriber has missed and was not told of.
struct Gap: Equatable {
  /// As on the wire: 0 for none, all bits for a number that cannot be known.
  private(set) var count: UInt64

  static let none = Gap(count: 0)
  static let unknown = Gap(count: .max)

  init(count: UInt64) { self.count = count }

  /// - Parameter missed: `nil`: it cannot be known.
  init(_ missed: UInt64?) { count = missed ?? .max }

  static func += (gap: inout Gap, more: Gap) {
    let (sum, overflow) = gap.count.addingReportingOverflow(more.count)
    gap.count = overflow ? .max : sum
  }
}

/// One request for a stream: a cursor and a demand, nothing more. Its demand is the client's credit.
final class StreamSubscription {
  /// Where it is, as the loop sees it. Every change goes through `Lane` or `Worker`.
  enum State: Equatable {
    /// No credit: costs nothing until some arrives. Becomes: ready, ended.
    case idle
    /// Credit, and nothing to send: in its lane's waiting list. Becomes: ready, ended.
    case waiting
    /// In its user's queue. Becomes: serving, ended.
    case ready
    /// Taken out of the queue for one write. Becomes: idle, waiting, ready, standby, blocked, ended.
    case serving
    /// As ready, but others of its session are in the queue. Becomes: ready, ended.
    case standby
    /// Waits for a system stream to be brought up to date, to begin with its newest event or where its cursor is.
    /// Becomes: ready, ended.
    case updating(beginsWithNewest: Bool)
    /// The socket is full. Becomes: ready, ended.
    case blocked
    /// Answered or cancelled.
    case ended
  }

  /// Which lists it for as long as it is live, and no longer.
  let session: Session
  let lane: Lane
  // In this order, and the last as small as they are, because there may be very many.
  var cursor: Cursor
  var credit: Subscribers.Demand
  var state = State.idle
  let frames: FrameFormat
  let onLag: LagPolicy
  let tellsGaps: Bool
  let id: StreamID
  /// Its place in the lane's list of all.
  var memberIndex: Int32 = 0
  /// Its place in the lane's waiting list, while it is in there.
  var waitingIndex: Int32 = 0

  /// The position before which its credit covers everything; 0 without credit.
  var reach: UInt64 {
    guard credit > .none else { return 0 }
    return credit.max.map { cursor.position &+ UInt64($0) } ?? .max
  }

  init(
    session: Session, lane: Lane, id: StreamID, frames: FrameFormat, onLag: LagPolicy, cursor: Cursor,
    credit: Subscribers.Demand, gap: Gap?
  ) {
    self.session = session
    self.lane = lane
    self.id = id
    self.frames = frames
    self.onLag = onLag
    self.cursor = cursor
    self.credit = credit
    tellsGaps = gap != nil
    if let gap { miss(gap) }
  }

  /// What was missed before the event at its cursor; `none` where it did not ask for that. The lane has those of its few
  /// members with one.
  var gap: Gap { tellsGaps ? lane.gaps[ObjectIdentifier(self)] ?? .none : .none }

  /// Events before the cursor were missed.
  func miss(_ more: Gap) {
    guard tellsGaps, more != .none else { return }
    lane.gaps[ObjectIdentifier(self), default: .none] += more
  }

  /// What was missed is told, or of no interest any more: the event at the cursor is on its way.
  func tellGap() {
    if !lane.gaps.isEmpty { lane.gaps[ObjectIdentifier(self)] = nil }
  }
}

/// The subscriptions of one session, by request: nearly always one, which therefore needs no table.
struct SubscriptionList: Sequence {
  private var first: StreamSubscription?
  private var others: [StreamID: StreamSubscription] = [:]

  var isEmpty: Bool { first == nil && others.isEmpty }

  /// - Complexity: O(1), however many there are.
  subscript(id: StreamID) -> StreamSubscription? { first?.id == id ? first : others[id] }

  mutating func insert(_ subscription: StreamSubscription) {
    if first == nil { first = subscription } else { others[subscription.id] = subscription }
  }

  /// Does nothing for one that is not in here.
  mutating func remove(_ subscription: StreamSubscription) {
    if first === subscription {
      first = nil
    } else if others[subscription.id] === subscription {
      others[subscription.id] = nil
      if others.isEmpty { others = [:] }
    }
  }

  func makeIterator() -> some IteratorProtocol<StreamSubscription> {
    sequence(state: (first: first, others: others.values.makeIterator())) { state in
      state.first.take() ?? state.others.next()
    }
  }
}
