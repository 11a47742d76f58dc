import CSimulation
import Glibc
import RSocket

/// A client that keeps to HTTP: gets newest events and streams of them, publishes, and judges every response.
final class HTTPClient: Client {
  /// What a request asks for.
  enum Kind {
    /// `wait` in nanoseconds.
    case newest(condition: UInt64?, wait: UInt64?, isHead: Bool)
    case events(EventResponse)
    case publish(Posting)
    /// PUT or DELETE of a stream of a template.
    case change(isDeletion: Bool)
    case other
  }

  /// A request, and what has been true since it was sent.
  struct Exchange {
    var kind: Kind
    let streams: [String]
    let path: String
    let sentAt = sim_now()
    /// Whether the streams have been served, and the client was admitted; and whether they have not, or it was not.
    var (mayBeServed, mayBeUnserved, mayBeAdmitted, mayBeForbidden) = (false, false, false, false)
    /// The streams that the client might see.
    var visible: Set<String> = []
    /// The newest event of the stream when the request was sent.
    let floor: UInt64?
    let changes: Int
    /// The deletions of the stream that were over when the request was sent.
    let deletions: Int

    init(_ kind: Kind, _ streams: [String], path: String, by client: Client) {
      (self.kind, self.streams, self.path, changes) = (kind, streams, path, client.world.changes)
      floor = streams.first.flatMap { client.world.machine.newest(of: $0) }
      deletions = streams.first.flatMap { client.world.deletionsOver[$0] } ?? 0
      review(for: client)
    }

    var isHead: Bool { if case .newest(_, _, true) = kind { true } else { false } }

    mutating func review(for client: Client) {
      let isDeletion = if case .change(true) = kind { true } else { false }
      let writes = if case .publish = kind { true } else if case .change = kind { true } else { false }
      for streams in [client.world.streams] + (client.world.reloading.map { [$0.former] } ?? []) {
        let wanted = streams.filter { self.streams.contains($0.name) }
        let isServed = wanted.allSatisfy(\.isServed)
        let isAdmitted = wanted.allSatisfy { writes ? $0.admits(writer: client.peer) : $0.admits(reader: client.peer) }
        if isServed { mayBeServed = true } else { mayBeUnserved = true }
        if isAdmitted { mayBeAdmitted = true } else { mayBeForbidden = true }
        // Who made a stream may delete it.
        if isDeletion { mayBeAdmitted = true }
        // It need not be there.
        if !writes || isDeletion, wanted.contains(where: { $0.template != nil }) { mayBeUnserved = true }
      }
      visible.formUnion(client.world.visible(to: client.peer))
    }
  }

  /// Requests that are not answered, in order.
  var exchanges: [Exchange] = []
  private(set) lazy var reader = ResponseReader(client: name)
  private var head: ResponseReader.Head?
  private(set) var body: [UInt8] = []
  /// The rest of a request's head.
  private var rest: [UInt8] = []
  /// It has let the server wait for a head.
  private var hasDawdled = false
  private var hasHalfClosed = false
  private var isRefused = false
  /// A response to HEAD may have a body: the server refused the connection before all of the method had arrived.
  private var mayHaveRest = false
  private var lastSentAt = sim_now()
  /// Where in the connection another process has continued.
  private var handovers: [Int] = []
  private(set) var requestCount = 0
  /// nil: it is no WebSocket.
  var socket: SocketState?

  /// The response in progress, if it brings events.
  var events: EventResponse? {
    get { if case .events(let response)? = exchanges.first?.kind { response } else { nil } }
    set { if let newValue { exchanges[0].kind = .events(newValue) } }
  }

  /// Whether a response that ends with the connection is under way.
  var isFollowing: Bool { if case .events? = exchanges.last?.kind { true } else { false } }

  override var mayEnd: Bool {
    guard !isRefused, !reader.isOver, !exchanges.isEmpty, !reader.isWithinBody, !hasDawdled else { return true }
    // The server waits 30 s for what it has sent to be read.
    return sim_now() - caughtUpAt > 20_000_000_000 || events?.hasBegun ?? false && events?.mayEnd(world) ?? false
  }

  override init(_ number: Int, _ peer: Peer, _ descriptor: CInt, _ world: World) {
    super.init(number, peer, descriptor, world)
    // A response to a client that does not read is under way for long.
    isEager = isEager && world.random.chance(70)
  }

  // MARK: Requests

  /// Whether a request may be sent now: a connection without one ends after a minute.
  func canRequest() -> Bool {
    guard !isFollowing, !hasHalfClosed, !reader.isOver, rest.isEmpty, exchanges.count < 4 else { return false }
    if case .publish(let posting)? = exchanges.last?.kind, !posting.rest.isEmpty { return false }
    guard sim_now() - lastSentAt > (requestCount > 0 ? 30_000_000_000 : 3_000_000_000) else { return true }
    // What it has not read may be the whole response.
    if exchanges.isEmpty { close() }
    return false
  }

  func send(
    _ method: String, _ path: String, _ fields: [String] = [], version: String = "1.1", _ exchange: Exchange,
    _ random: inout Random
  ) {
    Report.shared.say("\(name) sends \(method) \(path) \(fields)")
    requestCount += 1
    lastSentAt = sim_now()
    exchanges.append(exchange)
    let host = random.pick(["localhost", "localhost:80", "127.0.0.1", "[::1]"])
    let lines = ["\(method) \(path) HTTP/\(version)", "Host: \(host)"] + fields
    let bytes = Array((lines.joined(separator: "\r\n") + "\r\n\r\n").utf8)
    let count = random.chance(95) ? bytes.count : 1 + random.below(bytes.count - 1)
    if count < bytes.count { hasDawdled = true }
    rest = Array(bytes[count...])
    send(Array(bytes[..<count]))
  }

  private func path(of streams: [String]) -> String {
    switch streams {
    case ["$streams"]: "/streams"
    case ["$stats"]: "/stats"
    default: "/streams/" + streams.joined(separator: ",")
    }
  }

  override func subscribe(to stream: String, _ random: inout Random) {
    if isFollowing, random.chance(20) {
      Report.shared.say("\(name) connects again")
      return close()
    }
    guard canRequest() else { return }
    var streams = [stream]
    if random.chance(25) {
      let others = random.shuffled(world.streams.map(\.name) + World.systemStreams).filter { $0 != stream }
      streams += others.prefix(1 + random.below(3))
    }
    var options: [String] = []
    var after: UInt64?
    let isFromState = streams.allSatisfy { world.isFromState($0, &random) }
    switch random.below(6) {
    case _ where isFromState: break
    case 0: options.append("from=new")
    case 1: options.append("from=latest")
    case 2: options.append("from=-\(random.pick(["1s", "500ms", "1h"]))")
    case 3, 4:
      if streams.count == 1, let last = world.truths[stream]?.last, last > 0 {
        after = last - min(last, UInt64(random.below(40)))
      }
    default: break
    }
    let types = streams.map { world.specification(of: $0)?.type ?? "application/json" }
    var format = random.pick([EventStreamFormat.events, .events, .lines, .sequence, .raw])
    if types.contains("image/png"), random.chance(90) { format = random.pick([.lines, .sequence]) }
    let isPublished = streams.contains { world.specification(of: $0)?.kind.mayHaveAnything ?? true }
    // Without marks between events, one that another event begins with cannot be told from it.
    if format == .raw, isPublished || streams.count > 1 { format = .lines }
    if format == .sequence, isPublished { format = .events }
    if world.profile.plainWebSockets > 0, random.chance(world.profile.plainWebSockets) { format = .message }
    let filter = world.profile.someFilter(of: stream, &random)
    // One filter for all, of which that of a text has the stream's name.
    let isShared = filter != .text && !streams.contains(where: World.systemStreams.contains)
    let hasMarkers = format != .raw && random.chance(world.profile.markers)
    follow(
      streams, as: format, options, after: after.map { [$0] }, where: streams.count == 1 || isShared ? filter : nil,
      hasMarkers: hasMarkers, isFromState: isFromState, &random)
  }

  /// Continues what another connection has begun.
  func resume(_ position: EventResponse.Position, _ random: inout Random) {
    Report.shared.count("HTTP: event streams resumed")
    follow(
      position.streams, as: position.format, ["on_lag=\(position.onLag)"], after: position.ids,
      where: position.filter, hasMarkers: position.hasMarkers, isFromState: position.isFromState,
      continuing: position.readings, &random)
  }

  private func follow(
    _ streams: [String], as format: EventStreamFormat, _ options: [String], after: [UInt64]?,
    where filter: Filter?, hasMarkers: Bool, isFromState: Bool, continuing readings: [StateReading?]? = nil,
    _ random: inout Random
  ) {
    var (options, fields) = (options, [String]())
    if isFromState { options.append("from=state") }
    let onLag =
      options.first { $0.hasPrefix("on_lag=") }.map { String($0.dropFirst(7)) }
      ?? random.pick(["skip", "skip", "latest", "fail"])
    options.removeAll { $0.hasPrefix("on_lag=") }
    options.append("on_lag=\(onLag)")
    if let after {
      let ids = after.map { "\($0)" }.joined(separator: ",")
      switch random.below(3) {
      case 0 where after.count == 1 && !isFromState: options.append("from=\(ids)")
      case 1: options.append("lastEventID=\(ids)")
      default: fields.append("Last-Event-ID: \(ids)")
      }
    }
    let isSocket = format == .message
    if isSocket {
      fields += WebSocketFrames.handshake
    } else if random.chance(50), format != .raw {
      fields.append("Accept: \(format.mediaType)")
    } else {
      options.append("as=\(format.rawValue)")
    }
    let isPlain =
      streams.count == 1 && (world.specification(of: streams[0])?.type ?? "application/json") == "application/json"
    let hasEnvelope =
      isSocket || (format == .lines || format == .sequence) && (!isPlain || hasMarkers || random.chance(50))
    if hasEnvelope { options.append("ids=1") }
    if let filter { options.append("where=\(Self.quoted(filter.json(for: streams[0])))") }
    if hasMarkers { options.append("marker=1") }
    let count = streams.count == 1 && random.chance(10) ? 1 + random.below(20) : nil
    if let count { options.append("count=\(count)") }
    if random.chance(8) { options.append("follow=0") }
    // Without chunks, an event that another one begins with cannot be told from it.
    let isChunked = isSocket || format == .raw || random.chance(85)
    let path = path(of: streams) + "?" + options.joined(separator: "&")
    let response = EventResponse(
      of: streams, as: format, isChunked: isChunked, hasEnvelope: hasEnvelope, onLag: onLag, after: after,
      where: filter, hasMarkers: hasMarkers, isFromState: isFromState, continuing: readings, count: count, by: self)
    send(
      "GET", path, fields, version: isChunked ? "1.1" : "1.0",
      Exchange(.events(response), streams, path: path, by: self), &random)
  }

  /// As the value of a parameter.
  private static func quoted(_ text: String) -> String {
    text.utf8.map { byte in
      let isPlain = UInt8(ascii: "a")...UInt8(ascii: "z") ~= byte || UInt8(ascii: "0")...UInt8(ascii: "9") ~= byte
      return isPlain ? String(UnicodeScalar(byte)) : "%" + (byte < 16 ? "0" : "") + String(byte, radix: 16)
    }.joined()
  }

  override func ask(_ stream: String) {
    guard canRequest() else { return }
    var random = Random(world.random.next())
    guard random.chance(85) else { return askForOther(&random) }
    var path = path(of: [stream])
    var fields: [String] = []
    let newest = world.truths[stream]?.last ?? 0
    let condition = random.chance(40) && newest > 0 ? newest - UInt64(random.below(3)) : nil
    if let condition { fields.append("If-None-Match: \(random.pick(["", "W/", "\"x\", "]))\"\(condition)\"") }
    let isHead = random.chance(15)
    let wait = random.chance(30) ? UInt64(random.pick([100, 5000, 30_000])) : nil
    if let wait { path += "?wait=\(wait)ms" }
    send(
      isHead ? "HEAD" : "GET", path, fields,
      Exchange(
        .newest(condition: condition, wait: wait.map { $0 * 1_000_000 }, isHead: isHead), [stream], path: path,
        by: self), &random)
  }

  private func askForOther(_ random: inout Random) {
    let path = random.pick(["/metrics", "/metrics?streams=0", "/healthz", "/", "/nothing"])
    send("GET", path, [], Exchange(.other, [], path: path, by: self), &random)
  }

  /// Makes a stream of a template, or deletes it.
  func change(_ stream: String, isDeletion: Bool, _ random: inout Random) {
    guard canRequest() else { return }
    let path = path(of: [stream])
    if isDeletion { world.deletionsSent[stream, default: 0] += 1 }
    send(
      isDeletion ? "DELETE" : "PUT", path, [],
      Exchange(.change(isDeletion: isDeletion), [stream], path: path, by: self), &random)
  }

  override func cancel(_ random: inout Random) {
    guard isFollowing || exchanges.contains(where: { if case .newest(_, .some, _) = $0.kind { true } else { false } })
    else { return }
    Report.shared.say("\(name) wants no more")
    close()
  }

  override func publish(to stream: String, _ publisher: NamedPublisher?, _ random: inout Random) {
    guard publisher == nil, canRequest() else { return }
    let hasLines = random.chance(70)
    post(to: stream, count: hasLines ? random.pick([0, 1, 2, 5, 20, 60]) : 1, hasLines: hasLines, &random)
  }

  override func fireAndForget(to stream: String, _ random: inout Random) {
    guard canRequest() else { return }
    post(to: stream, count: 1, hasLines: false, &random)
    sendBody(.max)
  }

  override func sendValues(_ random: inout Random) { sendBody(random.pick([1, 10, 100, 1000, 20_000])) }
  override func completeChannel(_ random: inout Random) { sendBody(.max) }

  var hasSentHead: Bool { rest.isEmpty }

  override func keepAlive() {
    guard !rest.isEmpty else { return ping() }
    send(rest)
    rest = []
  }

  override func halfClose() {
    // A WebSocket ends with what its client sends.
    guard !isOver, !exchanges.isEmpty, rest.isEmpty, hasSentAll, !hasHalfClosed, events?.format != .message else {
      return
    }
    if case .publish(let posting)? = exchanges.last?.kind, !posting.rest.isEmpty { return }
    Report.shared.say("\(name) sends nothing any more")
    hasHalfClosed = true
    Glibc.shutdown(descriptor, CInt(SHUT_WR))
  }

  // MARK: Judgement

  override func review(at place: Int) {
    for index in exchanges.indices {
      exchanges[index].review(for: self)
      if case .events(var response) = exchanges[index].kind {
        response.review(at: place, for: self)
        exchanges[index].kind = .events(response)
      }
    }
  }

  override func handedOver(at place: Int) {
    handovers.append(place)
    socket?.heardAt = sim_now()
    if var response = events {
      response.handedOver()
      events = response
    }
    if case .publish(var posting)? = exchanges.last?.kind {
      posting.wasHandedOver = true
      exchanges[exchanges.count - 1].kind = .publish(posting)
    }
  }

  override func ended() {
    if let position = events?.position(of: peer) { world.remember(position) }
  }

  override var catalogues: [Subscription] { events?.subscriptions.filter { $0.stream == "$streams" } ?? [] }

  override func checkAtRest() {
    guard !isOver, !isLeaving, rest.isEmpty, hasSentAll, !isRefused, let first = exchanges.first else { return }
    let isAnswered: Bool
    switch first.kind {
    case .newest(_, let wait, _): isAnswered = wait != nil
    case .events(let response):
      isAnswered = response.hasBegun
      response.checkAtRest(self)
      checkSocketAtRest()
    case .publish(let posting): isAnswered = !posting.rest.isEmpty || world.specification(of: first.streams[0])!.blocks
    case .change, .other: isAnswered = false
    }
    require(
      isAnswered, "every request is answered",
      "\(name) has no response to its request of \(first.path), but \(unjudged)")
  }

  override func judge(_ bytes: UnsafeRawBufferPointer, at place: Int) -> Int {
    if place == 0, bytes.first == 0 { return judgeRefusal(bytes) }
    if mayHaveRest { return bytes.count }
    var offset = 0
    while let part = reader.next(in: bytes, &offset, hasBody: exchanges.first?.isHead != true) {
      switch part {
      case .head(let head): begin(head)
      case .body(let range):
        countHandovers(in: place + range.lowerBound..<place + range.upperBound)
        let part = UnsafeRawBufferPointer(rebasing: bytes[range])
        if var response = events, response.hasBegun {
          response.receive(part, at: place + range.lowerBound, self)
          events = response
        } else {
          body += part
        }
      case .frame(let frame):
        countHandovers(in: place + frame.payload.lowerBound..<place + frame.payload.upperBound)
        judge(frame, of: bytes, at: place)
      case .end: end()
      }
      if mayHaveRest { return bytes.count }
    }
    return offset
  }

  /// In a connection beyond a limit: its protocol was not known.
  private func judgeRefusal(_ bytes: UnsafeRawBufferPointer) -> Int {
    guard bytes.count >= 3, case let count = Int(bytes[1]) << 8 | Int(bytes[2]), bytes.count >= 3 + count else {
      return 0
    }
    guard
      case .error(_, let code, let message)? = try? Frame.decode(UnsafeRawBufferPointer(rebasing: bytes[3..<3 + count]))
    else { fail("responses", "\(name) got no response") }
    isRefused = true
    world.connectionFailed(self, code, message)
    return bytes.count
  }

  private func countHandovers(in range: Range<Int>) {
    let count = handovers.count { $0 > range.lowerBound && $0 < range.upperBound }
    if count > 0 {
      Report.shared.count("HTTP: handovers in the middle of a \(events == nil ? "body" : "chunk")", count)
    }
    handovers.removeAll { $0 < range.upperBound }
  }

  private func begin(_ head: ResponseReader.Head) {
    guard !head.isInterim else {
      if case .publish(let posting)? = exchanges.first?.kind, posting.expectsContinue, head.status == 100 { return }
      fail("responses", "\(name) got the interim status \(head.status)")
    }
    (self.head, body) = (head, [])
    // At a limit, an event stream is a short body, so that its client comes back later.
    guard var response = events, head.status == (response.format == .message ? 101 : 200), head["content-length"] == nil
    else { return }
    response.begin(head, self)
    events = response
  }

  /// A WebSocket is closed.
  func endInput() { reader.end() }

  private func end() {
    guard let head else { return }
    self.head = nil
    guard !exchanges.isEmpty else {
      return require(
        head.status >= 400 && head.isLast, "responses", "\(name) got \(head.status), and has not asked for anything")
    }
    var exchange = exchanges.removeFirst()
    exchange.review(for: self)
    if case .change(true) = exchange.kind { world.deletionsOver[exchange.streams[0], default: 0] += 1 }
    mayHaveRest = exchange.isHead && head.status == 503 && head.isLast && requestCount == 1
    Report.shared.say("\(name) gets \(head.status) for \(exchange.path)")
    let kind =
      switch exchange.kind {
      case .newest(_, _, true): "HEAD"
      case .newest(_, .some, _): "GET that waits"
      case .newest: "GET"
      case .events: "events"
      case .publish: "POST"
      case .change(let isDeletion): isDeletion ? "DELETE" : "PUT"
      case .other: "others"
      }
    Report.shared.count("HTTP: \(kind), \(head.status)")
    judge(head, of: exchange)
    guard head.status < 400 || head.status == 404 && exchange.path == "/nothing" else {
      return judgeProblem(head, of: exchange)
    }
    switch exchange.kind {
    case .newest(let condition, let wait, let isHead):
      judge(head, newest: exchange, condition: condition, wait: wait, isHead: isHead)
    case .events(let response):
      if response.hasBegun { return response.end(self) }
      if head.status == 200, response.format == .events {
        let text = String(decoding: body, as: UTF8.self)
        return require(
          text.hasPrefix("retry: ") && text.contains("\n\nevent: end\n"), "responses", "\(name) got the events \(text)")
      }
      require(
        head.status == 204 && exchange.streams.contains { world.endedStreams.contains($0) }, "responses",
        "\(name) got \(head.status) for the events of \(exchange.streams)")
    case .publish(let posting): judge(head, posting, isWhole: exchange.changes == world.changes)
    case .change(let isDeletion):
      require(
        head.status == 503 || (isDeletion ? [204] : [200, 201]).contains(head.status), "responses",
        "\(name) got \(head.status) for a change of \(exchange.path)")
    case .other: judgeOther(head, exchange)
    }
  }

  /// Whether the status is one that the rules of the streams permit.
  private func judge(_ head: ResponseReader.Head, of exchange: Exchange) {
    let isPermitted: Bool
    switch head.status {
    case 200 where head["content-length"] != nil && exchange.isForEvents: isPermitted = true  // comes back later
    case 200, 201, 204, 304: isPermitted = exchange.mayBeAdmitted && exchange.mayBeServed
    case 400: isPermitted = exchange.path.contains("from=")
    case 403: isPermitted = exchange.mayBeForbidden
    case 404 where exchange.isPublish && (world.deletionsSent[exchange.streams[0]] ?? 0) > exchange.deletions:
      isPermitted = true
    case 404: isPermitted = exchange.mayBeUnserved || exchange.path == "/nothing"
    case 406: isPermitted = exchange.streams.contains { world.specification(of: $0)?.type == "image/png" }
    case 408: isPermitted = hasDawdled || exchange.isPublish
    case 413: isPermitted = exchange.isPublish
    case 502: isPermitted = !exchange.isPublish
    case 503: isPermitted = true
    default: isPermitted = false
    }
    require(
      isPermitted, head.status < 400 ? "access" : "responses",
      "\(name) got \(head.status) for \(exchange.path): \(String(decoding: body.prefix(200), as: UTF8.self))")
  }

  private func judgeProblem(_ head: ResponseReader.Head, of exchange: Exchange) {
    let text = String(decoding: body, as: UTF8.self)
    require(
      exchange.isHead
        || head["content-type"] == "application/problem+json" && text.contains("\"status\":\(head.status),"),
      "responses", "\(name) got \(head.status) with the body \(text)")
    if case .publish(let posting) = exchange.kind { judge(problem: text, posting) }
    if case .events(let response) = exchange.kind, exchange.changes == world.changes {
      for subscription in response.subscriptions where response.streams.count == 1 {
        subscription.stateFailed(text, self)
      }
    }
  }

  private func judge(
    _ head: ResponseReader.Head, newest exchange: Exchange, condition: UInt64?, wait: UInt64?, isHead: Bool
  ) {
    let stream = exchange.streams[0]
    let tag = head["etag"].flatMap { UInt64($0.dropFirst().dropLast()) }
    let hasEnded = world.endedStreams.contains(stream)
    guard let truth = world.truths[stream] else {
      if head.status == 200, !isHead { judgeCatalogue(of: stream, exchange.visible) }
      return
    }
    if let wait, !isHead, head.status != 200, exchange.changes == world.changes {
      require(
        sim_now() - exchange.sentAt >= wait || hasEnded || head.status == 304 && condition != exchange.floor,
        "responses", "\(name) got \(head.status) before the time was over for which it waits")
    }
    switch head.status {
    case 200:
      guard let tag else { fail("responses", "\(name) got an event of \(stream) without a tag") }
      require(
        tag >= exchange.floor ?? 0 && tag != condition, "the newest event",
        "\(name) got event \(tag) of \(stream), and \(exchange.floor ?? 0) was there, and it has \(condition ?? 0)")
      require(
        wait == nil || condition != nil || isHead || hasEnded || tag > exchange.floor ?? 0, "the newest event",
        "\(name) has waited for event \(tag) of \(stream), which was there")
      require(head["content-type"] == world.specification(of: stream)?.type, "responses", "\(name) got another type")
      if isHead {
        require(
          head["content-length"] == truth.events[tag].map { "\($0.data.count)" }, "same id, same bytes",
          "\(name) got another length of event \(tag) of \(stream)")
      } else {
        truth.delivered(tag, nil, body, as: .exact, to: name)
      }
    case 304:
      require(
        tag != nil && tag == condition && tag! >= exchange.floor ?? 0, "the newest event",
        "\(name) has event \(condition ?? 0) of \(stream), and is told that \(tag ?? 0) is the newest")
    default:
      require(
        exchange.floor == nil || wait != nil || exchange.changes != world.changes
          || world.specification(of: stream)?.age != nil || world.isOfTemplate(stream),
        "the newest event",
        "\(name) got none of \(stream), which has event \(exchange.floor ?? 0)")
    }
  }

  private func judgeCatalogue(of stream: String, _ visible: Set<String>) {
    guard let entries = Subscription.entries(of: stream, body) else {
      fail("system streams", "\(name) got no JSON of \(stream)")
    }
    let excess = Set(entries.map(World.shown)).subtracting(visible)
    require(
      excess.isEmpty, "system streams",
      "\(stream) shows \(name) \(excess.sorted()), and may show \(visible.sorted())")
  }

  private func judgeOther(_ head: ResponseReader.Head, _ exchange: Exchange) {
    require(head.status == (exchange.path == "/nothing" ? 404 : 200), "responses", "\(name) got \(head.status)")
    guard exchange.path.hasPrefix("/metrics") else { return }
    let labels = String(decoding: body, as: UTF8.self).components(by: "stream=\"").dropFirst()
    let excess = Set(labels.map { World.shown(String($0.prefix { $0 != "\"" })) }).subtracting(exchange.visible)
    require(excess.isEmpty, "system streams", "metrics show \(name) \(excess.sorted())")
  }
}

extension HTTPClient.Exchange {
  var isPublish: Bool { if case .publish = kind { true } else { false } }
  var isForEvents: Bool { if case .events = kind { true } else { false } }
}
