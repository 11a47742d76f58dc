import Reactive
import ReplayLog
import StreamRuntime

/// A state that a subscription reads before the log.
struct StateReading {
  /// The walk through the state. It continues in another state if the log was replaced.
  var walk: StateWalk
  /// The state's origin.
  let origin: KeyedState.Origin
}

/// The filter, the state to read first, or the pattern, that few subscriptions have besides their machine.
final class SubscriptionExtras {
  /// The reader of a pattern of which it is a member; nil: it is a request of its own.
  let reader: PatternReader?
  /// The verdicts of its filter; nil: it receives every event.
  let verdicts: FilterVerdicts?
  /// The state that it reads in place of the log; nil: it reads the log.
  var reading: StateReading?
  /// The number of events that its filter's group had left out when it began to wait.
  var leftOutBefore: UInt64 = 0
  /// While it awaits the event after which it resumes: see `SubscriptionMachine.awaitEvent`.
  var awaitTimer: TimerID?

  init(verdicts: FilterVerdicts?, reader: PatternReader?) { (self.verdicts, self.reader) = (verdicts, reader) }

  /// Begins to read the stream's state, if it has one.
  ///
  /// - Parameters:
  ///   - position: the id of the first event that is read.
  ///   - saved: the state that an earlier process has begun to read; nil: the present state.
  /// - Returns: the number of keys; nil if the stream has no such state.
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
}

/// One request for a stream: its machine, and its places in lists.
final class StreamSubscription {
  /// The connection, which lists the subscription while it is live.
  let connection: Connection
  let lane: Lane
  // The order and the small types save memory: there may be very many subscriptions.
  var machine: SubscriptionMachine
  let request: RequestID
  /// Its place in the lane's list of members.
  var memberIndex: Int32 = 0
  /// Its place in the lane's waiting list, if it is in it.
  var waitingIndex: Int32 = 0
  let extras: SubscriptionExtras?

  init(
    connection: Connection, lane: Lane, request: RequestID, _ machine: SubscriptionMachine,
    _ extras: SubscriptionExtras? = nil
  ) {
    (self.connection, self.lane, self.request) = (connection, lane, request)
    (self.machine, self.extras) = (machine, extras)
  }

  var cursor: Cursor { machine.cursor }
  /// The id before its cursor; 0 at the beginning of a state.
  var lastPosition: UInt64 { cursor.position > 0 ? cursor.position - 1 : 0 }
  var phase: SubscriptionMachine.Phase { machine.phase }
  /// Whether it has markers of its own: the members of a pattern have one together.
  var hasMarkers: Bool { machine.hasMarkers && extras?.reader == nil }
}

/// The subscriptions of one connection, by request. Nearly every connection has one, which needs no table.
struct SubscriptionsByRequest: Sequence {
  private var first: StreamSubscription?
  private var others: [RequestID: StreamSubscription] = [:]

  var isEmpty: Bool { first == nil && others.isEmpty }
  /// Whether there is exactly one.
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
