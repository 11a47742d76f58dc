import HTTP
import StreamProtocol
import StreamRuntime

/// A response with metrics. They are rendered on a queue, and sent in the turn of the client's user, so that a flood of
/// requests delays no other user.
final class MetricsResponse: PendingResponse, @unchecked Sendable {  // confined to its connection's loop
  private let format: MetricsFormat
  private let hasStreams: Bool
  /// The rendered body until it is sent: it waits for the client's turn, and for former responses to be read.
  private var text: [UInt8]?

  init(_ request: HTTPRequest, _ format: MetricsFormat, hasStreams: Bool, on http: HTTPSpeaker) {
    (self.format, self.hasStreams) = (format, hasStreams)
    super.init(request, on: http)
  }

  /// Requests the body.
  override func resume() {
    connection.setClock(after: http.times.stallTime)
    let key = MetricsCache.Key(visibility: connection.visibility, format: format, hasStreams: hasStreams)
    let isAccepted = worker.systemStreams.metrics.request(key, for: self) { [self, loop = worker.loop] text in
      loop.execute { [self] in isRendered(text) }
    }
    if !isAccepted {
      refuseRendering(Rejection(.serviceUnavailable, "too many renderings of the metrics"))
    }
  }

  private func refuseRendering(_ rejection: Rejection) {
    http.countRefusal(rejection)
    http.respond(rejection, to: request)
  }

  private func isRendered(_ text: [UInt8]) {
    guard isInProgress, connection.phase == .open else { return }
    self.text = text
    didWriteAll()
  }

  override func didWriteAll() { if text != nil, !connection.hasUnsent { connection.waitForTurn() } }

  /// Sends the body, unless former responses are unread: all clients then share one array.
  override func takeTurn() -> Bool {
    guard !connection.hasUnsent, let text = text.take() else { return false }
    if let sentence = connection.excess(adding: text.count) {
      refuseRendering(Rejection(of: .init(.tooMuchInput, sentence)))
      return true
    }
    var head = http.responseHead(.ok, to: request, keeps: request.keepsConnection)
    Self.addFields(to: &head, format)
    head.add("Content-Length", String(text.count))
    head.append(to: &http.output)
    _ = connection.flush()
    guard connection.phase == .open else { return true }
    if http.output.isEmpty { http.output = text } else { http.output += text }
    http.endExchange(keeps: request.keepsConnection)
    return true
  }

  fileprivate static func addFields(to head: inout ResponseHead, _ format: MetricsFormat) {
    head.add("Content-Type", format.mediaType)
    head.add("Cache-Control", "no-store")
    head.add("Vary", "Accept")
  }

  /// The body was not rendered in time, or the responses before it were not read.
  override func timeIsOver() {
    guard text == nil else { return http.checkReading() }
    http.respond(
      Rejection(
        .serviceUnavailable, "the metrics were not rendered within \(http.times.stallTime.inUnits)"),
      to: request)
  }

  // MARK: From one process to the next

  override func save(to saved: inout SavedHTTP) {
    saved.phase = .rendering
    saved.flags = (format == .openMetrics ? 1 : 0) | (hasStreams ? 2 : 0)
  }

  static func restore(_ saved: SavedHTTP, _ request: HTTPRequest, on http: HTTPSpeaker) {
    let format = saved.flags & 1 != 0 ? MetricsFormat.openMetrics : .prometheus
    http.connection.speak(MetricsResponse(request, format, hasStreams: saved.flags & 2 != 0, on: http))
  }
}

extension HTTPSpeaker {
  func respondWithMetrics(_ request: HTTPRequest, _ head: RequestHead) throws(Rejection) {
    let hasStreams = try Self.hasStreams(head.target.parameters)
    let offered = MetricsFormat.allCases.compactMap { MediaType($0.mediaType) }
    guard let index = MediaType.preferred(head["Accept"], among: offered) else {
      throw Rejection(.notAcceptable, "the media types are \(offered.map(\.name).joined(separator: ", "))")
    }
    let format = MetricsFormat.allCases[index]
    guard !request.isHead else {
      return respond(.ok, to: request) { MetricsResponse.addFields(to: &$0, format) }
    }
    let response = MetricsResponse(request, format, hasStreams: hasStreams, on: self)
    connection.speak(response)
    response.resume()
  }

  private static func hasStreams(_ parameters: [RequestTarget.Parameter]) throws(Rejection) -> Bool {
    var hasStreams: Bool?
    for parameter in parameters where !StreamQuery.isIgnored(parameter) {
      guard parameter.name == "streams" else {
        throw Rejection(.badRequest, "unknown parameter \"\(parameter.name)\"")
      }
      guard hasStreams == nil else { throw Rejection(.badRequest, "parameter \"streams\" occurs twice") }
      switch parameter.value {
      case "0": hasStreams = false
      case "1": hasStreams = true
      case _: throw Rejection(.badRequest, "parameter \"streams\" must be 0 or 1")
      }
    }
    return hasStreams ?? true
  }
}
