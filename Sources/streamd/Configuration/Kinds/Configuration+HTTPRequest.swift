import Events
import StreamSources

import func HTTP.sha256

extension Configuration {
  /// The body of a request.
  enum Body: Sendable, Equatable {
    /// At most 1 MiB.
    case text(String)
    case credential(Secret)
    /// The content of a file, of at most 1 MiB.
    case file(path: String, content: [UInt8])
    /// That of the request of a client.
    case request

    static let limit = 1 << 20

    var bytes: [UInt8] {
      switch self {
      case .text(let text): Array(text.utf8)
      case .credential(let secret): Array(secret.content.utf8)
      case .file(_, let content): content
      case .request: []
      }
    }

    var isSecret: Bool { if case .credential = self { true } else { false } }

    var definition: [DefinitionField] {
      switch self {
      case .text(let text): [("http.body", text)]
      case .credential(let secret): [("http.body.credential", secret.name)]
      case .file(let path, _): [("http.body.file", path)]
      case .request: [("http.body", "request")]
      }
    }
  }

  /// `http.cursor`: where a poll continues.
  struct Cursor: Sendable, Equatable {
    /// One of these: a jq program, the name of a field, the relation of a link.
    var from: String?
    var header: String?
    var link: String?
    var add: Int?
    /// `nil` only with `link`.
    var place: HTTPCursor.Place?
    var start: HTTPCursor.Position?
    var pages = 1
  }
}

extension Configuration.HTTP {
  /// The keys of what is asked besides the URL.
  static let questionKeys: [ConfigurationKey<Self>] = [
    .init("method", \.method, .choice),
    .init(["body"], \.body) { $1 = readBody($0) ?? $1 },
    .check { table, http in
      guard http.body == .request else { return }
      if table.context.expansion == nil {
        return table.addError(
          "expected body = \"request\" only in a template: each request has a stream of its own", at: "body")
      }
      if case .poll = http.fetching, table.holds("every") {
        table.addError(
          "expected stream = \"sse\" or \"lines\" with body = \"request\": the answer is a stream", at: "body")
      }
    },
    .init("content_type", \.contentType, .mediaType),
    .init("idempotent", \.idempotent, .flag),
    .init("obey_max_age", \.obeyMaxAge, .flag),
    .check { table, http in
      if case .stream = http.fetching, table.holds("stream") { table.refuse(["obey_max_age"], onlyWith: "every") }
    },
    .check { table, http in
      guard http.method == .get, !table.isFaulty("method") else { return http.checkContentType(table) }
      table.refuse(["body"], onlyWith: #"method = "POST", "PUT" or "QUERY""#, lacking: ["method"])
    },
    .check { table, _ in
      if !table.holds("body") { table.refuse(["content_type"], onlyWith: "body", lacking: ["body"]) }
    },
    .init(["cursor"], \.cursor) { table, cursor in
      cursor = table.section("cursor", Configuration.Cursor(), suchAs: #"{ from = ".next", in = "query.after" }"#)
    },
    .check { $1.checkCursor($0) },
    .init(["oauth2"], \.oauth2) { table, oauth2 in
      oauth2 = table.section("oauth2", Configuration.OAuth2(), suchAs: Configuration.OAuth2.example)
    },
    .check { table, http in
      let header = http.headers.first { $0.name.lowercased() == "authorization" }.map { "the header \($0.name)" }
      guard table.holds("oauth2"), let other = ["bearer", "basic"].first(where: { table.holds($0) }) ?? header else {
        return
      }
      table.addError("expected oauth2 or \(other), got both", at: "oauth2")
    },
  ]

  private static func readBody(_ table: ConfigurationTable) -> Configuration.Body? {
    guard table.text("body") == nil else {
      if table.text("body") == "request" {
        _ = table.value("body", .text("a text") { _ in true })
        return .request
      }
      let shape = ConfigurationShape.text("a text of at most 1 MiB") { $0.utf8.count <= Configuration.Body.limit }
      return table.value("body", shape.expanding(.json), secret: true).map { .text($0) }
    }
    return table.table("body", expecting: #"a text, { credential = "name" } or { file = "/path" }"#) { table in
      guard table.hasUnread("file") else { return table.credential(allowsLines: true).map { .credential($0) } }
      guard let path = table.value("file", .path(upTo: 4095)) else { return nil }
      return table.content(of: path, at: "file", limit: Configuration.Body.limit).map { .file(path: path, content: $0) }
    }
  }

  private func checkContentType(_ table: ConfigurationTable) {
    if let header = headers.first(where: { $0.name.lowercased() == "content-type" }) {
      table.addError("expected content_type in place of the header \(header.name)", at: "headers")
    }
  }

  /// The place of the position is in the request, and nothing else is there.
  private func checkCursor(_ table: ConfigurationTable) {
    guard let cursor else { return }
    if case .stream = fetching, table.holds("stream") { table.refuse(["cursor"], onlyWith: "every") }
    switch cursor.place {
    case .query(let name):
      let added = urlText.split(separator: "?", maxSplits: 1).dropFirst().first?.split { "&#".contains($0) } ?? []
      if query.contains(where: { $0.name == name }) || added.contains(where: { $0.prefix { $0 != "=" } == name }) {
        table.addError("expected the parameter \(name) once, which cursor.in adds", at: "cursor")
      }
    case .header(let name):
      let own = ["authorization", "cookie", "content-type", "content-length", "transfer-encoding", "host"]
      if headers.contains(where: { $0.name.lowercased() == name.lowercased() }) || own.contains(name.lowercased()) {
        table.addError("expected another field than \(name) in cursor.in: the request has it in any case", at: "cursor")
      }
    case .body(let pointer):
      if !table.holds("body") { table.refuse(["cursor"], onlyWith: "body, where cursor.in has a place") }
      guard let body, !body.bytes.isEmpty else { return }
      if !HTTPCursor.hasPlace(pointer, in: body.bytes) {
        table.addError("expected a text, a number or null in the JSON body at the pointer of cursor.in", at: "cursor")
      }
    case .url, nil: break
    }
  }
}

extension Configuration.HTTP {
  var questionDefinition: [DefinitionField] {
    var fields: [DefinitionField] = method == .get ? [] : [("http.method", method.rawValue)]
    if let body { fields += body.definition + [("http.content_type", contentType)] }
    return fields + (cursor?.definition ?? []) + (oauth2?.definition ?? [])
  }

  /// A digest of what identifies the account at the upstream: the names of credentials, and a login in plain text.
  private var account: String {
    let values = (headers + query).filter { named in
      if case .secret = named.value { true } else { ["authorization", "cookie"].contains(named.name.lowercased()) }
    }
    let parts = [secretURL?.name ?? "", authorization.map { "\($0)" } ?? ""]
    let fields = (values.definition("value") + (oauth2?.definition ?? [])).flatMap { [$0.key, $0.value] }
    let text = (parts + fields).map { "\($0.utf8.count) \($0)" }.joined()
    return sha256(Array(text.utf8)).prefix(8).reduce("") { $0 + String($1, radix: 36) + "." }
  }

  /// Adds what is asked besides the URL.
  func addQuestion(to request: inout HTTPConfiguration, _ stream: Configuration.Stream) {
    request.obeysMaximumAge = obeyMaxAge
    request.account = account
    request.urlName = secretURL.map { "credential \($0.name)" }
    request.method = method
    if let body, body != .request { request.body = HTTPBody(body.bytes, type: contentType, isSecret: body.isSecret) }
    let isPoll = if case .poll = fetching { true } else { false }
    request.isIdempotent = idempotent ?? (method == .get || isPoll)
    request.cursor = cursor?.position(variables: stream.variables)
    request.oauth2 = oauth2?.token(settings, request.userAgent)
  }
}

extension Configuration.HTTP {
  var takesRequests: Bool { body == .request }
  var repeatsRequests: Bool { idempotent == true }
  var hasEnvelopes: Bool { eventForm == .envelope }

  /// Whether the stream of a table takes requests of clients, as far as it is known before its source is read.
  static func takesRequests(_ table: ConfigurationTable) -> Bool {
    table.node(name)?.node(at: ["body"])?.value == .string("request")
  }

  /// The values of its credentials, which its upstream may repeat in an answer.
  var secrets: [String] {
    let values = (headers + query).compactMap { named -> String? in
      if case .secret(let secret) = named.value { secret.content } else { nil }
    }
    let own: [Secret?] =
      switch authorization {
      case .bearer(let token): [secretURL, token]
      case .basic(let login): [secretURL, login.password]
      case nil: [secretURL]
      }
    return values + own.compactMap { $0?.content }
  }
}

extension Configuration.Cursor: ConfigurationSection {
  static let keys: [ConfigurationKey<Self>] = [
    .init(["from"], \.from) { table, from in
      from = table.value("from", .program("a jq program such as \".next\""))
      table.checkProgram(from, at: "from")
    },
    .init("header", \.header, .token("the name of a field of the response")),
    .init("link", \.link, .text("a relation such as \"next\"") { $0.isName(upTo: 64, with: ".-") }),
    .init("add", \.add, .count(-(1 << 53)...1 << 53)),
    .init(["in"], \.place) { $1 = $0.value("in", .cursorPlace) },
    .init(["start"], \.start) { $1 = $0.value("start", .position, secret: true) },
    .init("pages", \.pages, .count(1...1000)),
    .check { table, _ in
      let origins = ["from", "header", "link"]
      let present = origins.filter { table.holds($0) }
      if present.isEmpty { return table.addError("expected from, header or link, got none", lacking: origins) }
      if present.count > 1 {
        table.addError("expected from, header or link, got \(present.joined(separator: " and "))")
      }
      guard present == ["link"] else { return table.require("in", suchAs: "in = \"query.after\"") }
      for key in ["in", "add", "start"] where table.holds(key) {
        table.addError("expected no \(key) with link, which is the URL of the next request", at: key)
      }
    },
  ]

  var definition: [DefinitionField] {
    let origin: DefinitionField =
      header.map { ("http.cursor.header", $0) } ?? link.map { ("http.cursor.link", $0) } ?? (
        "http.cursor.from", from ?? ""
      )
    let rest = [("add", add.map { "\($0)" }), ("in", place.map { "\($0)" }), ("start", start.map { "\($0)" })]
    return [origin] + rest.compactMap { key, value in value.map { ("http.cursor.\(key)", $0) } }
  }

  /// As the source has it; `nil` after an error only.
  func position(variables: [String: String]) -> HTTPCursor? {
    let origin: HTTPCursor.Origin? =
      header.map { .header($0) } ?? link.map { .link($0) } ?? from.map { .program($0) }
    guard let origin, let place = link == nil ? place : .url else { return nil }
    var cursor = HTTPCursor(origin, in: place)
    (cursor.start, cursor.addend, cursor.pages, cursor.variables) = (start, add, pages, variables)
    return cursor
  }
}

extension ConfigurationShape where Value == HTTPCursor.Place {
  /// Where a request has the position.
  fileprivate static var cursorPlace: Self {
    Self { node throws(Expected) in
      let expected = Expected("\"query.NAME\", \"header.NAME\" or \"body./POINTER\"")
      guard case .string(let text) = node.value, let dot = text.firstIndex(of: ".") else { throw expected }
      let name = String(text[text.index(after: dot)...])
      switch text[..<dot] {
      case "query" where (1...256).contains(name.utf8.count) && !name.hasControlCharacters: return .query(name)
      case "header" where name.isName(upTo: 256, with: "!#$%&'*+-.^_`|~"): return .header(name)
      case "body" where JSONPaths.steps(ofPointer: name)?.isEmpty == false: return .body(name)
      default: throw expected
      }
    }
  }
}

extension ConfigurationShape where Value == HTTPCursor.Position {
  /// A position in the file.
  fileprivate static var position: Self {
    Self { node throws(Expected) in
      switch node.value {
      case .integer(let number): return .init("\(number)", isNumber: true)
      case .string(let text) where (1...1024).contains(text.utf8.count) && !text.hasControlCharacters:
        return .init(text)
      default: throw Expected("a whole number, or a text of 1 to 1024 bytes without control characters")
      }
    }.expanding(.text)
  }
}
