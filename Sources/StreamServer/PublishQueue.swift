/// What one publisher has sent and its stream has not taken in. Guarded by the lock of its inlet.
final class PublishQueue: @unchecked Sendable {  // every access is under that lock
  /// What waits for its turn.
  private(set) var values: [[UInt8]] = []
  private var waitingBytes = 0
  /// Of the batch that the stream has been given and has not settled yet by asking for the next one.
  private var unsettledCount = 0
  private var unsettledBytes = 0
  /// Brings the publisher's loop here; `nil` for one that is gone and for values that nobody vouches for.
  var wake: (@Sendable () -> Void)?
  /// Its loop looks at it right now, or has been called to.
  private var isWatched = true
  /// `heldCount` when its loop last looked.
  private var seenCount = 0
  /// The publisher has said COMPLETE.
  private var isComplete = false

  init(wake: (@Sendable () -> Void)?) {
    self.wake = wake
  }

  /// It has a share in the batch that the stream has been given.
  var isUnsettled: Bool { unsettledCount > 0 }
  /// Values that the stream does not have yet.
  var heldCount: Int { values.count + unsettledCount }
  var heldBytes: Int { waitingBytes + unsettledBytes }
  /// About what its values cost.
  var weight: Int { max(heldBytes, heldCount * PublishWindow.leastValueBytes) }

  /// The publisher's loop looks here, and brings something or not.
  /// - Returns: whether there was nothing before and is something now.
  func bring(_ batch: [[UInt8]], byteCount: Int, isComplete: Bool) -> Bool {
    isWatched = true
    if isComplete { self.isComplete = true }
    guard !batch.isEmpty else { return false }
    waitingBytes += byteCount
    if values.isEmpty {
      values = batch
      return true
    }
    values += batch
    return false
  }

  /// Moves values into a batch: as many as `count` and, but for the first, `byteCount` allow.
  /// - Returns: the bytes of those that were moved.
  func take(_ count: Int, _ byteCount: Int, into batch: inout [[UInt8]]) -> Int {
    var taken = (count: 0, byteCount: 0)
    if values.count <= count, waitingBytes <= byteCount {
      taken = (values.count, waitingBytes)
      if batch.isEmpty { swap(&batch, &values) } else { batch += values }
      values = []
    } else {
      while taken.count < min(count, values.count), taken.count == 0 || taken.byteCount < byteCount {
        taken.byteCount += values[taken.count].count
        taken.count += 1
      }
      batch += values.prefix(taken.count)
      values.removeFirst(taken.count)
    }
    waitingBytes -= taken.byteCount
    unsettledCount += taken.count
    unsettledBytes += taken.byteCount
    return taken.byteCount
  }

  /// The stream has what it was given.
  /// - Returns: whether the publisher's loop is to be called: there is a step's worth of room, or all is done.
  func settle() -> Bool {
    unsettledCount = 0
    unsettledBytes = 0
    guard !isWatched, wake != nil, isComplete ? heldCount == 0 : heldCount <= seenCount / 2 else { return false }
    isWatched = true
    return true
  }

  /// The publisher's loop has seen how things stand, and is called when that has changed.
  /// - Returns: whether the publisher is complete and all of it in the stream.
  func look() -> Bool {
    isWatched = false
    seenCount = heldCount
    return isComplete && heldCount == 0
  }
}
