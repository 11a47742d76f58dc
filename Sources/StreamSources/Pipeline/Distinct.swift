import Events
import Reactive
import StreamRuntime

extension Publisher where Output == EventBatch, Failure == Never {
  /// Leaves out each event that is equal, byte for byte, to the one before.
  ///
  /// A batch of which nothing is left uses up no demand. Made for one subscription at a time, as a shared log's: each
  /// compares with the last event of the one before, as the log still holds that.
  public func distinct() -> AnyPublisher<EventBatch, Never> {
    let memory = DistinctMemory()
    return compactMap { batch in
      memory.carry(batch.filter { memory.admits($0) })
    }.eraseToAnyPublisher()
  }
}

/// What the last event was compared by. Outlives a subscription.
final class DistinctMemory: Sendable {
  private let last = Locked<[UInt8]?>(nil)
  /// Of batches of which nothing was left since the last one that went on.
  private let checkpoint = Locked<Checkpoint?>(nil)

  /// - Returns: the batch, with the last checkpoint that there was; nil if there is nothing in it.
  func carry(_ batch: EventBatch) -> EventBatch? {
    checkpoint.withLock { checkpoint in
      let newest = batch.checkpoint ?? checkpoint
      checkpoint = batch.isEmpty ? newest : nil
      if batch.isEmpty { return nil }
      var batch = batch
      batch.checkpoint = newest
      return batch
    }
  }

  /// - Parameter key: nil is like no other.
  func admits(_ key: [UInt8]?) -> Bool {
    last.withLock { last in
      defer { last = key }
      return key == nil || key != last
    }
  }
}
