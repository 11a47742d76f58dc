import Reactive
import StreamClient
import StreamRuntime

/// Reports once that a stream is failing, stalled or stale while no event arrives: there may never be one. Confined to
/// the connection's loop.
final class StreamStateWatch: @unchecked Sendable {  // everything but `start` happens on the loop
  private let name: String
  private let connection: StreamConnection
  private let inbox: EventInbox
  private var answer: AnyCancellable?
  private var isReported = false

  /// When the state is checked, unless an event has arrived: a source whose upstream does not respond counts as failing
  /// only after its own timeout.
  private static let delays: [Duration] = [.seconds(1), .seconds(10), .seconds(60)]

  /// - Parameter inbox: receives the sentence as a notice.
  init(_ name: String, _ connection: StreamConnection, _ inbox: EventInbox) {
    (self.name, self.connection, self.inbox) = (name, connection, inbox)
  }

  /// Starts watching; ignores system streams.
  /// - Parameter timeout: the time after which the program ends; the state is checked before.
  func start(on loop: EventLoop, _ timeout: Duration?) {
    guard !name.hasPrefix("$") else { return }
    loop.execute { [self] in
      for delay in Set(Self.delays.map { delay in min(delay, timeout.map { $0 / 2 } ?? delay) }) {
        _ = loop.schedule(after: delay) { [self] in look() }
      }
    }
  }

  private func look() {
    guard !isReported, !inbox.hasHadEvents else { return }
    answer = connection.value(of: "$streams").sink(
      receiveCompletion: { _ in }, receiveValue: { [self] in read($0) })
  }

  private func read(_ catalogue: StreamEvent) {
    guard !isReported, !inbox.hasHadEvents, let table = try? StreamListing(json: catalogue.data),
      let row = table.rows.first(where: { $0.name == name }), let state = row.state,
      ["failing", "failed", "blocked"].contains(state) || row.isStale
    else { return }
    isReported = true
    inbox.post("\"\(name)\" is \(state)" + (row.message.map { ": \($0)" } ?? "") + "; waiting for an event")
  }
}
