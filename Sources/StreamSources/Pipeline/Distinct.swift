import Events
import Reactive
import StreamRuntime

extension Publisher where Output == EventBatch, Failure == Never {
  /// Removes each event that equals the previous one, byte for byte.
  ///
  /// A batch that becomes empty uses no demand. For one subscription at a time, such as a shared log's: each compares
  /// with the last event of the previous subscription, which the log still contains.
  public func distinct() -> AnyPublisher<EventBatch, Never> {
    let memory = DistinctMemory()
    return compactMap { batch in
      memory.carry(batch.filter { memory.admits($0) })
    }.eraseToAnyPublisher()
  }
}

/// The comparison state of the last event. Outlives a subscription.
final class DistinctMemory: Sendable {
  private let last = Locked<[UInt8]?>(nil)
  /// The newest checkpoint of the batches removed since the last delivered one.
  private let checkpoint = Locked<Checkpoint?>(nil)

  /// - Returns: the batch, with the newest checkpoint; nil if the batch is empty.
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

  /// - Parameter key: nil differs from every other key.
  func admits(_ key: [UInt8]?) -> Bool {
    last.withLock { last in
      defer { last = key }
      return key == nil || key != last
    }
  }
}
