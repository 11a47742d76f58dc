import Events
import Reactive
import StreamRuntime

/// What a source's events are meant to be.
public struct ReceivedForm: Sendable, Equatable {
  /// Whether they are JSON: white space alone is then no event, as nothing is none in any case.
  public var isJSON: Bool
  /// Whether each JSON text of what is received is an event: between two there is white space or U+001E, or nothing
  /// between arrays, objects and strings. What is no text is an event up to the next line end or U+001E.
  public var splitsTexts: Bool
  /// Whether an event that is not one JSON text is removed and reported.
  public var requiresJSON: Bool

  /// By default anything but nothing is an event.
  public init(isJSON: Bool = false, splitsTexts: Bool = false, requiresJSON: Bool = false) {
    (self.isJSON, self.splitsTexts, self.requiresJSON) = (isJSON, splitsTexts, requiresJSON)
  }
}

extension Publisher where Output == EventBatch, Failure == Never {
  /// Makes events of what a source has received. A batch that becomes empty uses no demand, unless it brings a checkpoint
  /// or a loss.
  /// - Parameters:
  ///   - form: what of it becomes an event.
  ///   - keepsPosition: as for `distinct`.
  ///   - report: called for what is left out; must return promptly.
  public func received(
    as form: ReceivedForm, keepsPosition: Bool = false, report: @escaping @Sendable (PipelineReport) -> Void
  ) -> AnyPublisher<EventBatch, Never> {
    let reception = Locked(Reception(form: form, keepsPosition: keepsPosition))
    return compactMap { batch in
      let (rest, reports) = reception.withLock { $0.rest(of: batch) }
      reports.forEach(report)
      return rest
    }.eraseToAnyPublisher()
  }
}

/// The part of a source's batches that is kept for the next one.
private struct Reception {
  let form: ReceivedForm
  let keepsPosition: Bool
  /// With `keepsPosition`: the newest checkpoint of the batches that were removed since the last delivered one.
  private var checkpoint: Checkpoint?
  private var hasFailed = false

  init(form: ReceivedForm, keepsPosition: Bool) { (self.form, self.keepsPosition) = (form, keepsPosition) }

  /// - Returns: the events, with the newest checkpoint; nil if there is nothing to pass on.
  mutating func rest(of batch: EventBatch) -> (EventBatch?, [PipelineReport]) {
    guard !batch.isBlank else { return (nil, []) }
    var reports: [PipelineReport] = []
    var rest = form.splitsTexts ? texts(of: batch, &reports) : batch.withoutEmpty(isJSON: form.isJSON)
    if form.requiresJSON { rest = valid(rest, &reports) }
    checkpoint = rest.checkpoint ?? checkpoint
    guard !rest.isEmpty || !keepsPosition && !rest.isBlank else { return (nil, reports) }
    rest.checkpoint = checkpoint.take()
    return (rest, reports)
  }

  private func texts(of batch: EventBatch, _ reports: inout [PipelineReport]) -> EventBatch {
    var texts = EventBatch()
    var refusedCount = 0
    unsafe batch.withUnsafeBytes(of: 0..<batch.count) { event in
      let before = texts.count
      unsafe JSONSyntax.forEachText(in: event.bindMemory(to: UInt8.self).span) { range in
        unsafe texts.append(UnsafeRawBufferPointer(rebasing: event[range]))
        return texts.count - before <= JSONSyntax.mostTexts
      }
      if texts.count - before > JSONSyntax.mostTexts {
        texts.removeLast(texts.count - before)
        refusedCount += 1
      }
      return true
    }
    (texts.checkpoint, texts.loss) = (batch.checkpoint, batch.loss)
    for _ in 0..<refusedCount { reports.append(.failedEvent("more than \(JSONSyntax.mostTexts) JSON texts at once")) }
    return texts
  }

  private mutating func valid(_ batch: EventBatch, _ reports: inout [PipelineReport]) -> EventBatch {
    guard !batch.isEmpty else { return batch }
    var (lastFault, fault, count) = (JSONFault?.none, JSONFault?.none, 0)
    unsafe batch.withUnsafeBytes(of: 0..<batch.count) { event in
      lastFault = unsafe JSONSyntax.fault(in: event.bindMemory(to: UInt8.self).span)
      if let lastFault { (fault, count) = (lastFault, count + 1) }
      return true
    }
    if let fault { reports.append(.malformed(count, fault.remedied(fault.detail))) }
    if lastFault == nil, hasFailed || count > 0 { reports.append(.passing) }
    hasFailed = lastFault != nil
    return count == 0 ? batch : batch.filter { JSONSyntax.holds(for: $0.span) }
  }
}
