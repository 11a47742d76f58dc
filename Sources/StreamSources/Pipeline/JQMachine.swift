import Events
import Reactive

/// The state machine of batches whose events a child process transforms, one batch after the other.
///
/// One unit of demand is one resulting batch. A batch that becomes empty uses none, unless it brings a checkpoint or a
/// loss: another is requested. A large result is delivered in pieces, each of which uses one unit; the last one has the
/// checkpoint. Finished results wait for demand.
struct JQMachine: BatchMachine {
  /// Finished bytes from which on a piece is delivered before its batch is complete.
  static let pieceBytes = 1 << 20

  /// Whether the checkpoint of a batch that becomes empty waits for the next event.
  private let keepsPosition: Bool
  private var demand = Subscribers.Demand.none
  private var isAsked = false
  /// Several only if upstream answers retracted demand.
  private var waiting: [EventBatch] = []
  /// Events sent to the process and not yet answered, in order.
  private(set) var unanswered = EventBatch()[...]
  private var finished = EventBatch()
  /// The checkpoint of the current batch; attached to its last result.
  private var checkpoint: Checkpoint?
  private var isCompleted = false

  init(keepsPosition: Bool = false) { self.keepsPosition = keepsPosition }

  mutating func request(_ more: Subscribers.Demand) { demand += more }

  mutating func retract() {
    demand = .none
    isAsked = false
  }

  mutating func receive(_ batch: EventBatch) {
    isAsked = false
    if !batch.isBlank { waiting.append(batch) }
  }

  mutating func finish() { isCompleted = true }

  /// The first unanswered event is done.
  /// - Parameter events: its results.
  mutating func answered(_ events: EventBatch) {
    unanswered = unanswered.dropFirst()
    finished += events
    if unanswered.isEmpty, let checkpoint { finished.checkpoint = checkpoint }
  }

  mutating func next(at now: Duration) -> BatchAction<EventBatch>? {
    if demand > .none, hasResult {
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
    if let loss = batch.loss { finished.loss = finished.loss?.joined(with: loss) ?? loss }
    if batch.isEmpty {
      finished.checkpoint = batch.checkpoint ?? finished.checkpoint
      return next(at: now)
    }
    unanswered = batch[...]
    checkpoint = batch.checkpoint
    return .begin(batch)
  }

  /// Whether there is something to deliver.
  private var hasResult: Bool {
    if finished.isEmpty { return unanswered.isEmpty && !keepsPosition && !finished.isBlank }
    return unanswered.isEmpty || finished.byteCount >= Self.pieceBytes
  }
}
