import StreamRuntime
import Events

/// Values of one publisher that a stream was given, and has not stored.
struct UnsettledValues: Equatable, Sendable {
  var count = 0
  var byteCount = 0
}

/// The values of one publisher that its stream has not stored. Guarded by the lock of its `PublishSource`.
final class PublishQueue: @unchecked Sendable {  // every access is under that lock
  /// The values that wait for a batch.
  private(set) var values = EventBatch()
  /// The queue's part of the batch that the stream has not settled yet by requesting the next one.
  private var unsettledCount = 0
  private var unsettledBytes = 0
  /// Notifies the publisher's loop; `nil` for a disconnected publisher, and for values without confirmation.
  var wake: (@Sendable () -> Void)?
  /// Whether its loop is reading its status, or was notified to read it.
  private var isWatched = true
  /// `heldCount` at its loop's last read.
  private var seenCount = 0
  /// Whether the publisher has sent COMPLETE.
  private var isComplete = false
  /// The key of a named publisher.
  let key: PublisherKey?
  /// For a named publisher: the number of the last value in a batch; its waiting values follow in order.
  private(set) var takenNumber: UInt64
  /// For a named publisher: the number of the last value that the stream has.
  private(set) var committedNumber: UInt64
  /// The number of its values that the stream is known to have stored.
  private(set) var storedCount: UInt64 = 0
  /// Whether some of its values may be lost.
  private(set) var hasLostValues = false

  /// - Parameters:
  ///   - number: for a named publisher, of the last value that the stream has.
  ///   - unsettled: values after it that a former process gave to the stream, where they wait for space.
  init(
    wake: (@Sendable () -> Void)?, key: PublisherKey? = nil, after number: UInt64 = 0,
    unsettled: UnsettledValues = .init()
  ) {
    self.wake = wake
    self.key = key
    (takenNumber, committedNumber) = (number + UInt64(unsettled.count), number)
    (unsettledCount, unsettledBytes) = (unsettled.count, unsettled.byteCount)
  }

  /// The values that were given to the stream, and wait there.
  var unsettled: UnsettledValues { UnsettledValues(count: unsettledCount, byteCount: unsettledBytes) }

  /// For a named publisher: the number of the last received value.
  var acceptedNumber: UInt64 { takenNumber + UInt64(values.count) }

  /// A named publisher has reconnected, and continues after the waiting values.
  func resume(wake: @escaping @Sendable () -> Void) {
    self.wake = wake
    isLeft = false
    isComplete = false
    isWatched = true
  }

  /// Whether it has values in the unsettled batch.
  var isUnsettled: Bool { unsettledCount > 0 }
  /// Values that the stream does not have yet.
  var heldCount: Int { values.count + unsettledCount }
  var heldBytes: Int { values.byteCount + unsettledBytes }
  /// Whether its publisher has disconnected.
  private(set) var isLeft = false
  /// The approximate memory of its values, in bytes.
  var weight: Int { max(heldBytes, heldCount * PublishWindow.leastValueBytes) }

  /// Called by the publisher's loop, possibly without values.
  /// - Returns: whether it was empty before and is not now.
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

  /// Removes and returns the waiting values.
  func withdraw() -> EventBatch {
    defer { values = EventBatch() }
    return values
  }

  /// Whether the waiting values, or at least the first one, have no more than `room` bytes.
  func fits(_ room: Int) -> Bool {
    values.byteCount <= room || values.first.map { $0.count <= room } ?? true
  }

  /// Moves values into a batch, within `count`, `byteCount` (except the last value) and `room` (except the first).
  /// - Returns: the bytes of the moved values.
  func take(_ count: Int, _ byteCount: Int, _ room: Int, into batch: inout EventBatch) -> Int {
    var taken = (count: 0, byteCount: 0)
    if values.count == 1 || values.count <= count && values.byteCount <= byteCount {
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

  /// The stream has stored its last batch.
  /// - Returns: whether to notify the publisher's loop: a grant is due, or all values are stored.
  func settle() -> Bool {
    storedCount += UInt64(unsettledCount)
    unsettledCount = 0
    unsettledBytes = 0
    committedNumber = takenNumber
    guard !isWatched, wake != nil, isComplete ? heldCount == 0 : heldCount <= seenCount / 2 else { return false }
    isWatched = true
    return true
  }

  /// The publisher has disconnected; its values stay.
  func publisherLeft() {
    isLeft = true
    wake = nil
  }

  /// The batch with its values may be lost. Its loop must be notified.
  func discardUnsettled() {
    unsettledCount = 0
    unsettledBytes = 0
    hasLostValues = true
    isWatched = true
    // A named publisher sends uncommitted values again, in order.
    if key != nil { values = EventBatch() }
  }

  /// The stream holds smaller events from now on: removes the waiting values that exceed its limit.
  /// - Returns: whether there are any, of which the loop must be notified.
  func discard(over byteCount: Int) -> Bool {
    guard values.largestByteCount > byteCount else { return false }
    values = key == nil ? EventBatch(values.filter { $0.count <= byteCount }) : EventBatch()
    hasLostValues = true
    isWatched = true
    return true
  }

  /// The publisher's loop reads the status, and is notified of later changes.
  /// - Returns: as `isDone`.
  func observe() -> Bool {
    isWatched = false
    seenCount = heldCount
    return isDone
  }

  /// Whether the publisher has sent COMPLETE, and all its values are stored.
  var isDone: Bool { isComplete && heldCount == 0 }
}
