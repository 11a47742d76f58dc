import Reactive
import StreamServer
import StreamSources
import Systemd

/// What a stream's source and pipeline have to tell: for the journal, and for the catalogue for as long as they feed the
/// stream.
final class FeedReports: Sendable {
  private let stream: String
  private let server: StreamServer
  private let journal: Journal
  /// Others have taken their place.
  private let isOver = Guarded(false)

  init(of stream: String, for server: StreamServer, _ journal: Journal) {
    (self.stream, self.server, self.journal) = (stream, server, journal)
  }

  func take(_ report: SourceReport) {
    if let state = SourceState(report) { isOver.withLock { if !$0 { server.note(state, of: stream) } } }
    journal.write(Journal.Entry(report, of: stream))
  }

  func take(_ report: PipelineReport) {
    switch report {
    case .valueError(let reason):
      server.noteValueError(of: stream)
      journal.write(Journal.Entry(valueError: reason, of: stream))
    case .process(let report): take(report)
    }
  }

  /// Nothing that they tell from now on is news of the stream.
  func end() { isOver.withLock { $0 = true } }
}
