import Locks
import Reactive

/// A publisher that obeys the contract and records the state of each of its subscriptions. It sends the numbers from 0
/// up to `count`, then the completion, if any.
final class CountingSource: Publisher, Sendable {
  typealias Output = Int
  typealias Failure = TestError

  private struct State {
    var links: [WeakLink] = []
    var subscribers: [AnySubscriber<Int, TestError>] = []
    var subscriptions = 0
    var cancels = 0
    var sent = 0
  }
  private struct WeakLink { weak var link: Link? }
  private struct Substitute: @unchecked Sendable { let publisher: AnyPublisher<Int, TestError> }

  private let count: Int
  private let end: Subscribers.Completion<TestError>?
  /// Whether it delivers inside `request`; otherwise inside `pump`.
  private let isPrompt: Bool
  /// The publisher that receives the subscribers in place of this one.
  private let substitute: Substitute?
  private let state = Locked(State())

  init(_ count: Int, end: Subscribers.Completion<TestError>? = .finished, isPrompt: Bool = true) {
    self.count = count
    self.end = end
    self.isPrompt = isPrompt
    substitute = nil
  }

  /// Creates a source that passes its subscribers to another publisher, which it retains.
  init<P: Publisher<Int, TestError>>(standingFor publisher: P) {
    (count, end, isPrompt) = (0, nil, true)
    substitute = Substitute(publisher: publisher.eraseToAnyPublisher())
  }

  var cancels: Int { state.withLock { $0.cancels } }
  var subscriptions: Int { state.withLock { $0.subscriptions } }
  /// The number of values delivered to all subscribers.
  var sent: Int { state.withLock { $0.sent } }
  /// The subscriptions that have not been released.
  var links: [Link] { state.withLock { $0.links.compactMap(\.link) } }

  func receive<S: Subscriber>(subscriber: S) where S.Input == Int, S.Failure == TestError {
    let erased = AnySubscriber(subscriber)
    if let substitute { return substitute.publisher.subscribe(erased) }
    let link = Link(self, erased)
    state.withLock {
      $0.links.append(WeakLink(link: link))
      $0.subscribers.append(erased)
      $0.subscriptions += 1
    }
    subscriber.receive(subscription: link)
    if isPrompt { link.pump() }
  }

  /// Delivers all requested values, including those requested meanwhile.
  func pump() {
    while links.map({ $0.pump() }).contains(true) {}
  }

  /// Sends values and completions after the end, in breach of the contract.
  func misbehave() {
    for subscriber in state.withLock({ $0.subscribers }) {
      _ = subscriber.receive(-1)
      subscriber.receive(completion: .finished)
      subscriber.receive(completion: .failure(TestError()))
    }
  }

  /// Releases the subscribers that are kept for ``misbehave()``.
  func forget() {
    let subscribers = state.withLock { state in
      defer { state.subscribers = [] }
      return state.subscribers
    }
    _ = subscribers
  }

  final class Link: Subscription, @unchecked Sendable {
    private struct State {
      var down: AnySubscriber<Int, TestError>?
      var demand = Subscribers.Demand.none
      var sent = 0
      var isSending = false
      var isCancelled = false
    }
    private enum Step { case value(Int), end(Subscribers.Completion<TestError>) }
    private let source: CountingSource
    private let state: Locked<State>

    init(_ source: CountingSource, _ down: AnySubscriber<Int, TestError>) {
      self.source = source
      state = Locked(State(down: down))
    }

    func request(_ demand: Subscribers.Demand) {
      state.withLock { $0.demand += demand }
      if source.isPrompt { pump() }
    }

    func cancel() {
      let down = state.withLock { state in
        defer { state.down = nil }
        if state.down != nil { source.state.withLock { $0.cancels += 1 } }
        return state.down
      }
      _ = down
    }

    /// - Returns: Whether anything was delivered.
    @discardableResult
    func pump() -> Bool {
      var hasDelivered = false
      while let (down, step) = next() {
        hasDelivered = true
        switch step {
        case .value(let value):
          source.state.withLock { $0.sent += 1 }
          let more = down.receive(value)
          state.withLock {
            $0.demand += more
            $0.isSending = false
          }
        case .end(let completion): down.receive(completion: completion)
        }
      }
      return hasDelivered
    }

    private func next() -> (AnySubscriber<Int, TestError>, Step)? {
      state.withLock { state in
        guard let down = state.down, !state.isSending else { return nil }
        if state.sent == source.count {
          guard let end = source.end else { return nil }
          state.down = nil
          return (down, .end(end))
        }
        guard state.demand > 0 else { return nil }
        state.demand -= 1
        state.sent += 1
        state.isSending = true
        return (down, .value(state.sent - 1))
      }
    }
  }
}

/// Sends values and a completion, but no subscription, as the publishers of many tutorials do.
struct WithoutSubscription: Publisher {
  typealias Output = Int
  typealias Failure = TestError
  let count: Int

  func receive<S: Subscriber<Int, TestError>>(subscriber: S) {
    for number in 0..<count { _ = subscriber.receive(number) }
    subscriber.receive(completion: .finished)
  }
}

/// Records every breach of the contract by a publisher of any type.
final class Watcher: Sendable {
  private struct State {
    var subscription: (any Subscription)?
    var demand = Subscribers.Demand.none
    var values = 0
    var completions = 0
    var isInside = false
    var isCancelled = false
    var breaches: [String] = []
  }
  private let state = Locked(State())
  private let initial: Subscribers.Demand
  /// Called inside `receive(_:)`; returns the additional demand.
  private let onValue: @Sendable (Watcher) -> Subscribers.Demand

  init(
    _ initial: Subscribers.Demand = .none,
    onValue: @escaping @Sendable (Watcher) -> Subscribers.Demand = { _ in .none }
  ) {
    self.initial = initial
    self.onValue = onValue
  }

  var values: Int { state.withLock { $0.values } }
  var completions: Int { state.withLock { $0.completions } }
  var breaches: [String] { state.withLock { $0.breaches } }
  /// The subscription's description.
  var subscriptionName: String { state.withLock { $0.subscription }.map { "\($0)" } ?? "" }

  func request(_ demand: Subscribers.Demand) {
    let subscription = state.withLock { state in
      state.demand += demand
      return state.subscription
    }
    subscription?.request(demand)
  }

  func cancel() {
    cancelWhileSignalled()
    state.withLock { $0.isCancelled = true }
  }

  /// Cancels while another thread may be delivering a value, which is not a breach.
  func cancelWhileSignalled() {
    let subscription = state.withLock { $0.subscription }
    subscription?.cancel()
  }

  /// A subscriber of any type that passes its signals to the watcher.
  final class Eye<Input, Failure: Error>: Subscriber {
    private let watcher: Watcher

    init(_ watcher: Watcher) { self.watcher = watcher }

    func receive(subscription: any Subscription) { watcher.receive(subscription) }
    func receive(_ input: Input) -> Subscribers.Demand { watcher.receiveValue() }
    func receive(completion: Subscribers.Completion<Failure>) { watcher.receiveCompletion() }
  }

  private func receive(_ subscription: any Subscription) {
    let isFirst = state.withLock { state in
      if state.subscription != nil { state.breaches.append("a second subscription") }
      defer { state.subscription = subscription }
      return state.subscription == nil
    }
    if isFirst, initial != .none { request(initial) }
  }

  private func receiveValue() -> Subscribers.Demand {
    enter("value") { state in
      if state.demand == .none { state.breaches.append("a value without demand") }
      state.demand -= 1
      state.values += 1
    }
    let more = onValue(self)
    state.withLock {
      $0.demand += more
      $0.isInside = false
    }
    return more
  }

  private func receiveCompletion() {
    enter("completion") { $0.completions += 1 }
    state.withLock { $0.isInside = false }
  }

  private func enter(_ what: String, _ note: (inout State) -> Void) {
    state.withLock { state in
      if state.subscription == nil { state.breaches.append("a \(what) before the subscription") }
      if state.isInside { state.breaches.append("a \(what) that overlaps another signal") }
      if state.completions > 0 { state.breaches.append("a \(what) after the end") }
      if state.isCancelled { state.breaches.append("a \(what) after cancelling") }
      state.isInside = true
      note(&state)
    }
  }
}
