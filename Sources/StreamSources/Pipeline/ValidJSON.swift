import Events
import Reactive
import StreamRuntime

extension Publisher where Output == EventBatch, Failure == Never {
  /// Removes events that are not JSON texts, and reports them. A batch that becomes empty uses no demand, unless it
  /// brings a checkpoint or a loss.
  /// - Parameter keepsPosition: as for `distinct`.
  public func validJSON(
    keepsPosition: Bool = false, report: @escaping @Sendable (PipelineReport) -> Void
  ) -> AnyPublisher<EventBatch, Never> {
    let validation = Locked(JSONValidation(keepsPosition: keepsPosition))
    return compactMap { batch in
      let (rest, reports) = validation.withLock { $0.rest(of: batch) }
      reports.forEach(report)
      return rest
    }.eraseToAnyPublisher()
  }
}

/// The part of a source's batches that is kept for the next one.
private struct JSONValidation {
  private let keepsPosition: Bool
  /// With `keepsPosition`: the newest checkpoint of the batches that were removed since the last delivered one.
  private var checkpoint: Checkpoint?
  private var hasFailed = false

  init(keepsPosition: Bool) { self.keepsPosition = keepsPosition }

  /// - Returns: the events that are JSON texts, with the newest checkpoint; nil if there is nothing to pass on.
  mutating func rest(of batch: EventBatch) -> (EventBatch?, [PipelineReport]) {
    var (isLastValid, invalidCount) = (true, 0)
    unsafe batch.withUnsafeBytes(of: 0..<batch.count) { event in
      isLastValid = JSONSyntax.holds(for: unsafe event.bindMemory(to: UInt8.self).span)
      if !isLastValid { invalidCount += 1 }
      return true
    }
    var reports: [PipelineReport] = invalidCount > 0 ? [.malformed(invalidCount)] : []
    if isLastValid, hasFailed || invalidCount > 0 { reports.append(.passing) }
    hasFailed = !isLastValid
    var rest = invalidCount == 0 ? batch : batch.filter { JSONSyntax.holds(for: $0.span) }
    checkpoint = rest.checkpoint ?? checkpoint
    guard !rest.isEmpty || !keepsPosition && !rest.isBlank else { return (nil, reports) }
    rest.checkpoint = checkpoint.take()
    return (rest, reports)
  }
}
