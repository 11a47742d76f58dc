import Reactive
import StreamServer
import StreamSources
import Systemd

/// Forwards the reports of a stream's source and pipeline: to the journal, and to the stream's status.
final class FeedReports: Sendable {
  let status = SourceStatus()
  private let stream: String
  private let server: StreamServer
  private let journal: Journal

  init(of stream: String, for server: StreamServer, _ journal: Journal) {
    (self.stream, self.server, self.journal) = (stream, server, journal)
  }

  func take(_ report: SourceReport) {
    if let state = SourceState(report) { status.set(state) }
    journal.write(Journal.Entry(report, of: stream))
  }

  func take(_ report: PipelineReport) {
    switch report {
    case .valueError(let reason):
      server.countValueError(of: stream)
      status.set(.failing("the last event failed: \(reason)"), of: .lastEvent)
      journal.write(Journal.Entry(valueError: reason, of: stream))
    case .passing: status.set(.healthy, of: .lastEvent)
    case .process(let report):
      if let state = SourceState(report) { status.set(state, of: .pipeline) }
      journal.write(Journal.Entry(report, of: stream))
    }
  }
}
