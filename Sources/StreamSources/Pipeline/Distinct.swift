import Events
import Reactive
import StreamRuntime

extension Publisher where Output == EventBatch, Failure == Never {
  /// Removes each event that equals the previous one, byte for byte.
  ///
  /// A batch that becomes empty uses no demand, unless it brings a checkpoint or a loss. For one subscription at a time,
  /// such as a shared log's: each compares with the last event of the previous subscription, which the log still contains.
  /// - Parameters:
  ///   - resumption: each batch carries a checkpoint with the last event's digest, and each subscription compares with
  ///     that of the resumption; nil: the checkpoints stay as they are.
  ///   - keepsPosition: the checkpoint of a batch that becomes empty waits for the next event.
  public func distinct(
    resumption: SourceResumption? = nil, keepsPosition: Bool = false
  ) -> AnyPublisher<EventBatch, Never> {
    let memory = DistinctMemory(resumption, keepsPosition: keepsPosition)
    return compactMap { batch in
      memory.carry(batch.filter { memory.admits($0) })
    }.handleEvents(receiveSubscription: { _ in memory.resume() }).eraseToAnyPublisher()
  }
}

/// The comparison state of the last event. Outlives a subscription.
final class DistinctMemory: Sendable {
  private let last = Locked<[UInt8]?>(nil)
  /// The digest of the last event in the log, until the first event of a subscription.
  private let resumed = Locked<BodyDigest?>(nil)
  private let resumption: SourceResumption?
  /// Whether the checkpoint of a batch that becomes empty waits for the next event.
  let keepsPosition: Bool
  /// With `keepsPosition`: the newest checkpoint of the batches removed since the last delivered one.
  private let checkpoint = Locked<Checkpoint?>(nil)

  init(_ resumption: SourceResumption? = nil, keepsPosition: Bool = false) {
    (self.resumption, self.keepsPosition) = (resumption, keepsPosition)
  }

  /// A subscription begins: it compares with the last event in the log, if its checkpoint has that event's digest.
  func resume() {
    guard let key = resumption?.key() else { return }
    resumed.withLock { $0 = key }
  }

  /// The checkpoint of a batch up to the last event that was compared, or that will be compared with.
  func checkpoint(_ source: Checkpoint?) -> Checkpoint? {
    guard resumption != nil else { return source }
    let key = resumed.withLock { $0 } ?? last.withLock { $0 }.map { BodyDigest($0) }
    return PipelineCheckpoint(key: key, source: source).checkpoint
  }

  /// - Returns: the batch, with the newest checkpoint; nil if it is empty and has nothing to pass on.
  func carry(_ batch: EventBatch) -> EventBatch? {
    checkpoint.withLock { checkpoint in
      if batch.isBlank { return nil }
      let newest = batch.checkpoint ?? checkpoint
      checkpoint = batch.isEmpty && keepsPosition ? newest : nil
      if batch.isEmpty, keepsPosition { return nil }
      var batch = batch
      batch.checkpoint = self.checkpoint(newest)
      return batch
    }
  }

  /// - Parameter key: nil differs from every other key.
  func admits(_ key: [UInt8]?) -> Bool {
    let resumed = resumed.withLock { $0.take() }
    return last.withLock { last in
      defer { last = key }
      guard let key else { return true }
      return resumed.map { BodyDigest(key) != $0 } ?? (key != last)
    }
  }
}
