import Dispatch
import Reactive
import StreamClient
import StreamRuntime

/// Where events wait between the event loop and the main thread, which may block on its output for as long as that
/// pleases: the loop goes on answering the daemon. Holds no more than was asked for.
final class EventInbox: Subscriber, Sendable {
  typealias Input = StreamEvent
  typealias Failure = StreamError

  private struct State {
    var events: [StreamEvent] = []
    var end: Stop?
    var notices: [String] = []
    var hasHadEvents = false
    var mustWake = true
  }

  /// What ends with the program; it may be used from any thread, which its type cannot say.
  private struct Handle: @unchecked Sendable {
    let cancellable: any Cancellable
    var subscription: (any Subscription)?
  }

  private let state = Locked(State())
  private let wake = DispatchSemaphore(value: 0)
  private let handle = Locked<Handle?>(nil)

  func request(_ count: Int) {
    handle.withLock { $0 }?.subscription?.request(.max(count))
  }

  func cancel() {
    handle.withLock { $0 }?.cancellable.cancel()
  }

  /// What ``cancel()`` is to cancel: a sink, which takes values in place of giving them.
  func cancels(_ sink: RemoteSink) {
    let handle = Handle(cancellable: sink)
    self.handle.withLock { $0 = handle }
  }

  /// What has come since the last time, in order, and why no more will.
  func takeAll() -> (events: [StreamEvent], end: Stop?) {
    state.withLock { state in
      defer { state.events = [] }
      return (state.events, state.end)
    }
  }

  /// What there is to say beside the events.
  func takeNotices() -> [String] {
    state.withLock { state in
      defer { state.notices = [] }
      return state.notices
    }
  }

  /// The connection comes and goes: a line each, with an event between any two losses, so that no more can wait here
  /// than the events that were asked for.
  func note(_ report: ReconnectPolicy.Report) {
    let notice =
      switch report {
      case .lost: "connection lost, reconnecting"
      case .resumed: "reconnected"  // what is missing is told with the event
      case .forgotten:
        "reconnected; the daemon has forgotten this publisher: unconfirmed events may be in the stream twice"
      }
    note(notice)
  }

  /// Makes ready for another subscription, once the last one has ended.
  /// - Parameter end: how it has.
  /// - Returns: false when another end has come meanwhile: that one stands.
  @discardableResult func reuse(after end: Stop) -> Bool {
    state.withLock { state in
      guard state.end == end else { return false }
      state.end = nil
      return true
    }
  }

  /// Ends the waiting at once, for another cause than an event.
  func nudge() {
    change { _ in }
  }

  /// Blocks until there may be something to take.
  /// - Returns: false when the time is over.
  func wait(until deadline: DispatchTime = .distantFuture) -> Bool {
    let isWoken = wake.wait(timeout: deadline) == .success
    if isWoken { state.withLock { $0.mustWake = true } }
    return isWoken
  }

  /// Whether any event has come.
  var hasHadEvents: Bool { state.withLock { $0.hasHadEvents } }

  /// Something to say beside the events.
  func note(_ notice: String) {
    change { $0.notices.append(notice) }
  }

  /// Ends the waiting at once; what has not been taken is dropped.
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
      state.hasHadEvents = true
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
    let mustWake = state.withLock { state in
      body(&state)
      defer { state.mustWake = false }
      return state.mustWake
    }
    if mustWake { wake.signal() }
  }
}
