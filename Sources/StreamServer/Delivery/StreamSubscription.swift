import Reactive

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

/// One request for a stream: its machine, and where it stands in the lists of others.
final class StreamSubscription {
  /// Which lists it for as long as it is live, and no longer.
  let connection: Connection
  let lane: Lane
  // In this order, and the last as small as they are, because there may be very many.
  var machine: SubscriptionMachine
  let reportsGaps: Bool
  let request: RequestID
  /// Its place in the lane's list of all.
  var memberIndex: Int32 = 0
  /// Its place in the lane's waiting list, while it is in there.
  var waitingIndex: Int32 = 0

  init(connection: Connection, lane: Lane, request: RequestID, _ machine: SubscriptionMachine, gap: Gap?) {
    self.connection = connection
    self.lane = lane
    self.request = request
    self.machine = machine
    reportsGaps = gap != nil
    if let gap { miss(gap) }
  }

  var cursor: Cursor { machine.cursor }
  var state: SubscriptionMachine.State { machine.state }

  /// What was missed before the event at its cursor; `none` where it did not ask for that. The lane has those of its few
  /// members with one.
  var gap: Gap { reportsGaps ? lane.gaps[ObjectIdentifier(self)] ?? .none : .none }

  /// Events before the cursor were missed.
  func miss(_ more: Gap) {
    guard reportsGaps, more != .none else { return }
    lane.gaps[ObjectIdentifier(self), default: .none] += more
  }

  /// The missed events are reported, or no longer matter: the event at the cursor is on its way.
  func clearGap() {
    if !lane.gaps.isEmpty { lane.gaps[ObjectIdentifier(self)] = nil }
  }
}

/// The subscriptions of one connection, by request: nearly always one, which therefore needs no table.
struct SubscriptionList: Sequence {
  private var first: StreamSubscription?
  private var others: [RequestID: StreamSubscription] = [:]

  var isEmpty: Bool { first == nil && others.isEmpty }
  /// There is exactly one.
  var isOne: Bool { first == nil ? others.count == 1 : others.isEmpty }

  /// - Complexity: O(1), however many there are.
  subscript(request: RequestID) -> StreamSubscription? { first?.request == request ? first : others[request] }

  mutating func insert(_ subscription: StreamSubscription) {
    if first == nil { first = subscription } else { others[subscription.request] = subscription }
  }

  /// Does nothing for one that is not in here.
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
