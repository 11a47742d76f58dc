/// Events that a source has lost.
public enum EventLoss: Equatable, Sendable {
  /// So many.
  case known(UInt64)
  /// At least one.
  case unknown
  /// None, or any number.
  case possible

  /// The number of lost events; 1 if it is unknown.
  public var count: UInt64 { if case .known(let count) = self { max(1, count) } else { 1 } }

  /// This loss and the next one as one.
  public func joined(with next: EventLoss) -> EventLoss {
    switch (self, next) {
    case (.known(let one), .known(let other)):
      let sum = one.addingReportingOverflow(other)
      return .known(sum.overflow ? .max : sum.partialValue)
    case (.possible, _): return next
    case (_, .possible): return self
    case (.unknown, _), (_, .unknown): return .unknown
    }
  }
}
