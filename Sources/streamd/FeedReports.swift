import Dispatch
import Reactive
import StreamRuntime
import StreamServer
import StreamSources
import Systemd

/// Forwards the reports of a stream's source and pipeline: to the journal, and to the stream's status.
final class FeedReports: Sendable {
  let status = SourceStatus()
  private let stream: String
  /// Its streams have the reports.
  private weak let server: StreamServer?
  private let journal: Journal
  /// nil: there was no report yet, as is usual for values that clients publish.
  private let entries = Locked<Entries?>(nil)

  /// In an object, because most feeds need none.
  private final class Entries {
    var entries: FeedEntries
    init(of stream: String) { entries = FeedEntries(of: stream) }
  }

  init(of stream: String, for server: StreamServer, _ journal: Journal) {
    (self.stream, self.server, self.journal) = (stream, server, journal)
  }

  func take(_ report: SourceReport) {
    if let health = SourceHealth(report) { status.set(health) }
    switch report {
    case .failing(_, _, let pause): status.noteFailure(nextAfter: pause)
    case .halted: status.noteFailure(nextAfter: nil)
    case .lost(let reason, let count):
      noteFailedEvents(reason, count)
    case .complete: status.set(.healthy, of: .lastEvent)
    case .missed(let loss, _): status.noteMissed(loss.count)
    case .waiting, .recovered, .limited, .said, .current: break
    }
    write { $0.take(report, at: $1) }
  }

  /// Takes a report on what several streams have together, which has its entries elsewhere.
  /// - Parameter isCounted: whether it is a failure that no other stream has counted.
  func takeShared(_ report: SourceReport, isCounted: Bool) {
    if let health = SourceHealth(report) { status.set(health) }
    if isCounted, case .failing(_, _, let pause) = report { status.noteFailure(nextAfter: pause) }
  }

  func take(_ report: DerivedSource.Report) {
    write { $0.take(report, at: $1) }
  }

  func take(_ progress: SourceProgress) {
    switch progress {
    case .attempted: status.noteAttempt()
    case .answered(let code, let time): status.noteAnswer(status: code, after: time)
    case .received(let byteCount): status.noteReceived(byteCount: byteCount)
    case .scheduled(let time): status.noteNextAttempt(after: time)
    }
  }

  func take(_ report: PipelineReport) {
    switch report {
    case .failedEvent(let reason):
      noteFailedEvents(reason, 1)
    case .malformed(let count, let fault):
      server?.countMalformed(of: stream, count)
      status.set(.failing("the last event failed: \(FeedEntries.noJSON(fault))"), of: .lastEvent)
    case .passing: status.set(.healthy, of: .lastEvent)
    case .process(let report): if let health = SourceHealth(report) { status.set(health, of: .pipeline) }
    }
    write { $0.take(report, at: $1) }
  }

  private func noteFailedEvents(_ reason: String, _ count: Int) {
    server?.countFailedEvents(of: stream, count)
    status.set(.failing("the last event failed: \(reason)"), of: .lastEvent)
  }

  /// Writes the entries of a report, and schedules those that are due later.
  private func write(_ change: (inout FeedEntries, Duration) -> [Journal.Entry]) {
    let now = Duration.nanoseconds(EventLoop.monotonicNow())
    let (written, due) = entries.withLock { [stream] present in
      let own = present ?? Entries(of: stream)
      present = own
      let former = own.entries.due
      let written = change(&own.entries, now)
      return (written, own.entries.due == former ? nil : own.entries.due)
    }
    written.forEach { journal.write($0) }
    guard let due else { return }
    DispatchQueue.global().asyncAfter(deadline: .now() + .nanoseconds((due - now).wholeNanoseconds)) { [weak self] in
      self?.write { $0.passed(at: $1) }
    }
  }
}
