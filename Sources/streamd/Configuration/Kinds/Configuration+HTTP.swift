import Events
import Fleet
import HTTP
import Reactive
import StreamProtocol
import StreamSources

extension Configuration {
  /// A source that fetches a URL.
  struct HTTP: Sendable, Equatable {
    /// `http` or `https`, ASCII, with a host, without a user or password.
    var url = ""
    /// The URL, if it is a credential; `url` is then empty.
    var secretURL: Secret?
    var method = HTTPMethod.get
    var body: Body?
    /// The type of the body.
    var contentType = "application/json"
    /// Whether a request is repeated on which the upstream may have acted; `nil`: except for a response that streams, of
    /// another method than GET.
    var idempotent: Bool?
    var cursor: Cursor?
    var oauth2: OAuth2?
    /// Whether a poll waits for the end of an answer's `max-age`.
    var obeyMaxAge = false
    /// How responses are read. The initial value, before the key is read, permits `sse`.
    var fetching = Fetching.stream(.serverSentEvents, idleTimeout: nil)
    /// The time limit of one whole transfer; for a streaming response, of its head.
    var timeout = Duration.seconds(30)
    /// Maximum bytes of one response, or of one event of a streaming response, after decompression; more is a failed
    /// fetch. `nil`: see `bodyLimit(in:)`.
    var maxBodyBytes: Int?
    /// The form of the event that a server-sent event becomes; only for responses with such events.
    var eventForm = ServerSentEventForm.data
    /// How lines end; as in the file. `nil`: with LF or CRLF.
    var end: String?
    var split = Split.none
    /// The headers of a request, in the order of the file. Values here and in `query` have at most 8192 bytes and no
    /// control characters.
    var headers: [NamedValue] = []
    /// Added to the URL's query.
    var query: [NamedValue] = []
    /// The `Authorization` header; `headers` then contains none.
    var authorization: Authorization?
    /// Path of the upstream's Unix socket, absolute, at most 107 bytes; `nil`: TCP.
    var unixSocket: String?
    /// The name in the server's certificate; `nil`: that of the URL.
    var serverName: String?
    var settings = HTTPSettings()
    /// `nil`: each stream has requests of its own.
    var together: Together?
    /// Requests in a second for another union of values; at least 1.
    var pace = 1

    /// How a response is read.
    enum Fetching: Sendable, Equatable {
      /// The response is one event, and is polled at intervals of 1 ms to 365 days.
      /// After each answer without news the interval doubles up to `max`; `nil`: it stays.
      case poll(every: Duration, max: Duration? = nil)
      /// The response has any number of events, without end. It fails after `idleTimeout` without a byte; `nil`: no
      /// limit.
      case stream(HTTPStreamFormat, idleTimeout: Duration?)
    }
  }

  /// The credentials for an upstream.
  enum Authorization: Sendable, Equatable {
    /// A token.
    case bearer(Secret)
    case basic(Login)
  }

  /// A user, without a colon and control characters, and its password.
  struct Login: Sendable, Equatable {
    var user: String
    var password: Secret
  }
}

extension Configuration.HTTP: SourceTable {
  static let name = "http"
  static let example = #"{ url = "https://…", every = "1m" }"#

  static let keys: [ConfigurationKey<Self>] =
    [
      .init(["together"], \.together) { $1 = $0.together() },
      .init(["url"], \.self) { table, http in
        if case .table? = table.node("url")?.value {
          http.secretURL = table.complete(readSecretURL(table))
        } else {
          http.url = table.complete(readURL(table)) ?? http.url
        }
      },
      .init(["every", "stream", "idle_timeout"], \.fetching) { $1 = $0.complete(readFetching($0)) ?? $1 },
      .init("sse", \.eventForm, .choice),
      .init("end", \.end, .lineEnd),
      .check { table, http in
        if case .stream(.lines, _) = http.fetching { return }
        table.refuse(["end"], onlyWith: "stream = \"lines\"", lacking: ["stream"])
      },
      .check { table, http in
        if case .stream(.serverSentEvents, _) = http.fetching { return }
        table.refuse(["sse"], onlyWith: "stream = \"sse\"", lacking: ["stream"])
      },
      .init("split", \.split, .choice),
    ] + requestKeys + questionKeys + [.init("pace", \.pace, .pace), .check { $1.checkTogether($0) }]

  /// The keys of the request, besides its URL.
  static let requestKeys: [ConfigurationKey<Self>] = [
    .init("timeout", \.timeout, .duration()),
    .init("max_body", \.maxBodyBytes, .size(1...1 << 30)),
    .init("headers", \.headers, names: .headerName, texts: .headerValue),
    .init("query", \.query, names: .parameterName, texts: .headerValue),
    .init(["bearer", "basic"], \.authorization) { table, authorization in
      let bearer = table.secret("bearer")
      let form = "{ user = \"name\", password = { credential = \"name\" } }"
      let basic = table.table("basic", expecting: form) { $0.login() }
      authorization = bearer.map { .bearer($0) } ?? basic.map { .basic($0) }
    },
    .check {
      $1.checkHeaders($0)
      $1.checkAuthorization($0)
    },
    .init("unix_socket", \.unixSocket, .path(upTo: 107)),
    .init("server_name", \.serverName, .hostName),
    .check { table, http in
      guard http.serverName != nil, !table.isFaulty("url") else { return }
      let url = http.urlText.lowercased()
      if !url.isEmpty, !url.hasPrefix("https:"), !url.hasPrefix("wss:") {
        table.addError("expected server_name only with a URL over TLS", at: "server_name")
      }
    },
    .init([], \.settings) { table, settings in settings = table.context.standardSettings },
    .part(\.settings),
    .check { table, http in
      if table.holds("unix_socket"), table.holds("proxy"), http.settings.proxy != .none {
        table.addError("expected proxy or unix_socket, got both", at: "proxy")
      }
    },
  ]

  /// `every`, or `stream` with its options.
  private static func readFetching(_ table: ConfigurationTable) -> Configuration.HTTP.Fetching? {
    let format: HTTPStreamFormat? = table.value("stream", .choice)
    let idleTimeout = table.value("idle_timeout", .duration())
    guard table.holds("stream") else {
      table.refuse(["idle_timeout"], onlyWith: "stream", lacking: ["stream"])
      if !table.holds("every") {
        table.addError(
          "expected every, such as every = \"30s\", or stream, got neither", lacking: ["every", "stream"])
      }
      return readInterval(table)
    }
    if table.holds("every") {
      table.addError("expected every or stream, got both")
      _ = readInterval(table)
    }
    return format.map { .stream($0, idleTimeout: idleTimeout) }
  }

  /// A duration, or two.
  private static func readInterval(_ table: ConfigurationTable) -> Configuration.HTTP.Fetching? {
    guard case .table? = table.node("every")?.value else {
      return table.value("every", .duration()).map { .poll(every: $0) }
    }
    return table.table("every") { table in
      for key in ["min", "max"] { table.require(key, suchAs: "\(key) = \"1m\"") }
      guard let least = table.value("min", .duration()), let most = table.value("max", .duration()) else { return nil }
      if most < least { table.expected("at least min", at: "max") }
      return .poll(every: least, max: most)
    }
  }

  static func readURL(
    _ table: ConfigurationTable, schemes: [String] = ["http://", "https://"],
    suchAs example: String = "https://example.org/"
  ) -> String? {
    let form = "a URL such as \"\(example)\""
    table.require("url", suchAs: "url = \"\(example)\"")
    guard let text = table.value("url", .text(form) { _ in true }.expanding(.url)) else { return nil }
    do {
      try UpstreamURL.check(table.withoutList(text), schemes: schemes)
      return text
    } catch {
      switch error {
      case .holdsCredentials:
        table.addError(
          "expected a URL without a user or password; use basic, bearer, headers or query with a credential", at: "url")
      case .holdsVariable:
        table.addError("expected a URL without ${…}: no variable is replaced in it", at: "url")
      case .noURL: table.expected(form, at: "url")
      }
    }
    return nil
  }

  /// The URL itself, which may be a secret; empty if the credential is not read.
  var urlText: String { secretURL?.content ?? url }

  private static func readSecretURL(_ table: ConfigurationTable) -> Secret? {
    table.secret("url", is: "a URL such as \"https://example.org/\"") { text in
      do {
        try UpstreamURL.check(text)
        return true
      } catch { return false }
    }
  }

  /// Each header once, in whatever case, and none that says how long a body is.
  private func checkHeaders(_ table: ConfigurationTable) {
    var names: [String: String] = [:]
    for name in headers.map(\.name) {
      let key = name.lowercased()
      if let other = names.updateValue(name, forKey: key) {
        table.addError("expected a header once, got \(other) and \(name)", at: "headers")
      } else if ["content-length", "transfer-encoding"].contains(key) {
        table.addError("expected no \(name): it follows from the body", at: "headers")
      }
    }
  }

  /// `bearer` or `basic`, but not together with an `Authorization` header.
  private func checkAuthorization(_ table: ConfigurationTable) {
    let header = headers.first { $0.name.lowercased() == "authorization" }
    let ways = ["bearer", "basic"].filter { table.holds($0) }
    if ways.count == 2 {
      table.addError("expected bearer or basic, got both", at: "basic")
    } else if let way = ways.first, let header {
      table.addError("expected \(way) or the header \(header.name), got both", at: way)
    }
  }
}

extension Configuration.HTTP {
  var definition: [DefinitionField] {
    var fields: [DefinitionField] = [secretURL.map { ("http.url.credential", $0.name) } ?? ("http.url", url)]
    switch fetching {
    case .poll(let every, let most):
      fields.append(("http.every", every.definition))
      if let most { fields.append(("http.every.max", most.definition)) }
    case .stream(let format, _): fields.append(("http.stream", format.rawValue))
    }
    if let end { fields.append(("http.end", end)) }
    if eventForm != .data { fields.append(("http.sse", eventForm.rawValue)) }
    return fields + requestDefinition + questionDefinition
  }

  /// The definition of the request, besides its URL.
  var requestDefinition: [DefinitionField] {
    var fields: [DefinitionField] = []
    if let maxBodyBytes, maxBodyBytes != 8 << 20 { fields.append(("http.max_body", "\(maxBodyBytes)")) }
    fields += headers.definition("http.headers") + query.definition("http.query")
    switch authorization {
    case .bearer(let token): fields.append(("http.bearer", token.name))
    case .basic(let login):
      fields += [("http.basic.user", login.user), ("http.basic.password", login.password.name)]
    case nil: break
    }
    if let unixSocket { fields.append(("http.unix_socket", unixSocket)) }
    if let agent = settings.userAgent { fields.append(("http.user_agent", agent)) }
    if settings.redirects != .sameOrigin { fields.append(("http.redirects", settings.redirects.rawValue)) }
    return fields
  }

  static func hides(_ keys: ArraySlice<String>, at index: Int?) -> Bool {
    keys.elementsEqual(["body"]) || keys.elementsEqual(["cursor", "start"])
  }

  /// Four more for the process that finds positions.
  var descriptorCount: Int { cursor?.from == nil ? 6 : 10 }
  var programs: [(key: String, program: String)] { cursor?.from.map { [("cursor.from", $0)] } ?? [] }
  var advances: Bool { cursor != nil }
  var fleetKind: FleetMachine.Stream.Kind { if case .poll = fetching { .poll } else { .continuous } }
  var splitsTexts: Bool { split == .json }
  var isTogether: Bool { together != nil }
  var countsMissed: Bool { together != nil }
  var isJSON: Bool { together != nil }
  var eventLimit: (key: String, bytes: Int)? {
    together == nil ? maxBodyBytes.map { ("http.max_body", $0) } : nil
  }

  func limits(in stream: Configuration.Stream) -> [Int] { [bodyLimit(in: stream), pollsJSON(in: stream) ? 1 : 0] }

  /// The size limit of a response, or of one of its events.
  ///
  /// A page that becomes an event unchanged must fit into the buffer: otherwise it would be dropped, and a server that
  /// reports it as unchanged would never send it again.
  private func bodyLimit(in stream: Configuration.Stream) -> Int {
    if case .poll = fetching, together == nil { stream.maxPageBytes(maxBodyBytes) } else { maxBodyBytes ?? 8 << 20 }
  }

  /// Whether it polls pages that must be JSON, for jq or as events of a JSON type.
  private func pollsJSON(in stream: Configuration.Stream) -> Bool {
    if case .poll = fetching { stream.jq != nil || stream.hasJSONType } else { false }
  }

  func publisher(of stream: Configuration.Stream, in context: SectionContext) -> AnyPublisher<EventBatch, Never> {
    if let together, let union = context.union, let upstream = sharedUpstream(of: stream, together, union) {
      let value = UnionValue(together.value(in: union).own, of: upstream)
      return Source(value, in: context.source).eraseToAnyPublisher()
    }
    let request = request(of: stream)
    switch fetching {
    case .poll(let every, let most):
      let poll = HTTPPoll(request, every: every, most: most, isJSON: pollsJSON(in: stream))
      return Source(poll, in: context.source).eraseToAnyPublisher()
    case .stream(let format, let idleTimeout):
      let stream = HTTPStream(
        request, format: format, form: eventForm, lineEnd: LineEnd(of: end), idleTimeout: idleTimeout,
        single: context.single.map {
          var single = $0
          (single.secrets, single.standardType) = (secrets, contentType)
          return single
        })
      return Source(stream, in: context.source).eraseToAnyPublisher()
    }
  }

  /// The request as the source makes it.
  func request(of stream: Configuration.Stream) -> HTTPConfiguration {
    var request = HTTPConfiguration(
      url: urlText, timeout: timeout, maximumBodyBytes: bodyLimit(in: stream),
      headers: headers.map { HTTPHeader(name: $0.name, value: $0.value.content) },
      query: query.map { HTTPQueryItem(name: $0.name, value: $0.value.content) },
      unixSocket: unixSocket, route: settings.route, trust: settings.trust(serverName: serverName),
      redirects: settings.redirects, retry: stream.retry,
      userAgent: settings.userAgent ?? "streamd/\(Version.current)")
    request.content = stream.sourceContent
    switch authorization {
    case .bearer(let token): request.bearer = token.content
    case .basic(let login): request.login = HTTPLogin(login)
    case nil: break
    }
    addQuestion(to: &request, stream)
    return request
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

extension ConfigurationShape where Value == String {
  /// A token (RFC 9110, 5.6.2).
  static func token(_ what: String) -> Self {
    text(what) { $0.isName(upTo: 256, with: "!#$%&'*+-.^_`|~") }
  }

  fileprivate static var headerName: Self { token("the name of a header") }

  fileprivate static var parameterName: Self {
    text("a name of 1 to 256 bytes without control characters") {
      (1...256).contains($0.utf8.count) && !$0.hasControlCharacters
    }
  }

  fileprivate static var headerValue: Self {
    text("at most 8192 bytes without control characters") { $0.utf8.count <= 8192 && !$0.hasControlCharacters }
      .expanding(.text)
  }
}

extension Configuration.HTTP {
  /// The requests for all values have a place for them, and nothing that is of one stream.
  private func checkTogether(_ table: ConfigurationTable) {
    if case .stream = fetching, together != nil || table.holds("together") {
      _ = table.holds("pace")
    } else {
      table.refuse(["pace"], onlyWith: "together and stream", lacking: ["together", "stream"])
    }
    guard let together else { return }
    if case .poll(_, .some) = fetching {
      table.addError("expected one time with together, such as every = \"2s\"", at: "every")
    }
    if together.refused != nil {
      table.addError("expected no refused in http.together: the status of an answer refuses values", at: "together")
    }
    table.refuse(["cursor"], onlyWith: "requests of each stream, not with together")
    if body == .request { table.addError("expected a text or a credential as body with together", at: "body") }
    guard secretURL == nil, !table.isFaulty("url") else {
      if secretURL != nil { table.addError("expected a text with together, as the values are in it", at: "url") }
      return
    }
    let texts = [("url", url)] + (body?.plainText.map { [("body", $0)] } ?? [])
    let places = texts.compactMap { key, text in table.unionText(text, together, hasList: true, at: key)?.extent }
    guard places.count == texts.count, !places.contains(.many) || places.contains(.one) else { return }
    let list = together.list.map { "{?\($0)} in the URL" } ?? "as, such as as = \"\(together.parameter)s\""
    table.addError("expected all values together: \(list), or {\(together.parameter)*} in the body", at: "url")
  }

  /// The union of a stream; `nil` after an error only.
  private func sharedUpstream(
    of stream: Configuration.Stream, _ together: Configuration.Together, _ union: UnionContext
  ) -> ValueUnion? {
    guard let url = try? together.text(url, hasList: true) else { return nil }
    var request = request(of: stream)
    request.content = .json
    let body = body?.plainText.flatMap { try? together.text($0, hasList: true) }
    let places = UnionRequestText(url: url, body: body.flatMap { $0.extent == .none ? nil : $0 })
    let (name, programs) = (together.unionName(in: union), together.programs(in: union))
    switch fetching {
    case .poll(let every, _):
      let definition = HTTPUnion.Definition(
        request, every: every, most: together.most, places: places, programs: programs)
      let upstream = union.all.union("\(Self.name) \(name)") { HTTPUnion(definition, in: union.context(name)) }
      upstream.change(to: definition)
      return upstream
    case .stream(let format, let idleTimeout):
      let definition = HTTPStreamUnion.Definition(
        request, format: format, form: eventForm, lineEnd: LineEnd(of: end), idleTimeout: idleTimeout,
        most: together.most, pace: pace, places: places, programs: programs)
      let upstream = union.all.union("\(Self.name) \(name)") { HTTPStreamUnion(definition, in: union.context(name)) }
      upstream.change(to: definition)
      return upstream
    }
  }
}

extension Configuration.Body {
  fileprivate var plainText: String? { if case .text(let text) = self { text } else { nil } }
}

extension ConfigurationTable {
  /// The URL with a value in place of all of them, if many streams have it together.
  fileprivate func withoutList(_ text: String) -> String {
    guard let names = context.expansion?.together, let parameter = names.first else { return text }
    let list = names.count > 1 ? names[1] : nil
    return (try? UnionText(text, parameter: parameter, list: list))?.text(["0"]) ?? text
  }
}
