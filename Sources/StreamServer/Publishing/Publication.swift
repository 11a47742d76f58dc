import Events

/// Why a stream takes no values, or no more values, of a publisher.
enum PublishingObstacle: Error, Equatable {
  /// Its source is not its publishers.
  case acceptsNoValues
  /// Its access rules do not admit the client.
  case forbidden
  /// Values of other publishers wait in it.
  case noRoom
  /// The user has `count` named publishers, and `free` of ``PublisherMarks/capacity`` are left for all.
  case tooManyNames(count: Int, free: Int)
  /// Another publisher has the name, or its values wait; or the stream is being changed. Temporary.
  case nameInUse
  /// It was removed while values were published.
  case notServed
  /// It has got another source.
  case acceptsNoMoreValues
  case hasEnded
  /// It was changed before it had stored all values.
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
  /// What the client gets for an obstacle.
  func failure(_ obstacle: PublishingObstacle, of stream: ServedStream) -> RequestFailure {
    let name = stream.name
    return switch obstacle {
    case .acceptsNoValues: .rejected("\"\(name)\" does not accept values")
    case .forbidden: mayNotWrite(stream).failure
    case .noRoom: .rejected("\"\(name)\" has no space: values of other publishers wait in it")
    case .tooManyNames(let count, let free):
      .rejected(
        "\(identity.user) has \(count) named publishers of \"\(name)\", with \(free) of \(PublisherMarks.capacity) left"
      )
    case .nameInUse: .canceled("another publisher to \"\(name)\" uses this name, or the stream is being changed")
    case .notServed: .canceled("\"\(name)\" is no longer served")
    case .acceptsNoMoreValues: .canceled("\"\(name)\" no longer accepts values")
    case .hasEnded: .canceled("\"\(name)\" has ended")
    case .hasLostValues: .canceled("\"\(name)\" was changed before it had stored all values")
    }
  }

  /// Where a client's values for a stream go.
  func publishSource(of stream: ServedStream) throws(PublishingObstacle) -> PublishSource {
    guard let source = stream.publishSource else { throw .acceptsNoValues }
    guard admits(stream.configuration.write) else { throw .forbidden }
    return source
  }
}

/// The values that one request of a client publishes: a channel of RSocket, or a POST. Confined to its connection's loop.
final class Publication {
  let stream: ServedStream
  let source: PublishSource
  let queue: PublishQueue
  /// Values that were received, and not given to the source yet.
  var arrived = EventBatch()
  /// What the source said last of the values that it was given; nil before the first.
  private(set) var status: PublishSource.PublishStatus?

  init(_ stream: ServedStream, _ source: PublishSource, _ queue: PublishQueue) {
    (self.stream, self.source, self.queue) = (stream, source, queue)
  }

  /// Gives the source what has arrived.
  /// - Parameter isComplete: no value follows.
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

  /// Why the stream takes no more values.
  var obstacle: PublishingObstacle? {
    guard let status else { return nil }
    return status.hasEnded ? .hasEnded : status.hasLostValues ? .hasLostValues : nil
  }

  /// Why the client may publish no more, after a change of the stream or of its access.
  func obstacle(for connection: Connection) -> PublishingObstacle? {
    if connection.worker.streams[stream.name] !== stream { return .notServed }
    if stream.publishSource !== source { return .acceptsNoMoreValues }
    return connection.admits(stream.configuration.write) ? nil : .forbidden
  }

  /// Takes back the values that wait for room, for the next process. The stream saves those that it was given, unless
  /// something between it and its publishers may still hold them: then the request cannot continue.
  func withdraw() -> (values: EventBatch, unsettled: UnsettledValues, continues: Bool) {
    let values = source.withdraw(queue)
    let unsettled = source.unsettled(of: queue)
    return (values, unsettled, unsettled.count == 0 || stream.hasAll(of: source))
  }

  /// Its values stay.
  func leave() { source.leave(queue) }
}
