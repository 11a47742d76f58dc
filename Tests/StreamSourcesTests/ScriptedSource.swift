import Events
import Reactive
import StreamRuntime

/// A source under the test's control, with one subscriber at a time: counts what happens to it.
final class ScriptedSource: Publisher, Sendable {
  typealias Output = EventBatch
  typealias Failure = Never

  struct State {
    var subscriber: AnySubscriber<EventBatch, Never>?
    var subscriptions = 0
    var requested = Subscribers.Demand.none
    var retractions = 0
    var cancellations = 0
  }
  private let state = Locked(State())
  /// Sent automatically, one per requested batch; then it finishes. Demand returned from `receive` is ignored.
  private let script: Locked<[[String]]>

  init(_ script: [[String]] = []) { self.script = Locked(script) }

  var now: State { state.withLock { $0 } }

  /// Waits for a signal to the source.
  func until(_ condition: @Sendable (State) -> Bool) async throws {
    while !condition(now) { try await Task.sleep(for: .milliseconds(1)) }
  }

  func receive<S: Subscriber>(subscriber: S) where S.Input == Output, S.Failure == Failure {
    state.withLock { state in
      state.subscriptions += 1
      state.subscriber = AnySubscriber(subscriber)
    }
    subscriber.receive(subscription: Link(source: self))
  }

  func send(_ events: String...) { send(events) }

  private func send(_ events: [String]) {
    _ = now.subscriber?.receive(EventBatch(events.map { Array($0.utf8) }))
  }

  func finish() { now.subscriber?.receive(completion: .finished) }

  private struct Link: RetractableSubscription {
    let combineIdentifier = CombineIdentifier()
    let source: ScriptedSource

    func request(_ demand: Subscribers.Demand) {
      source.state.withLock { $0.requested += demand }
      var left = demand
      while left > .none {
        let (next, isLast) = source.script.withLock { script -> ([String]?, Bool) in
          script.isEmpty ? (nil, false) : (script.removeFirst(), script.isEmpty)
        }
        guard let next else { return }
        left -= 1
        source.send(next)
        if isLast { source.finish() }
      }
    }

    func retract() { source.state.withLock { $0.retractions += 1 } }
    func cancel() { source.state.withLock { $0.cancellations += 1 } }
  }
}
