import Reactive
import StreamRuntime
import StreamServer
import StreamSources
import Systemd

/// Forwards the reports of a stream's source and pipeline: to the journal, and to the catalogue while they feed the
/// stream.
final class FeedReports: Sendable {
  private let stream: String
  private let server: StreamServer
  private let journal: Journal
  private let state = Locked(State())

  private struct State {
    /// Whether another feed has replaced this one.
    var isOver = false
    var source = SourceState.healthy
    /// The state of its process, and of its last event.
    var pipeline = SourceState.healthy
    var lastEvent = SourceState.healthy

    /// The first state on the event's path that is not healthy.
    var whole: SourceState { [source, pipeline, lastEvent].first { $0 != .healthy } ?? .healthy }
  }

  init(of stream: String, for server: StreamServer, _ journal: Journal) {
    (self.stream, self.server, self.journal) = (stream, server, journal)
  }

  func take(_ report: SourceReport) {
    if let state = SourceState(report) { note(state, \.source) }
    journal.write(Journal.Entry(report, of: stream))
  }

  func take(_ report: PipelineReport) {
    switch report {
    case .valueError(let reason):
      server.noteValueError(of: stream)
      note(.failing("the last event failed: \(reason)"), \.lastEvent)
      journal.write(Journal.Entry(valueError: reason, of: stream))
    case .passing: note(.healthy, \.lastEvent)
    case .process(let report):
      if let state = SourceState(report) { note(state, \.pipeline) }
      journal.write(Journal.Entry(report, of: stream))
    }
  }

  private func note(_ part: SourceState, _ path: WritableKeyPath<State, SourceState> & Sendable) {
    state.withLock { state in
      state[keyPath: path] = part
      if !state.isOver { server.note(state.whole, of: stream) }
    }
  }

  /// Ends the updates of the catalogue; later reports reach only the journal.
  func end() { state.withLock { $0.isOver = true } }
}
