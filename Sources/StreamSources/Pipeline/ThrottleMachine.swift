import Events
import Reactive

/// Passes at most one event per interval, the newest: the first at once, the newest of an interval at its end.
///
/// During an interval with demand, upstream is asked for one batch at a time, so that the newest event is known.
/// Without demand it is asked for none, and the held event waits. Completion follows the held event.
///
/// An open machine passes the newest event of each batch, and the held event, at once and without regard to demand.
struct ThrottleMachine: BatchMachine {
  private let interval: Duration
  private var demand = Subscribers.Demand.none
  private var isAsked = false
  /// One event, with its key.
  private var newest: EventBatch?
  /// The newest checkpoint of the batches up to the held event, or of empty ones.
  private var checkpoint: Checkpoint?
  private var isCompleted = false
  /// The time from which the next event may pass.
  private(set) var due = Duration.zero
  var isOpen = false
  /// The time that the caller already waits for.
  private var awaited: Duration?

  init(interval: Duration) { self.interval = interval }

  /// Continues the interval of a subscription that has ended.
  mutating func rest(until due: Duration) { self.due = due }

  mutating func request(_ more: Subscribers.Demand) { demand += more }

  mutating func retract() {
    demand = .none
    isAsked = false
  }

  mutating func receive(_ batch: EventBatch) {
    isAsked = false
    if !batch.isEmpty {
      newest = EventBatch()
      newest?.append(contentsOf: batch.suffix(1))
    }
    checkpoint = batch.checkpoint ?? checkpoint
  }

  mutating func finish() { isCompleted = true }

  /// The work is a call at that time.
  mutating func next(at now: Duration) -> BatchAction<Duration>? {
    if var batch = newest, isOpen || demand > .none {
      if isOpen || now >= due {
        newest = nil
        demand -= 1
        due = now + interval
        batch.checkpoint = checkpoint.take()
        return .deliver(batch)
      }
      if awaited != due {
        awaited = due
        return .begin(due)
      }
    }
    if isCompleted { return newest == nil ? .finish : nil }
    guard demand > .none, !isAsked else { return nil }
    isAsked = true
    return .ask
  }
}
