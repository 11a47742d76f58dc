import HTTP
import StreamProtocol
import StreamRuntime

/// A response that waits for its body to be rendered.
final class MetricsResponse {
  let request: HTTPRequest
  let format: MetricsFormat
  let hasStreams: Bool
  /// Rendered, and not sent: it waits for the client's turn, and for former responses to be read.
  fileprivate(set) var text: [UInt8]?

  init(_ request: HTTPRequest, _ format: MetricsFormat, hasStreams: Bool) {
    (self.request, self.format, self.hasStreams) = (request, format, hasStreams)
  }
}

// Metrics: rendered elsewhere, and sent in the turn of the client's user, so that a flood of requests delays no other user.

extension HTTPConnection {
  func respondWithMetrics(_ request: HTTPRequest, _ head: RequestHead) throws(Rejection) {
    let hasStreams = try Self.hasStreams(head.target.parameters)
    let offered = MetricsFormat.allCases.compactMap { MediaType($0.mediaType) }
    guard let index = MediaType.preferred(head["Accept"], among: offered) else {
      throw Rejection(.notAcceptable, "the media types are \(offered.map(\.name).joined(separator: ", "))")
    }
    let format = MetricsFormat.allCases[index]
    guard !request.isHead else {
      return respond(.ok, to: request) { Self.addFields(to: &$0, format, request) }
    }
    let response = MetricsResponse(request, format, hasStreams: hasStreams)
    begin(.rendering(response))
    render(response)
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

  private static func addFields(to head: inout ResponseHead, _ format: MetricsFormat, _ request: HTTPRequest) {
    head.add("Content-Type", format.mediaType)
    head.add("Cache-Control", "no-store")
    head.add("Vary", "Accept")
  }

  /// Requests the body of the exchange in progress.
  func render(_ response: MetricsResponse) {
    setClock(after: times.stallTime)
    let key = MetricsCache.Key(visibility: visibility, format: response.format, hasStreams: response.hasStreams)
    guard !worker.requestMetrics(key, for: self) else { return }
    refuse(response, "too many renderings of the metrics")
  }

  private func refuse(_ response: MetricsResponse, _ sentence: String) {
    let rejection = Rejection(.serviceUnavailable, sentence)
    countRefusal(rejection)
    respond(rejection, to: response.request)
  }

  /// The body of the response in progress, if there is still one, is rendered.
  func metricsAreRendered(_ text: [UInt8], _ key: MetricsCache.Key) {
    guard phase == .open, case .rendering(let response) = exchange, response.text == nil,
      response.format == key.format, response.hasStreams == key.hasStreams
    else { return }
    response.text = text
    if !hasUnsent { waitForTurn() }
  }

  /// Sends the body, unless former responses are unread: it is one array for all clients that way.
  /// - Returns: whether there was one to send.
  func sendMetrics() -> Bool {
    guard case .rendering(let response) = exchange, !hasUnsent, let text = response.text.take() else { return false }
    if let sentence = excess(adding: text.count) {
      refuse(response, sentence)
      return true
    }
    let request = response.request
    var head = responseHead(.ok, to: request, keeps: request.keepsConnection)
    Self.addFields(to: &head, response.format, request)
    head.add("Content-Length", String(text.count))
    head.append(to: &output)
    _ = flush()
    guard phase == .open else { return true }
    if output.isEmpty { output = text } else { output += text }
    endExchange(keeps: request.keepsConnection)
    return true
  }

  /// The body was not rendered, or the responses before it were not read.
  func timeIsOver(for response: MetricsResponse) {
    guard response.text == nil else { return checkReading() }
    respond(
      Rejection(.serviceUnavailable, "the metrics were not rendered within \(times.stallTime.inUnits)"),
      to: response.request)
  }
}
