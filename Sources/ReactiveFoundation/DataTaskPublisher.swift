import Locks

#if canImport(FoundationNetworking)
  import Foundation
  import FoundationNetworking
  import Reactive

  extension URLSession {
    /// A publisher that fetches a URL for each subscriber.
    public func dataTaskPublisher(for url: URL) -> DataTaskPublisher { dataTaskPublisher(for: URLRequest(url: url)) }

    /// A publisher that makes a request for each subscriber.
    public func dataTaskPublisher(for request: URLRequest) -> DataTaskPublisher {
      DataTaskPublisher(request: request, session: self)
    }

    /// Makes one request for each subscriber and delivers its response.
    ///
    /// Demand: the first demand starts the task, which delivers one value and finishes. A response with any status is a
    /// value. Cancelling cancels the task; no signal follows. Signals are delivered on the session's delegate queue.
    ///
    /// Limit: Foundation on Linux (Swift 6.3) closes the socket of a cancelled task while it is still watched, so a later
    /// request of the process can fail with `URLError.timedOut`. A program that cancels tasks should retry requests.
    public struct DataTaskPublisher: Publisher, Sendable {
      /// The whole body and the response metadata.
      public typealias Output = (data: Data, response: URLResponse)
      /// The error of a request without a response.
      public typealias Failure = URLError
      /// The request.
      public let request: URLRequest
      /// The session that runs the tasks.
      public let session: URLSession

      /// `session.dataTaskPublisher(for: request)`
      public init(request: URLRequest, session: URLSession) { (self.request, self.session) = (request, session) }

      /// Attaches the subscriber.
      public func receive<S: Subscriber<Output, URLError>>(subscriber: S) {
        subscriber.receive(subscription: DataTaskSubscription(self, AnySubscriber(subscriber)))
      }
    }
  }

  private final class DataTaskSubscription: Subscription, CustomStringConvertible, @unchecked Sendable {
    typealias Down = AnySubscriber<URLSession.DataTaskPublisher.Output, URLError>

    // Sendable: state is guarded, and only the thread that takes the subscriber calls it.

    private struct State {
      var down: Down?
      var task: URLSessionDataTask?
      var isStarted = false
      var isCancelled = false
    }
    private let publisher: URLSession.DataTaskPublisher
    private let state: Locked<State>
    let description = "DataTaskPublisher"

    init(_ publisher: URLSession.DataTaskPublisher, _ down: Down) {
      self.publisher = publisher
      state = Locked(State(down: down))
    }

    func request(_ demand: Subscribers.Demand) {
      let isFirst = state.withLock { state in
        defer { if demand != .none { state.isStarted = true } }
        return demand != .none && !state.isStarted && state.down != nil
      }
      guard isFirst else { return }
      let task = publisher.session.dataTask(with: publisher.request) { self.finish($0, $1, $2) }
      let isWanted = state.withLock { state in
        if !state.isCancelled { state.task = task }
        return !state.isCancelled
      }
      if isWanted { task.resume() } else { task.cancel() }
    }

    /// A task that was not resumed yet is left to the thread that created it.
    func cancel() {
      let (down, task) = state.withLock { state in
        state.isCancelled = true
        return (state.down.take(), state.task.take())
      }
      _ = down
      task?.cancel()
    }

    private func finish(_ data: Data?, _ response: URLResponse?, _ error: (any Error)?) {
      let down = state.withLock { state in
        state.task = nil
        return state.down.take()
      }
      guard let down else { return }
      guard let response, error == nil else {
        return down.receive(completion: .failure(error as? URLError ?? URLError(.unknown)))
      }
      _ = down.receive((data ?? Data(), response))
      if !state.withLock({ $0.isCancelled }) { down.receive(completion: .finished) }
    }
  }
#endif
