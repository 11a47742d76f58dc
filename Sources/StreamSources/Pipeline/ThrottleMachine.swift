import Events
import Reactive

/// At most one event per interval, the newest. The first passes at once; the newest of an interval when it is over.
///
/// While an interval runs and there is demand, upstream is asked on, one batch at a time, so that the newest is known.
/// Without demand it is asked for nothing, and what is held waits. The end comes after what is held.
struct ThrottleMachine: BatchMachine {
  private let interval: Duration
  private var demand = Subscribers.Demand.none
  private var isAsked = false
  private var newest: [UInt8]?
  /// The last one that came with events up to that one, or without any.
  private var checkpoint: Checkpoint?
  private var isCompleted = false
  /// When the next event may pass.
  private(set) var due = Duration.zero
  /// The time for which the caller has been told to wait.
  private var awaited: Duration?

  init(interval: Duration) { self.interval = interval }

  /// For a subscription that goes on where another has ended.
  mutating func rest(until due: Duration) { self.due = due }

  mutating func request(_ more: Subscribers.Demand) { demand += more }

  mutating func retract() {
    demand = .none
    isAsked = false
  }

  mutating func receive(_ batch: EventBatch) {
    isAsked = false
    if let last = batch.last { newest = last }
    checkpoint = batch.checkpoint ?? checkpoint
  }

  mutating func finish() { isCompleted = true }

  /// The work is to call again at that time.
  mutating func next(at now: Duration) -> BatchAction<Duration>? {
    if let event = newest, demand > .none {
      if now >= due {
        newest = nil
        demand -= 1
        due = now + interval
        var batch: EventBatch = [event]
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
