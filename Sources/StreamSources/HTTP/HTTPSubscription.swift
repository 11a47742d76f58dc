import Events
import Reactive

/// A machine whose runs are transfers, which may wait for their host.
protocol TransferMachine: SourceMachine {
  /// The transfer has not begun, for this reason.
  /// - Returns: the report for the operator.
  mutating func waits(_ reason: String) -> SourceReport
  /// Cancels the transfer, which waited for its host, because there is no demand any more. The transfer is due again at
  /// the next demand.
  mutating func withdraw(at now: Duration)
}

/// A subscription whose events arrive by transfers, one at a time. Subclasses are their handlers.
class HTTPSubscription<Machine: TransferMachine>: SourceSubscription<Machine>, @unchecked Sendable {
  final var transfer: Transfer?

  override func begin() {
    if hasMissedEndOfRests { machine?.endRest(at: now) }
  }

  override func retracted() {
    guard let transfer, !transfer.hasBegun else { return }
    transfer.cancel()
    self.transfer = nil
    machine?.withdraw(at: now)
  }

  override func end() {
    transfer?.cancel()
    transfer = nil
  }

  /// Begins a transfer.
  /// - Throws: when the thread has stopped or is out of memory.
  final func start(_ request: UpstreamRequest, _ handler: any Transfer.Handler) throws(SourceFailure) {
    guard let client = thread.httpClient else { throw SourceFailure("the source thread has stopped") }
    transfer = client.start(request, handler: handler, progress: context.progress)
  }

  /// Implements the handler's requirement.
  final func transferWaits(_ reason: String) { report(machine?.waits(reason)) }
}
