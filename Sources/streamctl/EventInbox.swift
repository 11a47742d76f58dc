import Dispatch
import Reactive
import StreamClient
import StreamRuntime
import Synchronization

/// Passes events from the event loop to the main thread, which may block on its output while the loop still answers the
/// daemon. Holds at most the requested events.
final class EventInbox: Subscriber, Sendable {
  typealias Input = StreamEvent
  typealias Failure = StreamError

  private struct State {
    var events: [StreamEvent] = []
    var end: Stop?
    var notices: [String] = []
    var hasHadEvents = false
  }

  /// A subscription's handle; usable from any thread, which its type cannot express.
  private struct Handle: @unchecked Sendable {
    let cancellable: any Cancellable
    var subscription: (any Subscription)?
  }

  private let state = Locked(State())
  private let alarm: Alarm
  private let handle = Locked<Handle?>(nil)

  /// - Parameter alarm: shared by all inboxes of the main thread.
  init(_ alarm: Alarm) { self.alarm = alarm }

  func request(_ count: Int) {
    handle.withLock { $0 }?.subscription?.request(.max(count))
  }

  func cancel() {
    handle.withLock { $0 }?.cancellable.cancel()
  }

  /// Sets the sink that ``cancel()`` cancels, for a publishing command.
  func cancels(_ sink: RemoteSink) {
    let handle = Handle(cancellable: sink)
    self.handle.withLock { $0 = handle }
  }

  /// Removes and returns the received events and markers, in order, and the end, if there is one.
  func takeAll() -> (events: [StreamEvent], end: Stop?) {
    state.withLock { state in
      defer { state.events = [] }
      return (state.events, state.end)
    }
  }

  /// Removes and returns the messages besides the events.
  func takeNotices() -> [String] {
    state.withLock { state in
      defer { state.notices = [] }
      return state.notices
    }
  }

  /// The policy of a request that outlives its connection: posts its reports, and ends with the refusal of a token.
  func reconnectPolicy() -> ReconnectPolicy { ReconnectPolicy { [self] in post($0) }.ending { $0.isRefusalOfToken } }

  /// The message for a lost connection; the server's message follows.
  static let lossNotice = "connection lost, reconnecting"

  /// Adds one message per loss or recovery of the connection. At least one event lies between two losses, so the
  /// messages are limited by the requested events.
  func post(_ report: ReconnectPolicy.Report) {
    let notice =
      switch report {
      case .lost(.canceled(let sentence, _)): "\(Self.lossNotice): \(sentence)"
      case .lost: Self.lossNotice
      case .resumed: "reconnected"  // the gap is reported with the event
      case .forgotten:
        "reconnected; the daemon has forgotten this publisher: unconfirmed events may be in the stream twice"
      }
    post(notice)
  }

  /// Prepares for another subscription after the last one has ended.
  /// - Parameter end: the end of the last subscription.
  /// - Returns: false when another end has replaced it: that one is final.
  @discardableResult func reuse(after end: Stop) -> Bool {
    state.withLock { state in
      guard state.end == end else { return false }
      state.end = nil
      return true
    }
  }

  /// Ends `wait` at once, without an event.
  func wakeUp() {
    change { _ in }
  }

  /// Blocks until there may be something to take, here or in another inbox with the same alarm.
  /// - Returns: false at the deadline.
  func wait(until deadline: DispatchTime = .distantFuture) -> Bool { alarm.wait(until: deadline) }

  /// Whether any event has arrived.
  var hasHadEvents: Bool { state.withLock { $0.hasHadEvents } }

  /// Adds a message besides the events.
  func post(_ notice: String) {
    change { $0.notices.append(notice) }
  }

  /// Ends `wait` at once, and drops the events that were not taken.
  func interrupt(_ end: Stop) {
    change { state in
      state.events = []
      state.end = end
    }
  }

  func receive(subscription: any Subscription) {
    let handle = Handle(cancellable: subscription, subscription: subscription)
    self.handle.withLock { $0 = handle }
  }

  func receive(_ event: StreamEvent) -> Subscribers.Demand {
    change { state in
      state.events.append(event)
      if event.kind == .event { state.hasHadEvents = true }
    }
    return .none
  }

  func receive(completion: Subscribers.Completion<StreamError>) {
    change { state in
      guard state.end == nil else { return }
      if case .failure(let error) = completion { state.end = Stop(error) } else { state.end = .done }
    }
  }

  private func change(_ body: (inout State) -> Void) {
    state.withLock { body(&$0) }
    alarm.ring()
  }
}

/// Wakes the main thread, once for any number of reasons.
final class Alarm: Sendable {
  private let semaphore = DispatchSemaphore(value: 0)
  private let isRinging = Atomic(false)

  func ring() {
    if !isRinging.exchange(true, ordering: .acquiringAndReleasing) { semaphore.signal() }
  }

  /// Blocks until it rings. All that happened before is then visible, and does not ring again.
  /// - Returns: false at the deadline.
  func wait(until deadline: DispatchTime) -> Bool {
    guard semaphore.wait(timeout: deadline) == .success else { return false }
    return isRinging.exchange(false, ordering: .acquiringAndReleasing)
  }
}
