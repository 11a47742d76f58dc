import Reactive
import ReplayLog

/// Missed events of a subscription that were not reported.
struct Gap: Equatable {
  /// As on the wire: 0 for none, all bits for an unknown number.
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

/// A state that a subscription reads before the log.
struct StateReading {
  /// Continues in another state, if the log was replaced.
  var walk: StateWalk
  /// The state's origin.
  let origin: KeyedState.Origin
}

/// What few subscriptions have: a filter, markers, or a state to read first.
final class SubscriptionExtras {
  /// The verdicts of its filter; nil: it receives every event.
  let verdicts: FilterVerdicts?
  /// Events that the filter has left out since the last payload.
  var leftOut: UInt64 = 0
  /// While it reads a state: its cursor is the id of the next event of that.
  var reading: StateReading?
  /// Events of the state that were sent.
  var stateCount: UInt64 = 0
  /// Whether payloads without data show that it is current.
  let hasMarkers: Bool
  /// When it was last sent a payload, in nanoseconds on the loop's clock; nil until its first marker.
  var sentAt: UInt64?
  /// What its filter's group had left out when it began to wait.
  var leftOutBefore: UInt64 = 0

  init(verdicts: FilterVerdicts?, hasMarkers: Bool) { (self.verdicts, self.hasMarkers) = (verdicts, hasMarkers) }

  /// Begins to read the stream's state, if it has one.
  ///
  /// - Parameters:
  ///   - position: the id of the first event that is read.
  ///   - saved: what an earlier process has begun to read; nil: the state of all events.
  /// - Returns: the number of keys; nil if it has none.
  @discardableResult func beginReading(
    of stream: ServedStream, from position: UInt64 = 0, continuing saved: SavedConnection.State? = nil
  ) -> Int? {
    stream.log.read { storage, _ in
      guard let state = storage.state, saved.map({ $0.origin == state.origin }) ?? true else { return nil }
      reading = StateReading(
        walk: state.walk(
          from: position, asOf: min(saved?.end ?? .max, storage.endPosition),
          begin: saved?.begin ?? (position > 0 ? position : nil)),
        origin: state.origin)
      return state.count
    }
  }

  /// Continues in another state of the same keys, if the log was replaced; under its lock.
  func continueReading(in storage: EventLog, from position: UInt64) {
    guard let reading, let state = storage.state, reading.walk.state !== state, state.origin == reading.origin
    else { return }
    self.reading?.walk = state.walk(continuing: reading.walk, from: position, in: storage.endPosition)
  }

  /// Whether a marker is due if there is nothing else to send.
  /// - Parameter interval: the longest time without a payload.
  func isMarkerDue(at now: UInt64, after interval: Duration) -> Bool {
    hasMarkers && (sentAt.map { now >= $0 + UInt64(interval / .nanoseconds(1)) } ?? true)
  }
}

/// One request for a stream: its machine, and its places in lists.
final class StreamSubscription {
  /// Lists the subscription while it is live.
  let connection: Connection
  let lane: Lane
  // In this order, and with small types, because there may be very many subscriptions.
  var machine: SubscriptionMachine
  let reportsGaps: Bool
  let request: RequestID
  let extras: SubscriptionExtras?
  /// Its place in the lane's list of members.
  var memberIndex: Int32 = 0
  /// Its place in the lane's waiting list, if it is in it.
  var waitingIndex: Int32 = 0

  init(
    connection: Connection, lane: Lane, request: RequestID, _ machine: SubscriptionMachine, gap: Gap?,
    _ extras: SubscriptionExtras? = nil
  ) {
    self.connection = connection
    self.extras = extras
    self.lane = lane
    self.request = request
    self.machine = machine
    reportsGaps = gap != nil
    if let gap { miss(gap) }
  }

  var cursor: Cursor { machine.cursor }
  /// The id before its cursor; 0 at the beginning of a state.
  var lastPosition: UInt64 { cursor.position > 0 ? cursor.position - 1 : 0 }
  var state: SubscriptionMachine.State { machine.state }

  /// The gap before the event at its cursor; `none` without the option `gaps`. Stored in the lane for the few
  /// members with a gap.
  var gap: Gap { reportsGaps ? lane.gaps[ObjectIdentifier(self)] ?? .none : .none }

  /// Adds missed events before the cursor.
  func miss(_ more: Gap) {
    guard reportsGaps, more != .none else { return }
    lane.gaps[ObjectIdentifier(self), default: .none] += more
  }

  /// The gap was reported, or is obsolete.
  func clearGap() {
    if !lane.gaps.isEmpty { lane.gaps[ObjectIdentifier(self)] = nil }
  }
}

/// The subscriptions of one connection, by request. Nearly always one, which needs no table.
struct SubscriptionsByRequest: Sequence {
  private var first: StreamSubscription?
  private var others: [RequestID: StreamSubscription] = [:]

  var isEmpty: Bool { first == nil && others.isEmpty }
  /// There is exactly one.
  var isOne: Bool { first == nil ? others.count == 1 : others.isEmpty }

  /// - Complexity: O(1).
  subscript(request: RequestID) -> StreamSubscription? { first?.request == request ? first : others[request] }

  mutating func insert(_ subscription: StreamSubscription) {
    if first == nil { first = subscription } else { others[subscription.request] = subscription }
  }

  /// Does nothing for another connection's subscription.
  mutating func remove(_ subscription: StreamSubscription) {
    if first === subscription {
      first = nil
    } else if others[subscription.request] === subscription {
      others[subscription.request] = nil
      if others.isEmpty { others = [:] }
    }
  }

  func makeIterator() -> some IteratorProtocol<StreamSubscription> {
    sequence(state: (first: first, others: others.values.makeIterator())) { state in
      state.first.take() ?? state.others.next()
    }
  }
}
