import StreamRuntime
import Events

/// What one publisher has sent and its stream has not taken in. Locked by the lock of its source.
final class PublishQueue: @unchecked Sendable {  // every access is under that lock
  /// What waits for its turn.
  private(set) var values = EventBatch()
  /// Of the batch that the stream has been given and has not settled yet by asking for the next one.
  private var unsettledCount = 0
  private var unsettledBytes = 0
  /// Calls the publisher's loop; `nil` for a publisher that has left and for values without confirmation.
  var wake: (@Sendable () -> Void)?
  /// Its loop looks at it right now, or has been called to.
  private var isWatched = true
  /// `heldCount` when its loop last looked.
  private var seenCount = 0
  /// The publisher has said COMPLETE.
  private var isComplete = false
  /// Of a named publisher.
  let key: PublisherKey?
  /// Of a named publisher: the number of the last value that was moved into a batch; its values follow in order.
  private(set) var takenNumber: UInt64
  /// Of a named publisher: the number of the last value that the stream has.
  private(set) var committedNumber: UInt64
  /// Of what was taken from it, some may never get to the stream.
  private(set) var hasLostValues = false

  /// - Parameter number: of the last value that the stream has of a named publisher.
  init(wake: (@Sendable () -> Void)?, key: PublisherKey? = nil, after number: UInt64 = 0) {
    self.wake = wake
    self.key = key
    (takenNumber, committedNumber) = (number, number)
  }

  /// The number of the last value that a named publisher has brought.
  var acceptedNumber: UInt64 { takenNumber + UInt64(values.count) }

  /// A named publisher is back, and continues behind what is still here.
  func resume(wake: @escaping @Sendable () -> Void) {
    self.wake = wake
    isLeft = false
    isComplete = false
    isWatched = true
  }

  /// It has a share in the batch that the stream has been given.
  var isUnsettled: Bool { unsettledCount > 0 }
  /// Values that the stream does not have yet.
  var heldCount: Int { values.count + unsettledCount }
  var heldBytes: Int { values.byteCount + unsettledBytes }
  /// Its publisher has gone.
  private(set) var isLeft = false
  /// About what its values cost.
  var weight: Int { max(heldBytes, heldCount * PublishWindow.leastValueBytes) }

  /// The publisher's loop looks here, and brings something or not.
  /// - Returns: whether there was nothing before and is something now.
  func append(_ batch: EventBatch, isComplete: Bool) -> Bool {
    isWatched = true
    if isComplete { self.isComplete = true }
    guard !batch.isEmpty, !(hasLostValues && key != nil) else { return false }
    if values.isEmpty {
      values = batch
      return true
    }
    values += batch
    return false
  }

  /// Takes out what waits.
  func withdraw() -> EventBatch {
    defer { values = EventBatch() }
    return values
  }

  /// Whether what waits first has no more than `room` bytes.
  func fits(_ room: Int) -> Bool {
    values.byteCount <= room || values.first.map { $0.count <= room } ?? true
  }

  /// Moves values into a batch: as many as `count` and, but for the last, `byteCount` allow; but for the first, `room`.
  /// - Returns: the bytes of those that were moved.
  func take(_ count: Int, _ byteCount: Int, _ room: Int, into batch: inout EventBatch) -> Int {
    var taken = (count: 0, byteCount: 0)
    if values.count <= count, values.byteCount <= byteCount {
      taken = (values.count, values.byteCount)
      if batch.isEmpty { swap(&batch, &values) } else { batch += values }
      values = EventBatch()
    } else {
      unsafe values.withUnsafeBytes(of: 0..<min(count, values.count)) { value in
        guard taken.count == 0 || taken.byteCount < byteCount && taken.byteCount + value.count <= room else {
          return false
        }
        taken.count += 1
        taken.byteCount += value.count
        unsafe batch.append(value)
        return true
      }
      values.removeFirst(taken.count)
    }
    takenNumber += UInt64(taken.count)
    unsettledCount += taken.count
    unsettledBytes += taken.byteCount
    return taken.byteCount
  }

  /// The stream has what it was given.
  /// - Returns: whether the publisher's loop is to be called: there is a step's worth of room, or all is done.
  func settle() -> Bool {
    unsettledCount = 0
    unsettledBytes = 0
    committedNumber = takenNumber
    guard !isWatched, wake != nil, isComplete ? heldCount == 0 : heldCount <= seenCount / 2 else { return false }
    isWatched = true
    return true
  }

  /// The publisher has gone; what it brought stays.
  func publisherLeft() {
    isLeft = true
    wake = nil
  }

  /// The batch that it had a share in may be lost. Its loop is to be called.
  func discardUnsettled() {
    unsettledCount = 0
    unsettledBytes = 0
    hasLostValues = true
    isWatched = true
    // A named publisher sends again what is not committed, and in order.
    if key != nil { values = EventBatch() }
  }

  /// The publisher's loop has seen how things stand, and is called when that has changed.
  /// - Returns: whether the publisher is complete and all of it in the stream.
  func observe() -> Bool {
    isWatched = false
    seenCount = heldCount
    return isDone
  }

  /// The publisher has said COMPLETE, and all of it is in the stream.
  var isDone: Bool { isComplete && heldCount == 0 }
}
