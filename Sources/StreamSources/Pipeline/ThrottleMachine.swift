import Events
import Reactive

/// Passes at most one event per interval, the newest: the first at once, the newest of an interval at its end.
///
/// During an interval with demand, upstream is asked for one batch at a time, so that the newest event is known.
/// Without demand it is asked for none, and the held event waits. Completion follows the held event. A checkpoint or a
/// loss without an event passes at once while no event is held, and otherwise with that.
///
/// An open machine passes the newest event of each batch, and the held event, at once and without regard to demand.
struct ThrottleMachine: BatchMachine {
  private let interval: Duration
  private var demand = Subscribers.Demand.none
  private var isAsked = false
  /// One event, with its key.
  private var newest: EventBatch?
  /// The checkpoint and the loss of the batches since the last one that was delivered.
  private var notes = EventBatch()
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
    notes.checkpoint = batch.checkpoint ?? notes.checkpoint
    if let loss = batch.loss { notes.loss = notes.loss?.joined(with: loss) ?? loss }
  }

  mutating func finish() { isCompleted = true }

  /// The work is a call at that time.
  mutating func next(at now: Duration) -> BatchAction<Duration>? {
    if var batch = newest, isOpen || demand > .none {
      if isOpen || now >= due {
        newest = nil
        demand -= 1
        due = now + interval
        (batch.checkpoint, batch.loss) = (notes.checkpoint, notes.loss)
        notes = EventBatch()
        return .deliver(batch)
      }
      if awaited != due {
        awaited = due
        return .begin(due)
      }
    }
    if newest == nil, demand > .none, !notes.isBlank {
      defer { notes = EventBatch() }
      demand -= 1
      return .deliver(notes)
    }
    if isCompleted { return newest == nil ? .finish : nil }
    guard demand > .none, !isAsked else { return nil }
    isAsked = true
    return .ask
  }
}
