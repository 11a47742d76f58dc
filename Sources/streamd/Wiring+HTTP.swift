import Events
import HTTP
import Reactive
import ReplayLog
import StreamProtocol
import StreamSources

extension HTTPConfiguration {
  init(_ http: Configuration.HTTP, of stream: Configuration.Stream) {
    self.init(
      url: http.url, timeout: http.timeout, maximumBodyBytes: stream.maxBodyBytes(http),
      headers: http.headers.map { HTTPHeader(name: $0.name, value: $0.value.content) },
      query: http.query.map { HTTPQueryItem(name: $0.name, value: $0.value.content) },
      unixSocket: http.unixSocket, route: HTTPRoute(http.settings.proxy),
      trust: HTTPTrust(http.settings, http.serverName),
      redirects: http.settings.redirects,
      retry: Backoff(stream.retry), userAgent: http.settings.userAgent ?? "streamd/\(Version.current)")
    content = stream.sourceContent
    switch http.authorization {
    case .bearer(let token): bearer = token.content
    case .basic(let login): self.login = HTTPLogin(login)
    case nil: break
    }
  }
}

extension Configuration.Stream {
  /// What a body is meant to be. One in the charset of the stream's own type stays as it is.
  fileprivate var sourceContent: HTTPContent {
    if jq != nil || hasJSONType { return .json }
    guard let type = MediaType(type), type.name.hasPrefix("text/") else { return .any }
    return [nil, "utf-8"].contains(type.charset) ? .text : .any
  }
}

extension Configuration.HTTP {
  /// As `Configuration.Source.publisher`.
  /// - Parameters:
  ///   - polled: where a poll resumes.
  ///   - streamed: where a streaming response resumes.
  func publisher(
    for stream: Configuration.Stream, polled: SourceResumption, streamed: SourceResumption, admission: FetchAdmission?,
    handover: SourceHandover?, refresh: SourceRefresh, on thread: SourceThread,
    succeeded: @escaping @Sendable () -> Void,
    progress: @escaping @Sendable (SourceProgress) -> Void, report: @escaping @Sendable (SourceReport) -> Void
  ) -> AnyPublisher<EventBatch, Never> {
    let request = HTTPConfiguration(self, of: stream)
    switch fetching {
    case .poll(let every):
      return HTTPPoll(
        request, every: every, isJSON: stream.pollsJSON, phaseKey: stream.name, resumption: polled,
        admission: admission, handover: handover, refresh: refresh, on: thread, succeeded: succeeded,
        progress: progress, report: report
      ).eraseToAnyPublisher()
    case .stream(let format, let idleTimeout):
      return HTTPStream(
        request, format: format, form: eventForm, lineEnd: LineEnd(of: end), idleTimeout: idleTimeout,
        resumption: streamed, handover: handover,
        refresh: refresh, on: thread, progress: progress, report: report
      ).eraseToAnyPublisher()
    }
  }
}

extension WebSocketConfiguration {
  init(_ socket: Configuration.WebSocket, of stream: Configuration.Stream) {
    self.init(HTTPConfiguration(socket.http, of: stream))
    messages = socket.messages.map { WebSocketMessage($0.text.content, after: $0.after) }
    answers = socket.answers.map { WebSocketAnswer(to: $0.to, with: $0.with) }
    ignored = Set(socket.ignored)
    subprotocols = socket.subprotocols
    decode = socket.decode
    heartbeat = socket.heartbeat.map { ($0.text.content, $0.every) }
    messagesArePublic = !(socket.messages.map(\.text) + (socket.heartbeat.map { [$0.text] } ?? [])).contains(
      where: \.isSecret)
    pingEvery = socket.pingEvery
    idleTimeout = socket.idleTimeout
  }
}

extension LineConfiguration {
  init(_ socket: Configuration.Socket, of stream: Configuration.Stream) {
    switch socket.address {
    case .tcp(let host, let port):
      self.init(.tcp(host: host, port: port, tls: socket.tls ? HTTPTrust(socket.settings, socket.serverName) : nil))
    case .unix(let path): self.init(.unix(path))
    case .udp(let address): self.init(.udp(address))
    }
    (messages, hasLines) = (socket.messages.map(\.content), socket.hasLines)
    (maximumEventBytes, idleTimeout) = (stream.maximumLineBytes(socket.maxBodyBytes), socket.idleTimeout)
    (lineEnd, retry, isTelnet) = (LineEnd(of: socket.end), Backoff(stream.retry), socket.isTelnet)
  }

  init(_ serial: Configuration.Serial, of stream: Configuration.Stream) {
    self.init(.serial(serial.settings))
    (messages, retry) = (serial.messages.map(\.content), Backoff(stream.retry))
    lineEnd = LineEnd(of: serial.end)
    maximumEventBytes = stream.maximumLineBytes(serial.maxBodyBytes)
  }
}

extension Configuration.Stream {
  /// - Parameter limit: the configured one; nil: 1 MiB, or what the buffer can hold.
  func maximumLineBytes(_ limit: Int?) -> Int {
    limit ?? min(1 << 20, jq == nil ? EventLog.Limits(buffer).maximumEventBytes : .max)
  }
}

extension Backoff {
  init(_ retry: Configuration.Retry) {
    self.init(first: retry.first, max: retry.max)
  }
}

extension HTTPRoute {
  fileprivate init(_ proxy: Configuration.Proxy) {
    switch proxy {
    case .environment: self = .environment
    case .none: self = .direct
    case .server(let url, let login): self = .proxy(HTTPProxy(url: url, login: login.map { HTTPLogin($0) }))
    }
  }
}

extension HTTPLogin {
  fileprivate init(_ login: Configuration.Login) {
    self.init(user: login.user, password: login.password.content)
  }
}

extension HTTPTrust {
  fileprivate init(_ settings: Configuration.HTTPSettings, _ serverName: String?) {
    self.init(
      authorities: settings.authorities,
      identity: settings.identity.map {
        HTTPIdentity(certificate: $0.certificate, key: $0.key, passphrase: $0.passphrase?.content)
      }, serverName: serverName)
  }
}

extension Configuration.NamedValue.Value {
  /// The value itself, which may be a secret.
  var content: String {
    switch self {
    case .plain(let value): value
    case .secret(let secret): secret.content
    }
  }

  fileprivate var isSecret: Bool { if case .secret = self { true } else { false } }
}
