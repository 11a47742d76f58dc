import Events
import HTTP
import Reactive
import ReplayLog
import StreamProtocol
import StreamRuntime

/// The newest event of a stream or of a key, copied if it is small.
struct NewestEvent {
  let id: UInt64
  fileprivate let time: UInt64
  fileprivate let byteCount: Int
  fileprivate let data: [UInt8]?

  /// The maximum bytes of an event that is written with the head. A larger one is sent from the log.
  private static let inlineBytes = 64 << 10

  /// - Parameter record: id and time, 8 bytes each, then the data.
  private init(_ record: UnsafeRawBufferPointer) {
    let stamp = (0..<2).map { UInt64(bigEndian: unsafe record.loadUnaligned(fromByteOffset: $0 * 8, as: UInt64.self)) }
    let data = unsafe record[EventLog.stampBytes...]
    (id, time, byteCount) = unsafe (stamp[0], stamp[1], data.count)
    self.data = unsafe data.count > Self.inlineBytes ? nil : Array(data)
  }

  static func newest(of stream: ServedStream) -> (event: Self?, completion: Subscribers.Completion<StreamFailure>?) {
    stream.log.read { storage, completion in
      storage.dropExpired()
      guard storage.firstPosition < storage.endPosition else { return (nil, completion) }
      return unsafe (Self(storage.record(at: storage.position(ofLast: 1))), completion)
    }
  }

  /// The newest event of a key in the state of a stream.
  fileprivate static func newest(
    of keys: [[UInt8]], in stream: ServedStream
  ) -> Result<Self?, SubscribeOptions.Malformed> {
    stream.log.read { storage, _ in
      Result { () throws(SubscribeOptions.Malformed) in
        let state = try SubscribeOptions.Start.state(of: storage)
        for key in keys {
          guard let record = unsafe key.withUnsafeBytes({ unsafe state.newest($0) }) else { continue }
          let copied = min(record.byteCount, EventLog.stampBytes + inlineBytes)
          return unsafe Self(record.part(0..<copied))
        }
        return nil
      }
    }
  }
}

// The newest event of a stream as a resource. It has a tag, and a request can wait for a newer event.

extension HTTPSpeaker {
  /// - Parameter text: the text of the key; see `EventKeyReader.keys(namedBy:)`.
  func respond(
    withNewestOf text: String, in stream: ServedStream, _ request: HTTPRequest, _ condition: String?
  ) throws(Rejection) {
    let keys = EventKeyReader.keys(namedBy: text)
    let event: NewestEvent?
    do throws(SubscribeOptions.Malformed) {
      event = try NewestEvent.newest(of: keys, in: stream).get()
    } catch {
      throw Rejection(of: .init(error))
    }
    guard let event else {
      throw Rejection(of: .init(.noKey, "no event of \"\(stream.name)\" has this key"))
    }
    let isKnown = condition.map { EntityTag(eventID: event.id).isNamed(by: $0) } ?? false
    respond(with: event, of: stream, request, isKnown: isKnown) { response in
      response.begin(on: stream, from: .state, id: event.id)
      // Another thread may have replaced the event: the state would be read from the next one on.
      let newest = try? NewestEvent.newest(of: keys, in: stream).get()
      if newest?.id != event.id { response.cutOff() }
    }
  }

  func respondWithNewest(
    of stream: ServedStream, _ request: HTTPRequest, _ query: StreamQuery, _ condition: String?
  ) throws(Rejection) {
    // A request for a system stream renders it, except for HEAD.
    let (event, completion) = NewestEvent.newest(of: stream)
    if stream.rendering != nil, !request.isHead {
      return wait(for: stream, request, condition, knownID: event?.id, from: .latest, query.wait)
    }
    if case .failure(let failure) = completion { throw Rejection(of: .init(.failed, failure.message)) }
    let isKnown = event.map { event in condition.map { EntityTag(eventID: event.id).isNamed(by: $0) } ?? true } ?? true
    if let wait = query.wait, isKnown, !request.isHead {
      // At the end of a finished stream, too: a client that asks again and again would otherwise do so without a pause.
      let start: SubscribeOptions.Start? = completion == nil ? .new : nil
      return self.wait(for: stream, request, condition, knownID: event?.id, from: start, wait)
    }
    respond(with: event, of: stream, request, isKnown: condition != nil && isKnown)
  }

  /// - Parameters:
  ///   - isKnown: whether If-None-Match names the event's tag.
  ///   - send: begins to send a large event; nil: it is sent from the log.
  func respond(
    with event: NewestEvent?, of stream: ServedStream, _ request: HTTPRequest, isKnown: Bool,
    send: ((SingleEventResponse) -> Void)? = nil
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
    let response = SingleEventResponse(request, stream.name, on: self)
    connection.speak(response)
    if let send {
      send(response)
    } else {
      response.begin(on: stream, from: event.id > 0 ? .after(id: event.id - 1) : .replay, id: event.id)
    }
  }

  /// Waits for an event other than `knownID`.
  /// - Parameters:
  ///   - start: where a subscription starts; nil: no event will come.
  ///   - time: the longest wait; nil: the response only waits until a system stream is rendered.
  private func wait(
    for stream: ServedStream, _ request: HTTPRequest, _ condition: String?, knownID: UInt64?,
    from start: SubscribeOptions.Start?, _ time: Duration?
  ) {
    let longest = time ?? StreamQuery.longestWait
    let response = WaitingResponse(
      request, stream.name, condition, knownID: knownID, isForNewer: time != nil,
      deadline: worker.loop.now + UInt64(longest / .nanoseconds(1)), on: self)
    connection.speak(response)
    if let start { response.awaitEvent(of: stream, from: start) }
    if response.isInProgress { response.resume() }
  }
}
