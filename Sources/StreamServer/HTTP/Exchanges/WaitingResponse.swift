import HTTP
import StreamProtocol
import StreamRuntime

/// A response that waits for the first event of a stream, or for a newer one. A subscription notifies it.
final class WaitingResponse: PendingResponse {
  private let name: String
  /// The If-None-Match field.
  private let condition: String?
  /// The id of the event that is not new; nil: there is none.
  private var knownID: UInt64?
  /// Whether only a newer event ends the wait. Otherwise it ends once a system stream is rendered.
  private let isForNewer: Bool
  /// When the wait is over, in nanoseconds of the monotonic clock.
  private let deadline: UInt64

  init(
    _ request: HTTPRequest, _ name: String, _ condition: String?, knownID: UInt64?, isForNewer: Bool, deadline: UInt64,
    on http: HTTPSpeaker
  ) {
    (self.name, self.condition) = (name, condition)
    (self.knownID, self.isForNewer, self.deadline) = (knownID, isForNewer, deadline)
    super.init(request, on: http)
  }

  override func answer(_ subscription: StreamSubscription) {
    let stream = subscription.lane.stream
    connection.remove(subscription)
    let event = NewestEvent.newest(of: stream).event
    let isKnown = event.map { has($0.id) } ?? false
    if let event, isKnown, isForNewer {
      knownID = event.id
      // The stream has ended, or the system stream was rendered, without a newer event.
      return stream.rendering == nil ? timeIsOver() : awaitEvent(of: stream, from: .after(id: event.id))
    }
    let isNamed = condition.map { isKnown || EntityTag.isAny($0) && !isForNewer } ?? false
    http.respond(with: event, of: stream, request, isKnown: isNamed)
  }

  /// Whether the client has an event already. `*` names the event that existed when the request came.
  private func has(_ id: UInt64) -> Bool {
    guard let condition, !EntityTag.isAny(condition) else { return id == knownID }
    return EntityTag(eventID: id).isNamed(by: condition)
  }

  /// No event has come.
  override func timeIsOver() {
    connection.endSubscriptions()
    guard condition != nil, let id = knownID else {
      return http.respond(.noContent, to: request) { $0.add("Cache-Control", "no-store") }
    }
    http.respond(.notModified, to: request) { head in
      head.add("ETag", EntityTag(eventID: id).fieldValue)
      head.add("Cache-Control", "no-cache")
      head.add("Vary", "Accept")
    }
  }

  override func sendCompletion(_ id: RequestID) { answer(nil, insteadOf: id) }
  override func sendFailure(_ id: RequestID, _ failure: RequestFailure) {
    answer(Rejection(of: failure), insteadOf: id)
  }

  // MARK: From one process to the next

  override func save(to saved: inout SavedHTTP) {
    saved.phase = .waiting
    saved.names = [.init(name.utf8)]
    saved.condition = condition.map { [.init($0.utf8)] } ?? []
    saved.knownID = knownID
    saved.wait = deadline - min(deadline, worker.loop.now)
    saved.flags = isForNewer ? 1 : 0
  }

  static func restore(_ saved: SavedHTTP, _ request: HTTPRequest, on http: HTTPSpeaker) {
    let name = saved.names.first.map { String(decoding: $0.bytes, as: UTF8.self) } ?? ""
    do throws(Rejection) {
      let stream = try http.readableStream(name, adding: 0)
      let longest = UInt64(StreamQuery.longestWait / .nanoseconds(1))
      let response = WaitingResponse(
        request, name, saved.condition.first.map { String(decoding: $0.bytes, as: UTF8.self) }, knownID: saved.knownID,
        isForNewer: saved.flags & 1 != 0, deadline: http.connection.worker.loop.now + min(saved.wait, longest),
        on: http)
      http.connection.speak(response)
      // Events that have come since the request are new, too.
      let end = stream.log.read { storage, _ in storage.endPosition }
      response.awaitEvent(
        of: stream,
        from: stream.rendering != nil ? .latest : saved.knownID.flatMap { $0 < end ? .after(id: $0) : nil } ?? .replay)
    } catch {
      http.respond(error, to: request)
    }
  }

  override func resume() {
    connection.setClock(after: .nanoseconds(Int64(clamping: deadline - min(deadline, worker.loop.now))))
  }
}
