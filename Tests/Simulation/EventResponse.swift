import RSocket
import StreamProtocol

/// A response that is to bring the events of one stream or of several, and what has come of it.
struct EventResponse {
  /// What a client needs that connects again.
  struct Position {
    let peer: Peer
    let streams: [String]
    let format: EventStreamFormat
    let onLag: String
    let filter: Filter?
    let hasMarkers: Bool
    let isFromState: Bool
    /// For each stream, the state of which the client may not have all.
    let readings: [StateReading?]
    let ids: [UInt64]
  }

  let streams: [String]
  let format: EventStreamFormat
  let isChunked: Bool
  let onLag: String
  let isFromState: Bool
  /// Whether raw events end lines.
  private let isText: Bool
  /// For each stream.
  private(set) var subscriptions: [Subscription]
  private var reader: EventReader
  /// For each stream, the gap that precedes its next event, and where it was reported.
  private var gaps: [(count: UInt64, place: Int)?]
  /// For each stream, the id up to which the response has said that it has brought everything.
  private var covered: [UInt64]
  /// The id before the first event; nil: the response has not said.
  private var first: UInt64?
  private(set) var hasBegun = false
  /// Whether the server has given the reason for the response's end.
  private(set) var hasEnded = false
  private let changes: Int
  /// Whether the next frame of a WebSocket continues a message.
  private var isWithinMessage = false

  /// - Parameter after: the ids from which it resumes; nil: it begins somewhere else.
  init(
    of streams: [String], as format: EventStreamFormat, isChunked: Bool, hasEnvelope: Bool, onLag: String,
    after: [UInt64]?, where filter: Filter?, hasMarkers: Bool, isFromState: Bool, continuing readings: [StateReading?]?,
    count: Int?, by client: Client
  ) {
    self.isFromState = isFromState
    (self.streams, self.format, self.isChunked, self.onLag) = (streams, format, isChunked, onLag)
    let world = client.world
    let types = streams.map { world.specification(of: $0)?.type ?? "application/json" }
    subscriptions = zip(streams, types).enumerated().map { index, stream in
      let isSystem = World.systemStreams.contains(stream.0)
      return Subscription(
        to: stream.0, gaps: format == .events || format == .message,
        ids: format == .events || hasEnvelope || !isSystem,
        // 0: a state of which nothing was sent.
        onLag: onLag, after: isSystem || isFromState && after?[index] == 0 ? nil : after?[index], where: filter,
        hasMarkers: hasMarkers,
        // Where an event's id is found by its bytes, it may be that of an older one.
        isFromState: isFromState && !isSystem, continuing: readings?[index], hasIDs: format == .events || hasEnvelope,
        as: Self.form(format, stream.1, hasEnvelope), credit: count ?? Subscription.unlimited, by: client)
    }
    reader = EventReader(
      format, hasEnvelope: hasEnvelope,
      isText: Dictionary(zip(streams, types.map { $0.hasPrefix("text/") })) { first, _ in first }, client: client.name)
    isText = types[0] != "image/png"
    gaps = streams.map { _ in nil }
    covered = streams.map { _ in 0 }
    changes = world.changes
  }

  private static func form(_ format: EventStreamFormat, _ type: String, _ hasEnvelope: Bool) -> EventForm {
    switch (format, type) {
    case (.events, _): .lines
    case (.raw, _), (.message, _): .exact
    case (.lines, _), (.sequence, _): hasEnvelope ? .exact : .embedded
    }
  }

  private var isNamed: Bool { streams.count > 1 }

  /// Whether the response may end here with its connection.
  func mayEnd(_ world: World) -> Bool {
    if format == .message { return !hasBegun || hasEnded }
    guard hasBegun, !hasEnded, reader.isEmpty, isChunked || format == .events else { return true }
    return format != .events
      && (onLag == "fail" || world.changes != changes
        || streams.contains {
          world.endedStreams.contains($0) || world.specification(of: $0)?.blocks ?? false || world.isOfTemplate($0)
        })
  }

  /// For a client that connects again; nil: there is nothing to resume.
  func position(of peer: Peer) -> Position? {
    guard hasBegun, !hasEnded, format == .events || format == .message else { return nil }
    let ids = isNamed && format == .events ? covered : subscriptions.compactMap(\.last)
    guard ids.count == streams.count, !ids.contains(0) || isFromState && ids.max()! > 0 else { return nil }
    return Position(
      peer: peer, streams: streams, format: format, onLag: onLag, filter: subscriptions[0].filter,
      hasMarkers: subscriptions[0].hasMarkers, isFromState: isFromState,
      readings: zip(subscriptions, ids).map { $0.resumedReading(after: $1) }, ids: ids)
  }

  mutating func review(at place: Int, for client: Client) {
    for index in subscriptions.indices { subscriptions[index].review(at: place, for: client) }
  }

  mutating func handedOver() {
    for index in subscriptions.indices { subscriptions[index].handedOver() }
  }

  /// All is at rest. The part of a stream that has ended is over.
  func checkAtRest(_ client: Client) {
    guard hasBegun, !hasEnded else { return }
    for subscription in subscriptions where !client.world.endedStreams.contains(subscription.stream) {
      subscription.checkAtRest(client)
    }
  }

  mutating func begin(_ head: ResponseReader.Head, _ client: HTTPClient) {
    hasBegun = true
    if format == .message { return client.openSocket(head) }
    require(
      head["content-type"] == format.mediaType && head["cache-control"] == "no-store, no-transform"
        && head["x-accel-buffering"] == "no" && (head["transfer-encoding"] == "chunked") == isChunked, "responses",
      "\(client.name) got the fields \(head.fields) for events as \(format)")
    first = head["last-event-id"].flatMap { UInt64($0) }
    require(isNamed || first != nil || isFromState, "responses", "\(client.name) got no Last-Event-ID")
  }

  /// A chunk, or a part of a body without chunks.
  mutating func receive(_ bytes: UnsafeRawBufferPointer, at place: Int, _ client: Client) {
    reader.append(bytes, at: place)
    if format == .raw { return receiveRaw(bytes.count, client) }
    var count = 0
    while let item = reader.next() {
      receive(item, client)
      count += 1
    }
    guard isChunked else { return }
    // A chunk is an event, or a part of a large one.
    require(
      count == 0 && bytes.count >= 4096 || count == 1 && reader.isEmpty, "responses",
      "\(client.name) got a chunk of \(bytes.count) bytes in which \(count) events end")
  }

  /// A message, or a part of one.
  mutating func receive(
    _ bytes: UnsafeRawBufferPointer, _ frame: WebSocketFrames.Frame, at place: Int, _ client: Client
  ) {
    require(
      frame.opcode == (isWithinMessage ? 0 : 1), "frames",
      "\(client.name) got a frame with the opcode \(frame.opcode)\(isWithinMessage ? " within a message" : "")")
    isWithinMessage = !frame.isLast
    reader.append(bytes, at: place)
    if frame.isLast { receive(reader.message(), client) }
  }

  /// A WebSocket has ended with a sentence.
  mutating func close(_ sentence: String, _ client: Client) {
    hasEnded = true
    if !isNamed { subscriptions[0].stateFailed(sentence, client) }
  }

  /// The response is complete.
  func end(_ client: Client) {
    require(
      hasEnded || format != .events, "responses", "\(client.name) got a response of \(streams) that ends without reason"
    )
    require(reader.isEmpty, "responses", "\(client.name) got a response of \(streams) that ends within an event")
  }

  private mutating func receive(_ item: EventReader.Item, _ client: Client) {
    if let gap = item.gap { return receiveGap(gap, item, client) }
    guard let data = item.data else {
      return require(item.id == nil && item.name == nil, "responses", "\(client.name) got an event without data")
    }
    require(!hasEnded, "responses", "\(client.name) got something after the end of a response")
    if format == .events, item.id == nil { return receiveNotice(item, data, client) }
    if format == .events, item.name == "caught-up" { return receiveMarker(item, data, client) }
    var index = 0
    if isNamed {
      guard let named = streams.firstIndex(where: { $0 == item.name }) else {
        fail("responses", "\(client.name) got an event of \(item.name ?? "no stream")")
      }
      index = named
    }
    let place = gaps[index]?.place ?? item.place
    subscriptions[index].begins(at: place, client)
    guard subscriptions[index].ids else { return subscriptions[index].received(nil, data, from: place, client) }
    let id = item.id.map { position($0, of: index, client) } ?? find(data, client)
    if item.isMarker { return receiveMarker(id, index, client) }
    receive(id, item.time, data, index, at: place, client)
  }

  private mutating func receive(
    _ id: UInt64, _ time: UInt64?, _ data: [UInt8], _ index: Int, at place: Int, _ client: Client
  ) {
    let gap = gaps[index]?.count
    gaps[index] = nil
    if let first, subscriptions[index].last == nil {
      let isNext =
        id == first + 1 || format != .events || gap != nil || subscriptions[index].filter != nil
        || subscriptions[index].isReadingState
      require(
        id > first && (isNext || client.world.truths[streams[index]]?.begins(between: first, and: id) ?? true),
        "gaps are reported", "\(client.name) got event \(id) of \(streams[index]) first, and \(first) as the one before"
      )
    }
    subscriptions[index].received(Stamp(id: id, time: time, gap: gap), data, from: place, client)
  }

  /// An event's id, or a marker's, with those of the other streams if there are several.
  private mutating func position(
    _ text: String, of index: Int, isMarker: Bool = false, _ client: Client
  ) -> UInt64 {
    let ids = text.split(separator: ",", omittingEmptySubsequences: false).compactMap { UInt64($0) }
    guard format == .events, isNamed else {
      guard ids.count == 1 else { fail("responses", "\(client.name) got the id \(text)") }
      return ids[0]
    }
    require(ids.count == streams.count, "responses", "\(client.name) got the id \(text) for \(streams)")
    require(
      ids[index] > covered[index] || isMarker, "ids rise",
      "\(client.name) got event \(ids[index]) of \(streams[index]), and \(covered[index]) as the last one before")
    for (other, id) in ids.enumerated() {
      require(
        id >= covered[other], "ids rise",
        "\(client.name) got the position \(text) of \(streams), after \(covered)")
    }
    covered = ids
    return ids[index]
  }

  /// The id of an event that has come without one.
  private func find(_ data: [UInt8], _ client: Client) -> UInt64 {
    let last = subscriptions[0].last ?? first ?? 0
    guard let id = client.world.truths[streams[0]]?.id(after: last, of: data, as: subscriptions[0].form) else {
      fail(
        "same id, same bytes", "\(client.name) got \(data.count) bytes that are no event of \(streams[0]) after \(last)"
      )
    }
    return id
  }

  /// A chunk is an event, or a part of a large one.
  private mutating func receiveRaw(_ count: Int, _ client: Client) {
    let (bytes, place) = reader.rest
    let last = subscriptions[0].last ?? first ?? 0
    // The line feed of a text is its own, or one that was added. Another type may be in effect since another process.
    let isLine = bytes.last == UInt8(ascii: "\n")
    var candidates: [[UInt8]] = []
    if isLine, isText || client.world.changes != changes { candidates.append(bytes.dropLast()) }
    if isLine || !isText || client.world.changes != changes { candidates.append(bytes) }
    for data in candidates {
      guard let id = client.world.truths[streams[0]]?.id(after: last, of: data, as: .exact) else { continue }
      reader.drop()
      subscriptions[0].begins(at: place, client)
      return receive(id, nil, data, 0, at: place, client)
    }
    require(
      count >= 4096, "same id, same bytes",
      "\(client.name) got \(bytes.count) bytes that are no event of \(streams[0]) after \(last)")
  }

  /// `event: caught-up`, with the stream, the id and the time as data.
  private mutating func receiveMarker(_ item: EventReader.Item, _ data: [UInt8], _ client: Client) {
    let text = String(decoding: data, as: UTF8.self)
    let index = isNamed ? streams.firstIndex { text.hasPrefix("{\"stream\":\"\($0)\",\"id\":") } : 0
    guard let index else { fail("markers", "\(client.name) got the marker \(text)") }
    subscriptions[index].begins(at: gaps[index]?.place ?? item.place, client)
    let id = position(item.id ?? "", of: index, isMarker: true, client)
    let start = isNamed ? "{\"stream\":\"\(streams[index])\",\"id\":" : "{\"id\":"
    // The newest event's; the position is behind ids that were skipped, too.
    let newest = text.hasPrefix(start) ? UInt64(text.dropFirst(start.count).prefix(while: \.isNumber)) : nil
    require(
      newest.map { $0 <= id && text.hasPrefix("\(start)\($0),\"time\":\"") } == true && text.hasSuffix("Z\"}"),
      "markers",
      "\(client.name) got the marker \(text) with the id \(id)")
    receiveMarker(id, index, client)
  }

  private mutating func receiveMarker(_ id: UInt64, _ index: Int, _ client: Client) {
    let gap = gaps[index]?.count
    gaps[index] = nil
    subscriptions[index].receivedMarker(Stamp(id: id, time: nil, gap: gap), client)
  }

  /// `{"lost":N}`, with the stream where there are several.
  private mutating func receiveGap(_ count: UInt64, _ item: EventReader.Item, _ client: Client) {
    let index = isNamed ? streams.firstIndex { $0 == item.name } : item.name == nil ? 0 : nil
    guard let index, gaps[index] == nil else {
      fail("gaps are reported", "\(client.name) got a gap of \(count) events of \(item.name ?? "its stream")")
    }
    gaps[index] = (count, item.place)
  }

  /// `event: gap` or `event: end`.
  private mutating func receiveNotice(_ item: EventReader.Item, _ data: [UInt8], _ client: Client) {
    let text = String(decoding: data, as: UTF8.self)
    switch item.name {
    case "end":
      hasEnded = true
      require(text.hasPrefix("{\"reason\":\""), "responses", "\(client.name) got the end \(text)")
      Report.shared.say("\(client.name) gets the end \(text)")
      if !isNamed { subscriptions[0].stateFailed(text, client) }
    case "gap":
      let index = isNamed ? streams.firstIndex { text.hasSuffix(",\"stream\":\"\($0)\"}") } : 0
      let lost = text.dropFirst("{\"lost\":".count).prefix { $0 != "," && $0 != "}" }
      guard let index, let count = lost == "null" ? .max : UInt64(lost), gaps[index] == nil else {
        fail("gaps are reported", "\(client.name) got the gap \(text)")
      }
      gaps[index] = (count, item.place)
    default: fail("responses", "\(client.name) got a server-sent event of the type \(item.name ?? "none"): \(text)")
    }
  }
}
