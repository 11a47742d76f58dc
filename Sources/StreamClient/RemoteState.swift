import StreamProtocol
import Reactive
import StreamRuntime

extension RemoteStream {
  /// The state of a stream with keys: the newest event of each key, then every change.
  ///
  ///     for try await element in connection.stream("quotes", reconnect: ReconnectPolicy()).state(key: symbol) {
  ///       switch element {
  ///       case .snapshot(let quotes): table = quotes
  ///       case .change(let symbol, let quote): table[symbol] = quote
  ///       case .removal(let symbol): table[symbol] = nil
  ///       }
  ///     }
  ///
  /// The stream's own options remain, except that the subscription begins with the state and has ids and markers. With
  /// a filter, an event that does not fit changes nothing. Its conditions should therefore be on members that are the
  /// same in all events of a key, its tombstones included.
  ///
  /// - Parameters:
  ///   - key: returns what the stream's `key` finds in an event; `nil` for an event without a key, which is left out.
  ///     Must not block. Called by the task that reads the sequence.
  ///   - isTombstone: returns what the stream's `tombstone` finds: whether the event removes its key. Called as above.
  public func state<Key: Hashable & Sendable>(
    key: @escaping @Sendable (StreamEvent) -> Key?,
    isTombstone: @escaping @Sendable (StreamEvent) -> Bool = { _ in false }
  ) -> RemoteState<Key> {
    var request = request
    request.options.from = .state
    request.options.ids = true
    request.options.marker = true
    return RemoteState(request: request, key: key, isTombstone: isTombstone)
  }
}

/// The state of one remote stream: first a snapshot, as of one event, then every change; see
/// ``RemoteStream/state(key:isTombstone:)``.
///
/// Each iterator has its own subscription, made when it awaits its first element. The subscription is cancelled when
/// the iterator is released, or when its task is cancelled, which ends the loop. A slow loop delays no other stream: at
/// most 64 events wait here. Until its snapshot is complete, an iterator holds the newest event of each key; afterwards
/// it holds none. At the daemon, the stream's `max_keys` and `state_bytes` limit the number and size of these events.
///
/// If the stream lost events before they were sent, because the loop was slow or the connection was interrupted, the
/// iterator takes the state again. It then delivers another snapshot, which replaces all earlier elements. With a
/// ``ReconnectPolicy`` it also does so after a loss of the connection within the state, and when the daemon cannot send
/// the rest of the state. After a loss later than the snapshot, the changes continue after the last one. Without a
/// policy, a loss is thrown.
public struct RemoteState<Key: Hashable & Sendable>: AsyncSequence, Sendable {
  /// What one step of the sequence delivers.
  public enum Element: Equatable, Sendable {
    /// The newest event of each key. Replaces all that was delivered before.
    case snapshot([Key: StreamEvent])
    /// The key has this event now.
    case change(Key, StreamEvent)
    /// A tombstone has removed the key. The snapshot may not have had this key.
    case removal(Key)
  }

  /// The failure, thrown after the elements that precede it; ``StreamError/invalid(_:_:)`` if the stream has no keys, or
  /// its state is incomplete.
  public typealias Failure = StreamError

  let request: RemoteRequest
  let key: @Sendable (StreamEvent) -> Key?
  let isTombstone: @Sendable (StreamEvent) -> Bool

  /// Creates an iterator with its own subscription, made by the first `next()`.
  public func makeAsyncIterator() -> AsyncIterator { AsyncIterator(state: self) }

  /// The position of one consumer; must not be shared between tasks.
  public struct AsyncIterator: AsyncIteratorProtocol {
    /// The largest number of events requested and not taken.
    private static var capacity: Int { 64 }

    private let state: RemoteState
    private var request: RemoteRequest
    /// `nil` between two subscriptions.
    private var intake: EventIntake?
    private var fold = StateFold<Key>()
    /// The time to wait before the next subscription.
    private var pause: Duration?
    private var isOver = false

    init(state: RemoteState) { (self.state, request) = (state, state.request) }

    /// The next snapshot or change; `nil` once the stream has ended or the task is cancelled.
    public mutating func next(
      isolation actor: isolated (any Actor)? = #isolation
    ) async throws(StreamError) -> Element? {
      while !isOver {
        if let delay = pause.take() {
          guard (try? await Task.sleep(for: delay)) != nil else {
            isOver = true
            return nil
          }
        }
        let intake = self.intake ?? EventIntake(request, capacity: Self.capacity)
        self.intake = intake
        let step: StateFold<Key>.Step
        do throws(StreamError) {
          if let event = try await intake.next(isolation: actor) {
            request.wasConnected = true
            request.isInterrupted = false
            step = fold.receive(event, key: state.key, isTombstone: state.isTombstone)
          } else {
            isOver = true
            self.intake = nil
            return Task.isCancelled ? nil : fold.end()
          }
        } catch {
          step = fold.fail(error, reconnects: request.reconnect != nil)
          guard case .again = step else {
            isOver = true
            self.intake = nil
            throw error
          }
          if error.isLoss(wasConnected: true, isRefused: false) { report(error) }
        }
        switch step {
        case .nothing: break
        case .deliver(let element): return element
        case .again(let losses):
          self.intake = nil
          guard losses > 0 else { break }
          pause = (request.reconnect ?? ReconnectPolicy())
            .delay(afterLosses: losses, fraction: Double.random(in: 0..<1))
        }
      }
      return nil
    }

    private mutating func report(_ error: StreamError) {
      request.isInterrupted = true
      guard let policy = request.reconnect else { return }
      request.connection.transport.loop.execute { policy.report(.lost(error)) }
    }
  }
}

/// Folds the events of one subscription after another into snapshots and changes. Holds no connection and no clock.
struct StateFold<Key: Hashable & Sendable> {
  enum Step {
    case nothing
    case deliver(RemoteState<Key>.Element)
    /// The state must be taken again, after the delay for this number of losses; 0: at once.
    case again(afterLosses: Int)
  }

  /// The events of a state, up to its first marker; `nil` after that.
  private var events: [Key: StreamEvent]? = [:]
  /// Whether the present subscription had an event or a marker.
  private var hasBegun = false
  /// The number of attempts to take the state since the last snapshot.
  private var attempts = 0

  mutating func receive(
    _ event: StreamEvent, key: (StreamEvent) -> Key?, isTombstone: (StreamEvent) -> Bool
  ) -> Step {
    hasBegun = true
    guard event.gap == nil else { return again(afterLosses: attempts) }
    guard event.kind == .event else { return end().map { .deliver($0) } ?? .nothing }
    guard let key = key(event) else { return .nothing }
    let isRemoval = isTombstone(event)
    guard events != nil else { return .deliver(isRemoval ? .removal(key) : .change(key, event)) }
    events?[key] = isRemoval ? nil : event
    return .nothing
  }

  /// Every event was received. Returns the snapshot, if it was not delivered yet.
  mutating func end() -> RemoteState<Key>.Element? {
    guard let state = events.take() else { return nil }
    attempts = 0
    return .snapshot(state)
  }

  /// - Parameter reconnects: whether the subscription outlives its connection. After the snapshot it resumes by itself.
  /// - Returns: `.nothing` if the failure is final.
  mutating func fail(_ error: StreamError, reconnects: Bool) -> Step {
    let isInState = events != nil
    switch error {
    case .lagged: return again(afterLosses: attempts)
    // The stream has no event with the id to resume from: its log began anew.
    case .invalid(_, let reason) where !isInState && [nil, .unknownPosition].contains(reason):
      return again(afterLosses: attempts)
    case let loss where isInState && hasBegun && reconnects && loss.isLoss(wasConnected: true, isRefused: false):
      return again(afterLosses: attempts + 1)
    default: return .nothing
    }
  }

  private mutating func again(afterLosses count: Int) -> Step {
    attempts += 1
    hasBegun = false
    events = [:]
    return .again(afterLosses: count)
  }
}
