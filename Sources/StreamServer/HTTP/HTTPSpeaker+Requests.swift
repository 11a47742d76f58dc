import HTTP
import Reactive
import ReplayLog
import StreamProtocol
import StreamRuntime

// The resources, and the responses to requests for them.

extension HTTPSpeaker {
  /// The methods of a resource that takes no values.
  static let readingMethods = "GET, HEAD, OPTIONS"

  /// The resource that a path names.
  private enum Resource {
    case page
    case metrics
    case health
    case socket
    case tickets
    /// The names of streams.
    case streams([String])
    /// The path of a request for an upstream.
    case requests(String)

    init?(_ path: String) {
      switch path {
      case "/": self = .page
      case "/metrics": self = .metrics
      case "/healthz": self = .health
      case "/rsocket": self = .socket
      case "/tickets": self = .tickets
      case "/streams": self = .streams(["$streams"])
      case "/stats": self = .streams(["$stats"])
      case "/clients": self = .streams(["$clients"])
      default:
        if path.hasPrefix(Self.requestsPath) {
          self = .requests(String(path.dropFirst(Self.requestsPath.count)))
          return
        }
        guard path.hasPrefix(Self.streamsPath), path.utf8.count > Self.streamsPath.utf8.count else { return nil }
        let names = path.dropFirst(Self.streamsPath.count)
          .split(separator: ",", omittingEmptySubsequences: false).map(String.init)
        guard !names.contains("") else { return nil }
        self = .streams(names)
      }
    }

    private static let streamsPath = "/streams/"
    private static let requestsPath = "/requests/"

    var takesWebSocket: Bool {
      switch self {
      case .socket, .streams: true
      case .page, .metrics, .health, .requests, .tickets: false
      }
    }

    /// The methods of the resource.
    func methods(_ worker: Worker) -> String {
      switch self {
      case .page, .metrics, .health: return HTTPSpeaker.readingMethods
      case .socket: return "GET, OPTIONS"
      case .requests, .tickets: return "POST, OPTIONS"
      case .streams(let names):
        guard names.count == 1, NamePattern(names[0]) == nil else { return HTTPSpeaker.readingMethods }
        let stream = worker.streams[names[0]]
        let isOfTemplate = stream.map { $0.configuration.template != nil } ?? true
        let template = isOfTemplate ? worker.templates.match(names[0])?.template : nil
        let takesValues = stream.map { $0.publishSource != nil } ?? template?.terms.takesValues ?? false
        return "GET, HEAD, " + (takesValues ? "POST, " : "") + (template == nil ? "" : "PUT, DELETE, ") + "OPTIONS"
      }
    }
  }

  func respond(to head: RequestHead) {
    var request = HTTPRequest(head, allowedOrigin: nil)
    do throws(Rejection) {
      request = HTTPRequest(head, allowedOrigin: try allowedOrigin(of: head))
      try authenticate(head)
      guard head.target.path != "*" else { return respondToOptions(request, "GET, HEAD, POST, PUT, DELETE, OPTIONS") }
      let resource = Resource(head.target.path)
      let isWebSocket = head.method == .get && WebSocketHandshake.isRequested(by: head)
      if isWebSocket, resource?.takesWebSocket != true {
        throw Rejection(
          .upgradeRequired,
          "a WebSocket is opened at /streams/NAME or, with RSocket in it, at /rsocket")
      }
      guard let resource else {
        throw Rejection(.notFound, "no resource has this path: streams are at /streams/NAME")
      }
      worker.trace(identity, "requests \(head.target.path)")
      let methods = resource.methods(worker)
      switch (resource, head.method) {
      case (_, .options): respondToOptions(request, methods)
      case (.page, .get), (.page, .head): try respondWithPage(request, head)
      case (.metrics, .get), (.metrics, .head): try respondWithMetrics(request, head)
      case (.health, .get), (.health, .head): respondWithHealth(request)
      case (.socket, .get): try openRSocket(head)
      case (.tickets, .post): try issueTicket(request.withoutBody(of: head), head)
      case (.streams(let names), .get) where isWebSocket: try openWebSocket(at: names, request, head)
      case (.streams(let names), .get), (.streams(let names), .head): try respond(with: names, request, head)
      case (.requests(let path), .post): try relay(path, request, head)
      case (.streams(let names), .post) where names.count == 1:
        if worker.streams[names[0]] == nil, let name = connection.nameOfAnswer(names[0]), name != names[0] {
          try ask(name, head, request.allowedOrigin)
        } else {
          try receive(names[0], request, head)
        }
      case (.streams(let names), .put) where names.count == 1 && takesRequests(names[0]):
        try ask(names[0], head, request.allowedOrigin)
      case (.streams(let names), .put) where names.count == 1 && methods.contains("PUT"):
        try put(names[0], request.withoutBody(of: head), head)
      case (.streams(let names), .delete) where names.count == 1 && methods.contains("DELETE"):
        try delete(names[0], request.withoutBody(of: head), head)
      case (.streams(let names), .put) where names.count == 1, (.streams(let names), .delete) where names.count == 1:
        try refuseChange(of: names[0], request.withoutBody(of: head), methods)
      case (_, .get), (_, .head), (_, .post), (_, .put), (_, .delete), (_, .other):
        let rejection = Rejection(.methodNotAllowed, "the methods of this resource are \(methods)")
        countRefusal(rejection)
        respond(rejection, to: request.withoutBody(of: head)) { $0.add("Allow", methods) }
      }
    } catch {
      refuse(error, to: request, head)
    }
  }

  private func takesRequests(_ name: String) -> Bool {
    worker.templates.match(name)?.template.terms.takesRequests == true
  }

  /// A request of a client that does not know streams.
  private func relay(_ path: String, _ request: HTTPRequest, _ head: RequestHead) throws(Rejection) {
    guard let name = connection.nameOfAnswer(path, isPath: true) else {
      throw rejection(.init(nil, .noStream(path)))
    }
    try ask(name, head, request.allowedOrigin, isRelayed: true)
  }

  /// Answers a request that is refused.
  func refuse(_ rejection: Rejection, to request: HTTPRequest, _ head: RequestHead) {
    countRefusal(rejection)
    if rejection.status == .serviceUnavailable, HTTPRequest.isForEvents(head) {
      return respond(
        .ok, to: request, EventEncoding.Format.serverSentEvents.mediaType, ServerSentEvents.retryLater(rejection)
      ) { $0.add("Cache-Control", "no-store, no-transform") }
    }
    respond(rejection, to: request.withoutBody(of: head), accepted: head.method == .post ? 0 : nil) {
      if rejection.status == .unsupportedMediaType { $0.add("Accept-Encoding", "identity") }
      if rejection.status == .methodNotAllowed {
        $0.add("Allow", head.tickets.isEmpty ? Self.readingMethods : "GET, OPTIONS")
      }
      if rejection.status == .upgradeRequired {
        $0.add("Connection", "Upgrade")
        $0.add("Upgrade", "websocket")
        $0.add("Sec-WebSocket-Version", WebSocketHandshake.version)
      }
    }
  }

  /// Checks the fields with which a browser says where a request comes from. Reports a request that is refused, because
  /// the configuration may lack a name of the server.
  /// - Returns: the origin of another site that may read the response; nil: there is none.
  private func allowedOrigin(of head: RequestHead) throws(Rejection) -> String? {
    let rules = OriginRules(
      hosts: worker.limits.httpHosts, origins: worker.limits.httpOrigins, isUnixSocket: identity.credentials != nil)
    do throws(Rejection) {
      return try rules.check(head)
    } catch {
      connection.reportRefusal(error.detail, isWithoutToken: true)
      var rejection = error
      rejection.isReported = true
      throw rejection
    }
  }

  private func respondToOptions(_ request: HTTPRequest, _ methods: String) {
    respond(.noContent, to: request) { head in
      head.add("Allow", methods)
      guard request.allowedOrigin != nil else { return }
      head.add("Access-Control-Allow-Methods", methods)
      // Libraries for event streams send these fields.
      head.add(
        "Access-Control-Allow-Headers",
        "Authorization, Cache-Control, Content-Type, If-None-Match, Last-Event-ID, X-Requested-With")
    }
  }

  /// Answers whether every event loop turns. That there is an answer shows it only of this loop.
  private func respondWithHealth(_ request: HTTPRequest) {
    let isHealthy = worker.isEveryLoopTurning()
    respond(
      isHealthy ? .ok : .serviceUnavailable, to: request, "text/plain; charset=utf-8",
      Array((isHealthy ? "ok\n" : "an event loop is stuck\n").utf8)
    ) { $0.add("Cache-Control", "no-store") }
  }

  // MARK: Streams

  /// Checks the parameters for a resource that has none.
  func refuseParameters(of head: RequestHead) throws(Rejection) {
    guard let parameter = head.target.parameters.first(where: { !StreamQuery.isIgnored($0) }) else { return }
    throw Rejection(.badRequest, "unknown parameter \"\(parameter.name)\"")
  }

  private func respond(with names: [String], _ request: HTTPRequest, _ head: RequestHead) throws(Rejection) {
    let query = try StreamQuery(head.target.parameters)
    guard !query.publishes else { throw Rejection(.badRequest, "parameter \"publish\" is for a WebSocket") }
    try respond(with: names, request, query, head)
  }

  /// Responds with the newest event, or with events as they come.
  /// - Parameter handshake: the response that opens a WebSocket, if the format is that.
  func respond(
    with names: [String], _ request: HTTPRequest, _ query: StreamQuery, _ head: RequestHead,
    _ handshake: [UInt8] = []
  ) throws(Rejection) {
    if names.count == 1, let pattern = NamePattern(names[0]) {
      return try respond(with: pattern, request, query, head, handshake)
    }
    guard names.allSatisfy({ NamePattern($0) == nil }) else {
      throw Rejection(.badRequest, "a pattern is the only name of its request")
    }
    let limit = min(SavedHTTP.streamLimit, worker.limits.requestsPerConnection)
    guard names.count <= limit, Set(names).count == names.count else {
      throw Rejection(.badRequest, "a response has at most \(limit) streams, each of them once")
    }
    var streams: [ServedStream] = []
    for name in names {
      do throws(Rejection) {
        streams.append(try readableStream(name, adding: names.count))
      } catch {
        guard absentName.take() != nil else { throw error }
        return try make(name, of: names, for: request, query, head)
      }
    }
    var format = query.format
    if format == nil { format = try Self.format(streams.map(\.configuration.type), head["Accept"]) }
    guard let format else {
      try Self.check(query, isStreaming: false)
      if let key = query.key {
        return try respond(withNewestOf: key, in: streams[0], request, head["If-None-Match"])
      }
      return try respondWithNewest(of: streams[0], request, query, head["If-None-Match"])
    }
    try Self.check(query, isStreaming: true)
    guard names.count == 1 || query.count == nil else {
      throw Rejection(.badRequest, "parameter \"count\" is for one stream")
    }
    guard query.from.count <= 1 || query.from.count == names.count else {
      throw Rejection(
        .badRequest,
        "parameter \"from\" has \(query.from.count) values: give one, or one for each of \(names.count) streams")
    }
    guard format != .message || names.count == 1 || query.ids else { throw .needsNames }
    let field = StreamQuery.lastEventID(head["Last-Event-ID"])
    try beginStreaming(streams, as: format, request, query, lastEventID: field ?? query.lastEventID, handshake)
  }

  /// The stream that a request names, if the client may read it.
  /// - Parameter count: requests of the user that begin with this one, and are not counted yet.
  func readableStream(_ name: String, adding count: Int) throws(Rejection) -> ServedStream {
    let stream = try visibleStream(name, adding: count)
    guard connection.admits(stream.configuration.read) else { throw rejection(connection.mayNotRead(stream)) }
    return stream
  }

  func visibleStream(_ name: String, adding count: Int) throws(Rejection) -> ServedStream {
    do throws(Connection.Refusal) {
      return try connection.stream(named: name, adding: count)
    } catch {
      guard error.failure.reason == .noStream, !madeNames.contains(name), worker.templates.match(name) != nil else {
        throw rejection(error)
      }
      absentName = name
      throw Rejection(of: error.failure)
    }
  }

  /// Counts and reports a refusal.
  func rejection(_ refusal: Connection.Refusal) -> Rejection {
    connection.report(refusal)
    var rejection = Rejection(of: refusal.failure)
    if rejection.status == .forbidden, connection.needsToken { rejection.status = .unauthorized }
    rejection.isReported = true
    return rejection
  }

  /// The streaming format that a client accepts; nil: the newest event in the stream's own type.
  /// - Parameter types: those of the streams.
  static func format(_ types: [String], _ accept: String?) throws(Rejection) -> EventEncoding.Format? {
    let formats: [EventEncoding.Format] = [.serverSentEvents, .ndjson, .jsonSequence]
    func offered() -> [MediaType] {
      (types.count == 1 ? [mediaType(types[0])] : []) + formats.compactMap { MediaType($0.mediaType) }
    }
    let index = MediaType.preferred(accept, among: offered() + otherLineTypes.compactMap { MediaType($0) })
    guard let index else {
      throw Rejection(.notAcceptable, "the media types are \(offered().map(\.name).joined(separator: ", "))")
    }
    if types.count == 1, index == 0 { return nil }
    let place = types.count == 1 ? index - 1 : index
    return place < formats.count ? formats[place] : .ndjson
  }

  private static func mediaType(_ type: String) -> MediaType {
    MediaType(type) ?? MediaType("application/octet-stream")!
  }

  static func check(_ query: StreamQuery, isStreaming: Bool) throws(Rejection) {
    if isStreaming, let name = query.wait != nil ? "wait" : query.key != nil ? "key" : nil {
      throw Rejection(.badRequest, "parameter \"\(name)\" is for the newest event")
    }
    if query.wait != nil, query.key != nil {
      throw Rejection(.badRequest, "parameter \"wait\" is for the newest event of all keys")
    }
    if !isStreaming,
      !query.from.isEmpty || query.count != nil || !query.follows || query.onLag != nil || query.ids
        || query.lastEventID != nil || query.filter != nil || query.marker
    {
      throw Rejection(
        .badRequest,
        "only parameters \"wait\" and \"key\" are for the newest event: for a streaming response add \"as\" or Accept")
    }
  }
}

extension Rejection {
  /// A WebSocket whose messages would not say to which stream they belong.
  static var needsNames: Self {
    Self(.badRequest, "a WebSocket with several streams requires ids=1, which names the stream of each event")
  }

  /// The rejection for a request that fails.
  init(of failure: RequestFailure) {
    let status = Status.allCases.first { $0.rawValue == failure.reason.meaning.status }
    self.init(status ?? .internalServerError, failure.sentence)
    type = failure.reason.type
  }
}

extension HTTPRequest {
  /// The request when its body is not read.
  func withoutBody(of head: RequestHead) -> HTTPRequest {
    HTTPRequest(
      isHead: isHead, keepsConnection: keepsConnection && head.framing.isEmpty, allowsChunks: allowsChunks,
      allowedOrigin: allowedOrigin)
  }
}
