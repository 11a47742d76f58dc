import Events
import Reactive
import StreamRuntime

/// Receives the messages of a WebSocket, one event of each, and connects again when it ends.
///
/// Each batch has the messages of one read. Without demand no connection is made, and an open one is not read, which slows
/// its server down; after `pingEvery` without demand it is closed.
public struct WebSocketSource: SourceDriver {
  fileprivate let configuration: WebSocketConfiguration
  private let callerReference: WeakReference?
  fileprivate var caller: (any WebSocketCaller)? { callerReference?.object as? any WebSocketCaller }

  /// Each connection begins as configured.
  public init(_ configuration: WebSocketConfiguration) { self.init(configuration, caller: nil) }

  /// - Parameter caller: is not retained.
  init(_ configuration: WebSocketConfiguration, caller: (any WebSocketCaller)?) {
    self.configuration = configuration
    callerReference = caller.map { WeakReference($0) }
  }

  /// Makes the subscriptions of one source.
  public func subscriptions(in context: SourceContext) -> SubscriptionMaker {
    let memory = SourceMemory(retry: configuration.request.retry, run: "the connection")
    return { WebSocketSubscription(self, context, memory, to: $0) }
  }
}

/// Sends messages of its own on the connections of a source. Confined to the source thread.
protocol WebSocketCaller: AnyObject, Sendable {
  /// A connection has opened.
  ///
  /// - Parameters:
  ///   - say: sends a message on it, until it has ended.
  ///   - count: the number of messages that were sent on it.
  func webSocketOpened(after count: Int, say: @escaping (String) -> Void)
  func webSocketEnded()
}

/// A subscription: connects the machine to a WebSocket.
private final class WebSocketSubscription: SourceSubscription<RestartMachine>, UpstreamWebSocket.Owner,
  @unchecked Sendable
{
  private let driver: WebSocketSource
  private var socket: UpstreamWebSocket?

  init(
    _ driver: WebSocketSource, _ context: SourceContext, _ memory: SourceMemory<RestartMachine>,
    to down: AnySubscriber<EventBatch, Never>
  ) {
    self.driver = driver
    super.init(context, memory, to: down)
  }

  override func begin() {
    if hasMissedEndOfRests { machine?.endRest(at: now) }
    continueSchedule()
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
  }

  override func advance() {
    guard isLive else { return }
    socket?.proceed()
    super.advance()
  }

  override func perform(_ action: RestartMachine.Action) { perform(action) { connect() } }

  private func connect() {
    do throws(SourceFailure) {
      guard let client = thread.httpClient else { throw SourceFailure("the source thread has stopped") }
      let socket = UpstreamWebSocket(driver.configuration, in: context, owner: self)
      self.socket = socket
      try socket.open(with: client, progress: context.progress)
    } catch {
      webSocketEnded(error)
    }
  }

  // MARK: UpstreamWebSocket.Owner

  func webSocketWaits(_ reason: String) { report(machine?.waits(reason)) }

  func webSocketIsOpen() { report(machine?.answered(at: now)) }

  func webSocketIsReady(after count: Int) {
    driver.caller?.webSocketOpened(after: count) { [weak socket] in socket?.say($0) }
  }

  func webSocketBrought(_ events: EventBatch) { give(events, nil) }

  func webSocketReports(_ news: SourceReport) { report(news) }

  func webSocketEnded(_ failure: SourceFailure?) {
    socket = nil
    driver.caller?.webSocketEnded()
    cancelTimer()
    conclude(failure)
  }
}
