import Events
import Glibc
import HTTP
import RSocket
import Reactive
import ReplayLog
import StreamRuntime

// From one process to the next: a response continues in the middle of a chunk, a body in the middle of a value.

extension HTTPConnection {
  func saveExchange() -> SavedConnection? {
    guard phase == .open else { return nil }
    if case .publishing(let publishing) = exchange { withdraw(publishing) }
    _ = flush()
    guard phase == .open else { return nil }
    var http = SavedHTTP()
    let request: HTTPRequest?
    (request, http) = savedExchange()
    http.request =
      (request?.isHead ?? false ? 1 : 0) | (request?.keepsConnection ?? false ? 2 : 0)
      | (request?.allowsChunks ?? false ? 4 : 0)
    http.allowedOrigin = Array((request?.allowedOrigin ?? "").utf8)
    http.hasRequested = isEstablished
    let (input, unsent) = savedBytes
    http.input = heldInput
    var saved = SavedConnection(
      descriptor: socket.raw, number: identity.number, token: identity.token?.saved, silence: silence, input: input,
      unsent: unsent + output,
      subscriptions: subscriptions.map(SavedConnection.Subscription.init).filter(\.isContinued))
    saved.http = http
    leaveSocket()
    return saved
  }

  private func savedExchange() -> (HTTPRequest?, SavedHTTP) {
    var saved = SavedHTTP()
    switch exchange {
    case .head: return (nil, saved)
    case .finishing, .draining:
      saved.state = .finishing
      return (nil, saved)
    case .waiting(let response):
      saved.state = .waiting
      saved.names = [.init(response.name.utf8)]
      saved.condition = response.condition.map { [.init($0.utf8)] } ?? []
      saved.knownID = response.knownID
      saved.wait = response.deadline - min(response.deadline, worker.loop.now)
      saved.flags = response.isForNewer ? 1 : 0
      return (response.request, saved)
    case .rendering(let response):
      saved.state = .rendering
      saved.flags = (response.format == .openMetrics ? 1 : 0) | (response.hasStreams ? 2 : 0)
      return (response.request, saved)
    case .publishing(let publishing):
      saved.state = .publishing
      publishing.save(to: &saved)
      return (publishing.request, saved)
    case .streaming(let response):
      saved.state = .streaming
      saved.names = response.names.map { .init($0.utf8) }
      saved.encoding =
        EventFormat(.body(response.encoding, response.coding), ids: true, completes: false).savedEncoding
      saved.flags = (response.follows ? 1 : 0) | (response.isSingle ? 2 : 0)
      saved.ended = response.names.indices.map { index in
        let id = response.endedPosition(of: RequestID(UInt32(index + 1)))
        return .init(id == 0 ? [] : Array(String(id).utf8))
      }
      return (response.request, saved)
    }
  }

  func restoreExchange(_ saved: SavedConnection) {
    guard let http = saved.http else { return }
    restore(silence: saved.silence, input: saved.input, unsent: saved.unsent)
    withoutWriting {
      restoreHead(http)
      let request = HTTPRequest(
        isHead: http.request & 1 != 0, keepsConnection: http.request & 2 != 0, allowsChunks: http.request & 4 != 0,
        allowedOrigin: http.allowedOrigin.isEmpty ? nil : String(decoding: http.allowedOrigin, as: UTF8.self))
      switch http.state {
      case .head: break
      case .finishing: begin(.finishing)
      case .waiting: restoreWaiting(http, request)
      case .rendering:
        let format = http.flags & 1 != 0 ? MetricsFormat.openMetrics : .prometheus
        begin(.rendering(MetricsResponse(request, format, hasStreams: http.flags & 2 != 0)))
      case .publishing: restorePublishing(http, request)
      case .streaming: restoreStreaming(http, request, saved.subscriptions)
      }
    }
  }

  func continueExchange() {
    switch exchange {
    case .head: if isEstablished { watchReading() } else { setClock(after: worker.limits.handshakeTimeout) }
    case .waiting(let response):
      setClock(after: .nanoseconds(Int64(clamping: response.deadline - min(response.deadline, worker.loop.now))))
    case .rendering(let response): render(response)
    case .publishing(let publishing): resume(publishing)
    case .streaming(let response):
      limitSendBuffer()
      sentAt = worker.loop.now
      if response.isSingle { watchReading() } else { keepAlive(response) }
    case .finishing:
      watchReading()
      if !hasUnsent { finishWriting() }
    case .draining: setClock(after: times.stallTime)
    }
    restoreInput()
  }

  private func restoreWaiting(_ saved: SavedHTTP, _ request: HTTPRequest) {
    let name = saved.names.first.map { String(decoding: $0.bytes, as: UTF8.self) } ?? ""
    do throws(Rejection) {
      let stream = try readableStream(name, adding: 0)
      let longest = UInt64(StreamQuery.longestWait / .nanoseconds(1))
      let response = WaitingResponse(
        request, name, saved.condition.first.map { String(decoding: $0.bytes, as: UTF8.self) }, knownID: saved.knownID,
        isForNewer: saved.flags & 1 != 0, deadline: worker.loop.now + min(saved.wait, longest))
      begin(.waiting(response))
      // What has come since the request was made is new, too.
      let end = stream.log.read { storage, _ in storage.endPosition }
      let start: SubscribeOptions.Start =
        stream.feed != nil ? .latest : saved.knownID.flatMap { $0 < end ? .after(id: $0) : nil } ?? .replay
      subscribeForNotice(of: stream, from: start)
    } catch {
      respond(error, to: request)
    }
  }

  private func restoreStreaming(
    _ saved: SavedHTTP, _ request: HTTPRequest, _ subscriptions: [SavedConnection.Subscription]
  ) {
    guard let format = EventFormat(savedEncoding: saved.encoding, ids: true, completes: false),
      case .body(let encoding, let coding) = format.encoding
    else { return begin(.finishing) }
    let response = StreamingResponse(
      request, encoding, isChunked: coding.isChunked,
      saved.names.map { String(decoding: $0.bytes, as: UTF8.self) }, follows: saved.flags & 1 != 0,
      isSingle: saved.flags & 2 != 0, hasBegun: true)
    for (index, item) in saved.ended.prefix(response.names.count).enumerated() {
      guard let id = UInt64(String(decoding: item.bytes, as: UTF8.self)) else { continue }
      response.setEndedPosition(id, of: RequestID(UInt32(index + 1)))
    }
    begin(.streaming(response))
    // One that cannot be restored ends the response.
    response.isCut = subscriptions.contains { $0.cursor.sentBytes > 0 }
    for saved in subscriptions {
      guard case .streaming = exchange else { return }
      restore(saved)
    }
    response.isCut = false
    if subscriptions.isEmpty, case .streaming = exchange { end(response, "complete", isClean: true) }
  }
}

extension SavedConnection.Subscription {
  /// One that waits to notify its connection begins anew.
  fileprivate var isContinued: Bool { !format.isNotice }
}
