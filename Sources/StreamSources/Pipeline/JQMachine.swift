import Events
import Reactive

/// What happens to batches whose events a child process works on, one batch after the other.
///
/// One unit of demand is one batch of what comes out. A batch that gives nothing costs none: another is asked for. A batch
/// that gives very much comes in pieces, each of which costs a unit. What is finished waits for demand.
struct JQMachine: BatchMachine {
  /// Bytes from which on what is finished is delivered before the batch is.
  static let pieceBytes = 1 << 20

  private var demand = Subscribers.Demand.none
  private var isAsked = false
  /// Several only if upstream answers what was taken back.
  private var waiting: [EventBatch] = []
  /// What has been given to the process and is not answered yet, in order.
  private(set) var unanswered = EventBatch()[...]
  private var finished = EventBatch()
  /// Of the batch that the process works on: what is finished has it once all of that is.
  private var checkpoint: Checkpoint?
  private var isCompleted = false

  mutating func request(_ more: Subscribers.Demand) { demand += more }

  mutating func retract() {
    demand = .none
    isAsked = false
  }

  mutating func receive(_ batch: EventBatch) {
    isAsked = false
    if !batch.isEmpty || batch.checkpoint != nil { waiting.append(batch) }
  }

  mutating func finish() { isCompleted = true }

  /// The first of the unanswered events is done.
  /// - Parameter events: what came of it.
  mutating func answered(_ events: EventBatch) {
    unanswered = unanswered.dropFirst()
    finished += events
    // Without an event to go with, it waits for the next.
    if unanswered.isEmpty, let checkpoint { finished.checkpoint = checkpoint }
  }

  mutating func next(at now: Duration) -> BatchAction<EventBatch>? {
    if demand > .none, !finished.isEmpty, unanswered.isEmpty || finished.byteCount >= Self.pieceBytes {
      defer { finished = EventBatch() }
      demand -= 1
      return .deliver(finished)
    }
    guard unanswered.isEmpty, finished.isEmpty else { return nil }
    if waiting.isEmpty {
      if isCompleted { return .finish }
      guard demand > .none, !isAsked else { return nil }
      isAsked = true
      return .ask
    }
    guard demand > .none else { return nil }
    let batch = waiting.removeFirst()
    if batch.isEmpty {
      finished.checkpoint = batch.checkpoint
      return next(at: now)
    }
    unanswered = batch[...]
    checkpoint = batch.checkpoint
    return .begin(batch)
  }
}
