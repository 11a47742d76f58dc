import Events
import StreamProtocol
import StreamRuntime

/// The reason why a stream takes no values, or no more values, of a publisher.
enum PublishingObstacle: Error, Equatable {
  /// The stream's source is not its publishers.
  case acceptsNoValues
  /// The stream's access rules do not admit the client.
  case forbidden
  /// Values of other publishers wait in the stream.
  case noRoom
  /// The user has `count` named publishers, and `free` of ``PublisherMarks/capacity`` are left for all.
  case tooManyNames(count: Int, free: Int)
  /// Another publisher has the name, its values wait, or the stream is being changed. Temporary.
  case nameInUse
  /// The stream was removed while values were published.
  case notServed
  /// The stream has another source now.
  case acceptsNoMoreValues
  case hasEnded
  /// The stream was changed before it had stored all values.
  case hasLostValues

  /// Whether nothing was published: the request is refused, which is counted and reported.
  var isRefusal: Bool {
    switch self {
    case .acceptsNoValues, .forbidden, .noRoom, .tooManyNames: true
    case .nameInUse, .notServed, .acceptsNoMoreValues, .hasEnded, .hasLostValues: false
    }
  }
}

extension Connection {
  /// The failure that the client gets for an obstacle.
  func failure(_ obstacle: PublishingObstacle, of stream: ServedStream) -> RequestFailure {
    let name = stream.name
    return switch obstacle {
    case .acceptsNoValues: .init(.takesNoValues, stream.sourceRemark + "\"\(name)\" does not accept values")
    case .forbidden: mayNotWrite(stream).failure
    case .noRoom: .init(.noSpace, "\"\(name)\" has no space: values of other publishers wait in it")
    case .tooManyNames(let count, let free):
      .init(
        .tooManyPublishers,
        "\(identity.user) has \(count) named publishers of \"\(name)\", with \(free) of \(PublisherMarks.capacity) left"
      )
    case .nameInUse:
      .init(.nameInUse, "another publisher to \"\(name)\" uses this name, or the stream is being changed")
    case .notServed: .removed(name)
    case .acceptsNoMoreValues: .init(.takesNoMoreValues, "\"\(name)\" no longer accepts values")
    case .hasEnded: .init(.ended, "\"\(name)\" has ended")
    case .hasLostValues: .init(.valuesLost, "\"\(name)\" was changed before it had stored all values")
    }
  }

  /// The source that takes a client's values for a stream.
  func publishSource(of stream: ServedStream) throws(PublishingObstacle) -> PublishSource {
    guard let source = stream.publishSource else { throw .acceptsNoValues }
    guard admits(stream.configuration.write) else { throw .forbidden }
    return source
  }
}

extension ServedStream {
  /// Why it accepts no values, before the sentence that it does not: clients of the last release compare how that ends.
  fileprivate var sourceRemark: String {
    let source = configuration.source
    return isConfigured && source != "publish" ? "with the source \(source), not publish, " : ""
  }
}

/// The values that one request of a client publishes: a channel of RSocket, a POST, or a WebSocket. Confined to its
/// connection's loop.
final class Publication {
  let stream: ServedStream
  let source: PublishSource
  let queue: PublishQueue
  /// The received values that the source was not given yet.
  var arrived = EventBatch()
  /// The last status of the values that the source was given; nil before the first.
  private(set) var status: PublishSource.PublishStatus?
  /// Called when the stream has taken values, or was changed.
  var changed: () -> Void = {}

  init(_ stream: ServedStream, _ source: PublishSource, _ queue: PublishQueue) {
    (self.stream, self.source, self.queue) = (stream, source, queue)
  }

  /// Joins the publishers of a stream.
  /// - Parameter unsettled: of a request that began in another process, the values that wait in the stream.
  /// - Returns: nil if the stream has no room.
  static func begin(
    to stream: ServedStream, _ source: PublishSource, unsettled: UnsettledValues = .init(), on loop: EventLoop
  ) -> Publication? {
    let waker = Waker()
    let queue = source.join(unsettled: unsettled) {
      loop.execute {
        source.deliver()
        waker.publication?.changed()
      }
    }
    guard let queue else { return nil }
    let publication = Publication(stream, source, queue)
    waker.publication = publication
    return publication
  }

  /// Other threads carry it. Only the connection's loop reads it.
  private final class Waker: @unchecked Sendable { weak var publication: Publication? }

  /// Gives the received values to the source.
  /// - Parameter isComplete: whether no value follows.
  func passOn(isComplete: Bool) -> PublishSource.PublishStatus {
    var values = EventBatch()
    swap(&values, &arrived)
    return note(source.take(values, isComplete: isComplete, from: queue))
  }

  /// The stream has taken values, or was changed.
  func refresh() -> PublishSource.PublishStatus { note(source.status(of: queue)) }

  private func note(_ status: PublishSource.PublishStatus) -> PublishSource.PublishStatus {
    self.status = status
    return status
  }

  /// Whether input is left in the socket until the stream has taken some values: the transport's flow control is the
  /// publisher's credit.
  var isAhead: Bool {
    guard let status else { return false }
    return status.heldBytes * 2 > status.window.byteCount || status.heldCount * 2 > PublishWindow.mostValues
  }

  /// The reason why the stream takes no more values; nil: it takes more.
  var obstacle: PublishingObstacle? {
    guard let status else { return nil }
    return status.hasEnded ? .hasEnded : status.hasLostValues ? .hasLostValues : nil
  }

  /// The reason why the client may publish no more after a change of the stream or of its access; nil: it may.
  func obstacle(for connection: Connection) -> PublishingObstacle? {
    if connection.worker.streams[stream.name] !== stream { return .notServed }
    if stream.publishSource !== source { return .acceptsNoMoreValues }
    return connection.admits(stream.configuration.write) ? nil : .forbidden
  }

  /// Takes back the values that wait for room, for the next process. The stream saves the values that it was given. If
  /// an operator between it and its publishers may still hold some, the request cannot continue.
  func withdraw() -> (values: EventBatch, unsettled: UnsettledValues, continues: Bool) {
    let values = source.withdraw(queue)
    let unsettled = source.unsettled(of: queue)
    return (values, unsettled, unsettled.count == 0 || stream.hasAll(of: source))
  }

  /// The publisher leaves; its values stay.
  func leave() {
    source.leave(queue)
    stream.use?.end()
  }
}
