import HTTP
import StreamProtocol

// Responses with the events of all streams that a pattern fits.

extension HTTPSpeaker {
  func respond(
    with pattern: NamePattern, _ request: HTTPRequest, _ query: StreamQuery, _ head: RequestHead,
    _ handshake: [UInt8]
  ) throws(Rejection) {
    var wanted = query.format
    if wanted == nil { wanted = try Self.format([], head["Accept"]) }
    let format = wanted ?? .serverSentEvents
    try Self.check(query, isStreaming: true)
    guard query.count == nil else { throw Rejection(.badRequest, "parameter \"count\" is for one stream") }
    guard query.from.count <= 1 else {
      throw Rejection(.badRequest, "parameter \"from\" has \(query.from.count) values: give one for a pattern")
    }
    guard format != .message || query.ids else { throw .needsNames }
    guard let encoding = EventEncoding(format, .json, hasEnvelope: query.ids) else {
      throw Rejection(.notAcceptable, "ids=1 does not go with as=raw")
    }
    guard !query.marker || format == .serverSentEvents || query.ids else {
      throw Rejection(.badRequest, format == .raw ? "marker=1 does not go with as=raw" : "marker=1 requires ids=1")
    }
    var options = SubscribeOptions(
      from: query.from.first ?? .replay, onLag: query.onLag, filter: query.filter, marker: query.marker)
    options.gaps = true
    let position = StreamQuery.lastEventID(head["Last-Event-ID"]) ?? query.lastEventID
    let time = position.flatMap { UInt64($0) }
    if let time { options.from = .after(id: time) }
    guard position == nil || time != nil || format == .serverSentEvents else {
      throw Rejection(.badRequest, "Last-Event-ID must be the position of a pattern, a time in microseconds")
    }
    let response = response(
      request, encoding, [pattern.text], follows: query.follows, isPattern: true, handshake)
    guard !request.isHead else {
      response.head(nil).append(to: &output)
      return endExchange(keeps: false)
    }
    connection.speak(response)
    do throws(Connection.Refusal) {
      try response.read(pattern, options, missed: position != nil && time == nil ? .unknown : nil)
    } catch {
      connection.speak(self)
      throw rejection(error)
    }
  }
}
