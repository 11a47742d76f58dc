import FoundationEssentials
import Reactive
import StreamRuntime
import Synchronization

/// One request and its answer, for each subscriber: what `URLSession.dataTaskPublisher` is elsewhere, on libcurl.
///
///     HTTPDataPublisher(url: "https://example.org/users.json")
///       .map(\.data)
///       .decode(type: [User].self, decoder: JSONDecoder())
///
/// Demand: the first unit makes the request; one value comes, then the end. Any status is an answer. Cancelling ends the
/// transfer. Values are delivered on the source thread, which must not be held up: put `receive(on:)` behind.
public struct HTTPDataPublisher: Publisher, Sendable {
  /// The whole body, decompressed, and what the server said before it.
  public typealias Output = (data: Data, response: HTTPResponse)
  /// There is no answer, or too much of it.
  public typealias Failure = HTTPDataFailure

  private let configuration: HTTPConfiguration
  private let thread: SourceThread?

  /// - Parameters:
  ///   - configuration: What to ask for and within which limits; `retry` is not looked at: that is what
  ///     `retry(_:)` is for.
  ///   - thread: Where the work is done; `nil`: on one that all such publishers of the process share.
  public init(_ configuration: HTTPConfiguration, on thread: SourceThread? = nil) {
    self.configuration = configuration
    self.thread = thread
  }

  /// A GET with the defaults of ``HTTPConfiguration``.
  /// - Parameter url: Absolute, http or https.
  public init(url: String) { self.init(HTTPConfiguration(url: url)) }

  /// Attaches the subscriber.
  public func receive<S: Subscriber>(subscriber: S) where S.Input == Output, S.Failure == Failure {
    do throws(SystemError) {
      let thread = if let thread { thread } else { try SharedSourceThread.get() }
      subscriber.receive(subscription: DataRequest(configuration, thread, AnySubscriber(subscriber)))
    } catch {
      Fail(error: HTTPDataFailure(message: error.description)).receive(subscriber: subscriber)
    }
  }
}

/// What a server says before a body.
public struct HTTPResponse: Equatable, Sendable {
  /// Three digits.
  public let statusCode: Int
  /// Where the answer came from, after redirects.
  public let url: String
  /// As the server says it, parameters included.
  public let contentType: String?
}

/// Why there is no answer.
public struct HTTPDataFailure: Error, Equatable, CustomStringConvertible {
  /// Lower case, no full stop, in one line, without anything secret.
  public let message: String
  /// The message.
  public var description: String { message }
}

/// One subscription. Sendable: but for `isOver`, touched on the source thread alone.
private final class DataRequest: Subscription, Transfer.Handler, @unchecked Sendable {
  private let configuration: HTTPConfiguration
  private let thread: SourceThread
  private let isOver = Atomic(false)
  private var down: AnySubscriber<HTTPDataPublisher.Output, HTTPDataFailure>?
  private var transfer: Transfer?
  private var body = Data()

  init(
    _ configuration: HTTPConfiguration, _ thread: SourceThread,
    _ down: AnySubscriber<HTTPDataPublisher.Output, HTTPDataFailure>
  ) {
    self.configuration = configuration
    self.thread = thread
    self.down = down
  }

  func request(_ demand: Subscribers.Demand) {
    guard demand != .none, !isOver.load(ordering: .acquiring) else { return }
    thread.loop.execute { [self] in
      guard transfer == nil, !isOver.load(ordering: .acquiring) else { return }
      do throws(HTTPFailure) {
        let request = try configuration.request(nil)
        guard let client = thread.httpClient else { throw HTTPFailure("the source thread has stopped") }
        transfer = client.start(request, handler: self)
      } catch {
        transferEnded(.failure(error))
      }
    }
  }

  func cancel() {
    guard !isOver.exchange(true, ordering: .acquiringAndReleasing) else { return }
    thread.loop.execute { [self] in
      transfer?.cancel()
      release()
    }
  }

  private func release() {
    thread.loop.assertOnLoop()
    transfer = nil
    down = nil
    body = Data()
  }

  // MARK: Transfer.Handler

  func transferWaits(_ reason: String) {}

  func transferReceived(_ head: ResponseHead) -> Transfer.Plan {
    let length = head.contentLength ?? 0
    guard length <= configuration.maximumBodyBytes else { return .refuse(tooLarge) }
    body.reserveCapacity(length)
    return .take
  }

  func transferReceived(_ bytes: UnsafeRawBufferPointer) -> Transfer.Flow {
    guard bytes.count <= configuration.maximumBodyBytes - body.count else { return .stop(tooLarge) }
    body.append(contentsOf: bytes)
    return .next
  }

  func transferEnded(_ result: Result<ResponseHead, HTTPFailure>) {
    let (down, data) = (down, body)
    release()
    guard let down else { return }
    switch result {
    case .success(let head):
      guard !isOver.load(ordering: .acquiring) else { return }
      let response = HTTPResponse(statusCode: head.status, url: head.url, contentType: head.contentType)
      _ = down.receive((data, response))
      if !isOver.exchange(true, ordering: .acquiringAndReleasing) { down.receive(completion: .finished) }
    case .failure(let failure):
      guard !isOver.exchange(true, ordering: .acquiringAndReleasing) else { return }
      down.receive(completion: .failure(HTTPDataFailure(message: failure.sentence)))
    }
  }

  private var tooLarge: HTTPFailure { .over(configuration.maximumBodyBytes, "body") }
}

/// The thread of all publishers that were given none.
private enum SharedSourceThread {
  private static let thread = Locked<SourceThread?>(nil)

  static func get() throws(SystemError) -> SourceThread {
    // A failure is not kept: descriptors may be free again next time.
    try thread.withLock { thread throws(SystemError) in
      if let thread { return thread }
      let new = try SourceThread()
      try new.start()
      thread = new
      return new
    }
  }
}
