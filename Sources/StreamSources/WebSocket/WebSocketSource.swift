import Events
import Reactive
import StreamRuntime

/// Receives the messages of a WebSocket, one event of each, and connects again when it ends.
///
/// Each value is a batch: the messages of one read. One unit of demand is one batch. Without demand no connection is
/// made, and an open one is not read, which slows its server down; after `pingEvery` without demand it is closed. Never
/// completes. For one subscription at a time, such as a shared log's.
public struct WebSocketSource: Publisher, Sendable {
  /// A batch of events, each its bytes.
  public typealias Output = EventBatch
  /// A failed connection is reported and made again.
  public typealias Failure = Never

  fileprivate let configuration: WebSocketConfiguration
  fileprivate let thread: SourceThread
  fileprivate let place: WebSocketExaminer.Place
  fileprivate let progress: @Sendable (SourceProgress) -> Void
  fileprivate let report: @Sendable (SourceReport) -> Void
  fileprivate let handover: SourceHandover?
  fileprivate let memory: SourceMemory<RestartMachine>

  /// - Parameters:
  ///   - name: the stream's name, in the process' environment, which other users cannot read.
  ///   - executable: a program that calls `HelperProcess.runIfAsked` first, for the jq programs of the configuration.
  ///   - handover: continues the schedule of another process; nil: there is none.
  ///   - refresh: makes the source connect before its next attempt is due.
  ///   - progress: called with each change that the source's counters record.
  ///   - report: called with each failure and at the end of a series of failures, on the source thread; must return
  ///     promptly.
  public init(
    _ configuration: WebSocketConfiguration, name: String = "websocket", executable: String = "/proc/self/exe",
    handover: SourceHandover? = nil, refresh: SourceRefresh = SourceRefresh(),
    on thread: SourceThread, progress: @escaping @Sendable (SourceProgress) -> Void = { _ in },
    report: @escaping @Sendable (SourceReport) -> Void
  ) {
    self.configuration = configuration
    self.handover = handover
    self.thread = thread
    place = WebSocketExaminer.Place(executable: executable, name: name, thread: thread)
    self.progress = progress
    self.report = report
    memory = SourceMemory(refresh) {
      RestartMachine(
        retry: configuration.request.retry, seed: UInt64.random(in: 0...UInt64.max), run: "the connection")
    }
  }

  /// Subscribes. Values are delivered on the source thread.
  public func receive<S: Subscriber>(subscriber: S) where S.Input == Output, S.Failure == Failure {
    subscriber.receive(subscription: WebSocketSubscription(self, AnySubscriber(subscriber)))
  }
}

/// A subscription: connects the machine to a WebSocket.
private final class WebSocketSubscription: SourceSubscription<RestartMachine>, UpstreamWebSocket.Owner,
  @unchecked Sendable
{
  private let source: WebSocketSource
  private var socket: UpstreamWebSocket?

  init(_ source: WebSocketSource, _ down: AnySubscriber<EventBatch, Never>) {
    self.source = source
    super.init(on: source.thread, source.memory, report: source.report, to: down)
  }

  override func begin() {
    if hasMissedEndOfRests { machine?.endRest(at: now) }
    if let handover = source.handover {
      machine?.resume(handover.former(), at: now)
      thread.note(self, rests: machine?.rests == true)
    }
  }

  override func retracted() {
    guard let socket else { return }
    guard socket.transfer?.hasBegun == false else { return socket.proceed() }
    self.socket = nil
    socket.close()
    machine?.withdraw(at: now)
  }

  override func end() {
    socket?.close()
    socket = nil
    thread.note(self, rests: false)
  }

  override func advance() {
    guard isLive else { return }
    socket?.proceed()
    super.advance()
  }

  override func perform(_ action: RestartMachine.Action) {
    switch action {
    case .rest: break
    case .wait(let due): wait(until: due)
    case .begin: connect()
    }
  }

  private func connect() {
    do throws(HTTPFailure) {
      guard let client = thread.httpClient else { throw HTTPFailure("the source thread has stopped") }
      let socket = UpstreamWebSocket(source.configuration, in: source.place, owner: self)
      self.socket = socket
      try socket.open(with: client, progress: source.progress)
    } catch {
      webSocketEnded(error)
    }
  }

  // MARK: UpstreamWebSocket.Owner

  func webSocketWaits(_ reason: String) { tell(machine?.waits(reason)) }

  func webSocketIsOpen() { tell(machine?.answered(at: now)) }

  func webSocketBrought(_ events: EventBatch) { give(events, nil) }

  func webSocketReports(_ report: SourceReport) { tell(report) }

  func webSocketEnded(_ failure: HTTPFailure?) {
    socket = nil
    cancelTimer()
    tell(machine?.ended(failure, at: now))
    thread.note(self, rests: failure?.retryAfter != nil || machine?.rests == true)
    if let handover = source.handover, let machine { handover.changed(machine.schedule) }
    advance()
  }
}
