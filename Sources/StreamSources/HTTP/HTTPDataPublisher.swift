import FoundationEssentials
import Reactive
import StreamRuntime
import Synchronization

/// Makes one request for each subscriber and publishes its response: `URLSession.dataTaskPublisher`, on libcurl.
///
///     HTTPDataPublisher(url: "https://example.org/users.json")
///       .map(\.data)
///       .decode(type: [User].self, decoder: JSONDecoder())
///
/// Demand: the first unit starts the request; one value follows, then completion. A response with any status is a
/// value. Cancellation ends the transfer. Values are delivered on the source thread, which must not block: use
/// `receive(on:)` downstream.
public struct HTTPDataPublisher: Publisher, Sendable {
  /// The whole body, decompressed, and the response's metadata.
  public typealias Output = (data: Data, response: HTTPResponse)
  /// There is no response, or it is too large.
  public typealias Failure = HTTPDataFailure

  private let configuration: HTTPConfiguration
  private let thread: SourceThread?

  /// - Parameters:
  ///   - configuration: the request and its limits; `retry` is ignored: use the operator `retry(_:)`.
  ///   - thread: the thread that does the work; `nil`: a thread that all such publishers of the process share.
  public init(_ configuration: HTTPConfiguration, on thread: SourceThread? = nil) {
    self.configuration = configuration
    self.thread = thread
  }

  /// A GET with the defaults of ``HTTPConfiguration``.
  /// - Parameter url: absolute, http or https.
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

/// The metadata of a response.
public struct HTTPResponse: Equatable, Sendable {
  /// Three digits.
  public let statusCode: Int
  /// The URL that responded, after redirects.
  public let url: String
  /// The Content-Type header, parameters included.
  public let contentType: String?
}

/// The reason why there is no response.
public struct HTTPDataFailure: Error, Equatable, CustomStringConvertible {
  /// In lower case, without full stop, in one line, without secrets.
  public let message: String
  /// The message.
  public var description: String { message }
}

/// One subscription. Sendable: except for `isOver`, confined to the source thread.
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

  func transferReceived(_ head: UpstreamResponse) -> Transfer.Plan {
    let length = head.contentLength ?? 0
    guard length <= configuration.maximumBodyBytes else { return .refuse(tooLarge) }
    body.reserveCapacity(length)
    return .take
  }

  func transferReceived(_ bytes: UnsafeRawBufferPointer) -> Transfer.Flow {
    guard bytes.count <= configuration.maximumBodyBytes - body.count else { return .stop(tooLarge) }
    unsafe body.append(contentsOf: bytes)
    return .next
  }

  func transferEnded(_ result: Result<UpstreamResponse, HTTPFailure>) {
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

/// The thread of all publishers that were created without one.
private enum SharedSourceThread {
  private static let thread = Locked<SourceThread?>(nil)

  static func get() throws(SystemError) -> SourceThread {
    // A failure is not cached: descriptors may be available next time.
    try thread.withLock { thread throws(SystemError) in
      if let thread { return thread }
      let new = try SourceThread()
      try new.start()
      thread = new
      return new
    }
  }
}
