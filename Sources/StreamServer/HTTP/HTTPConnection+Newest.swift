import Events
import HTTP
import Reactive
import ReplayLog
import StreamProtocol
import StreamRuntime

/// A response that waits for the first, or for a newer, event of one stream.
final class WaitingResponse {
  let request: HTTPRequest
  let name: String
  /// The If-None-Match field.
  let condition: String?
  /// The event that is not new; nil: none is there.
  fileprivate(set) var knownID: UInt64?
  /// Only a newer event ends the wait. Otherwise it is for a system stream to be rendered.
  let isForNewer: Bool
  /// When the wait is over, in nanoseconds of the monotonic clock.
  let deadline: UInt64

  init(
    _ request: HTTPRequest, _ name: String, _ condition: String?, knownID: UInt64?, isForNewer: Bool, deadline: UInt64
  ) {
    (self.request, self.name, self.condition) = (request, name, condition)
    (self.knownID, self.isForNewer, self.deadline) = (knownID, isForNewer, deadline)
  }

  /// Whether the client has an event, which is no news then. `*` names what there was when the request came.
  fileprivate func isKnown(_ id: UInt64) -> Bool {
    guard let condition, !EntityTag.isAny(condition) else { return id == knownID }
    return EntityTag(eventID: id).isNamed(by: condition)
  }
}

// The newest event of a stream as a resource: with a tag, and on request once there is a newer one.

extension HTTPConnection {
  /// Events that are written with the head. A larger one is sent from the log.
  private static let inlineBytes = 64 << 10

  /// The newest event, copied if it is small.
  private struct Newest {
    let id: UInt64
    let time: UInt64
    let byteCount: Int
    let data: [UInt8]?
  }

  private static func newest(of stream: ServedStream) -> (
    event: Newest?, completion: Subscribers.Completion<StreamFailure>?
  ) {
    stream.log.read { storage, completion in
      storage.dropExpired()
      guard storage.firstPosition < storage.endPosition else { return (nil, completion) }
      return unsafe (newest(storage.record(at: storage.position(ofLast: 1))), completion)
    }
  }

  /// - Parameter record: id and time, 8 bytes each, then the data.
  private static func newest(_ record: UnsafeRawBufferPointer) -> Newest {
    let stamp = (0..<2).map { UInt64(bigEndian: unsafe record.loadUnaligned(fromByteOffset: $0 * 8, as: UInt64.self)) }
    let data = unsafe record[EventLog.stampBytes...]
    return unsafe Newest(
      id: stamp[0], time: stamp[1], byteCount: data.count, data: data.count > inlineBytes ? nil : Array(data))
  }

  /// The newest event of a key in the state of a stream.
  private static func newest(
    of keys: [[UInt8]], in stream: ServedStream
  ) -> Result<Newest?, SubscribeOptions.Malformed> {
    stream.log.read { storage, _ in
      Result { () throws(SubscribeOptions.Malformed) in
        let state = try SubscribeOptions.Start.state(of: storage)
        for key in keys {
          guard let record = unsafe key.withUnsafeBytes({ unsafe state.newest($0) }) else { continue }
          let copied = min(record.byteCount, EventLog.stampBytes + inlineBytes)
          return unsafe newest(record.part(0..<copied))
        }
        return nil
      }
    }
  }

  /// - Parameter text: of the key; see `EventKeyReader.keys(namedBy:)`.
  func respond(
    withNewestOf text: String, in stream: ServedStream, _ request: HTTPRequest, _ condition: String?
  ) throws(Rejection) {
    let keys = EventKeyReader.keys(namedBy: text)
    let event: Newest?
    do throws(SubscribeOptions.Malformed) {
      event = try Self.newest(of: keys, in: stream).get()
    } catch {
      throw Rejection(.badRequest, error.sentence)
    }
    guard let event else { throw Rejection(.notFound, "no event of \"\(stream.name)\" has this key") }
    let isKnown = condition.map { EntityTag(eventID: event.id).isNamed(by: $0) } ?? false
    respond(with: event, of: stream, request, isKnown: isKnown) {
      self.sendEvent(event.id, of: stream, request, fromState: true)
      // Another thread may have replaced the event: the state would be read from the next one on.
      let newest = try? Self.newest(of: keys, in: stream).get()
      if newest?.id != event.id { self.cutOff(event.id) }
    }
  }

  func respondWithNewest(
    of stream: ServedStream, _ request: HTTPRequest, _ query: StreamQuery, _ condition: String?
  ) throws(Rejection) {
    // A request for a system stream renders it, except for HEAD.
    let (event, completion) = Self.newest(of: stream)
    if stream.feed != nil, !request.isHead {
      return wait(for: stream, request, condition, knownID: event?.id, from: .latest, query.wait)
    }
    if case .failure(let failure) = completion { throw Rejection(.badGateway, failure.message) }
    let isKnown = event.map { event in condition.map { EntityTag(eventID: event.id).isNamed(by: $0) } ?? true } ?? true
    if let wait = query.wait, isKnown, completion == nil, !request.isHead {
      return self.wait(for: stream, request, condition, knownID: event?.id, from: .new, wait)
    }
    respond(with: event, of: stream, request, isKnown: condition != nil && isKnown)
  }

  /// - Parameters:
  ///   - isKnown: the event's tag is named by If-None-Match.
  ///   - send: sends a large event; nil: from the log.
  private func respond(
    with event: Newest?, of stream: ServedStream, _ request: HTTPRequest, isKnown: Bool, send: (() -> Void)? = nil
  ) {
    guard let event else { return respond(.noContent, to: request) { $0.add("Cache-Control", "no-store") } }
    let tag = EntityTag(eventID: event.id)
    func addFields(_ head: inout ResponseHead) {
      head.add("ETag", tag.fieldValue)
      head.add("Last-Modified", ResponseHead.date(secondsSinceEpoch: event.time / 1_000_000))
      head.add("Cache-Control", "no-cache")
      head.add("Vary", "Accept")
      head.addSandbox()
    }
    if isKnown { return respond(.notModified, to: request) { addFields(&$0) } }
    let type = stream.configuration.type
    guard event.data == nil || request.isHead else {
      return respond(.ok, to: request, type, event.data ?? []) { addFields(&$0) }
    }
    var head = responseHead(.ok, to: request, keeps: request.keepsConnection)
    head.add("Content-Type", type)
    head.add("Content-Length", String(event.byteCount))
    addFields(&head)
    head.append(to: &output)
    guard !request.isHead else { return endExchange(keeps: request.keepsConnection) }
    if let send { send() } else { sendEvent(event.id, of: stream, request) }
  }

  /// Waits for an event, `knownID` aside.
  /// - Parameter time: the longest wait; nil: only for a system stream to be rendered.
  private func wait(
    for stream: ServedStream, _ request: HTTPRequest, _ condition: String?, knownID: UInt64?,
    from start: SubscribeOptions.Start, _ time: Duration?
  ) {
    let longest = time ?? StreamQuery.longestWait
    let response = WaitingResponse(
      request, stream.name, condition, knownID: knownID, isForNewer: time != nil,
      deadline: worker.loop.now + UInt64(longest / .nanoseconds(1)))
    begin(.waiting(response))
    subscribeForNotice(of: stream, from: start)
    // A request that cannot begin is answered.
    if case .waiting = exchange { setClock(after: longest) }
  }

  /// Subscribes for a wait.
  func subscribeForNotice(of stream: ServedStream, from start: SubscribeOptions.Start) {
    subscribe(
      RequestID(1), to: stream, isSingle: true, .max(1), SubscribeOptions(from: start, onLag: .latest), as: .notice)
  }

  func answerWaiting(_ subscription: StreamSubscription) {
    guard case .waiting(let response) = exchange else { return }
    let stream = subscription.lane.stream
    remove(subscription)
    let event = Self.newest(of: stream).event
    let isKnown = event.map { response.isKnown($0.id) } ?? false
    // A system stream has been rendered, and shows what it showed before.
    if let event, isKnown, response.isForNewer, stream.feed != nil {
      response.knownID = event.id
      return subscribeForNotice(of: stream, from: .after(id: event.id))
    }
    begin(.head)
    let isNamed = response.condition.map { isKnown || EntityTag.isAny($0) && !response.isForNewer } ?? false
    respond(with: event, of: stream, response.request, isKnown: isNamed)
  }

  /// No event has come.
  func timeIsOver(for response: WaitingResponse) {
    endSubscriptions()
    begin(.head)
    guard response.condition != nil, let id = response.knownID else {
      return respond(.noContent, to: response.request) { $0.add("Cache-Control", "no-store") }
    }
    respond(.notModified, to: response.request) { head in
      head.add("ETag", EntityTag(eventID: id).fieldValue)
      head.add("Cache-Control", "no-cache")
      head.add("Vary", "Accept")
    }
  }
}
