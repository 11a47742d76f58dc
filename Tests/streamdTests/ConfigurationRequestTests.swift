import StreamServer
import StreamSources
import TestSupport
import Testing

@testable import streamd

/// The keys of `http` for the method, the body and the position.
struct ConfigurationRequestTests {
  private let folder: TemporaryFolder

  init() throws {
    folder = try TemporaryFolder([
      "query": "{ a\n b }\n", "address": "https://h/bot1:t0ken/x\n", "nonsense": "s3cret", "file": "{\"v\": null}",
    ])
  }

  private func errors(_ more: String, every: String = "every = \"1s\"") -> [String] {
    streamdTests.errors(
      "[streams.s.http]\nurl = \"https://h/?page=1\"\n\(every)\n\(more)", credentials: folder.path, checksPrograms: true
    )
  }

  private func http(_ more: String, url: String = "\"https://h/\"", every: String = "every = \"1s\"") throws
    -> (section: Configuration.HTTP, request: HTTPConfiguration)
  {
    let text = "[streams.s.http]\nurl = \(url)\n\(every)\n\(more)"
    let stream = try #require(try parse(text, credentials: folder.path).streams.first)
    let section = try #require(stream.source.section as? Configuration.HTTP)
    return (section, section.request(of: stream))
  }

  @Test func aRequestHasABodyFromThreePlaces() throws {
    for (body, bytes, isSecret) in [
      ("'{\"a\": 1}'", "{\"a\": 1}", false), ("{ credential = \"query\" }", "{ a\n b }", true),
      ("{ file = \"\(folder.path("file"))\" }", "{\"v\": null}", false),
    ] {
      let request = try http("method = \"POST\"\nbody = \(body)").request
      #expect(request.method == .post && request.isIdempotent)
      #expect(request.body == HTTPBody(Array(bytes.utf8), type: "application/json", isSecret: isSecret))
      #expect(request.problems.isEmpty)
    }
    let other = try http("method = \"PUT\"\nbody = \"a\"\ncontent_type = \"text/plain; charset=utf-8\"").request
    #expect(other.body?.type == "text/plain; charset=utf-8" && other.method == .put)
    #expect(try http("headers = { Content-Type = \"a/b\" }").request.method == .get)
  }

  @Test func whatIsNotRepeatedByDefault() throws {
    for (method, every, isIdempotent) in [
      ("GET", "stream = \"sse\"", true), ("POST", "stream = \"sse\"", false), ("QUERY", "stream = \"lines\"", false),
      ("POST", "every = \"1s\"", true),
    ] { #expect(try http("method = \"\(method)\"", every: every).request.isIdempotent == isIdempotent) }
    #expect(try !http("method = \"POST\"\nidempotent = false").request.isIdempotent)
    #expect(try http("method = \"POST\"\nidempotent = true", every: "stream = \"sse\"").request.isIdempotent)
  }

  @Test func theURLMayBeACredential() throws {
    let (section, request) = try http("", url: "{ credential = \"address\" }")
    #expect(request.url == "https://h/bot1:t0ken/x" && request.urlName == "credential address")
    #expect(!"\(section)".contains("t0ken") && section.definition[0].value == "address")
    #expect(
      streamdTests.errors(
        "[streams.s.http]\nurl = { credential = \"nonsense\" }\nevery = \"1s\"", credentials: folder.path) == [
          "test.toml:2: streams.s.http.url.credential: expected a URL such as \"https://example.org/\"; "
            + "the credential \"nonsense\" has something else"
        ])
  }

  @Test func anIntervalMayGrow() throws {
    let section = try http("obey_max_age = true", every: "every = { min = \"5s\", max = \"10m\" }").section
    #expect(section.fetching == .poll(every: .seconds(5), max: .seconds(600)) && section.obeyMaxAge)
    for (every, sentence) in [
      ("{ min = \"5s\" }", "every: expected max, such as max = \"1m\", got none"),
      ("{ min = \"5s\", max = \"4s\" }", "every.max: expected at least min, got \"4s\""),
      ("{ min = \"5s\", max = 7 }", "every.max: expected a duration such as \"30s\", got 7"),
      ("{ min = \"5s\", max = \"5s\", mean = 1 }", "every.mean: unknown key; expected one of: max, min"),
    ] { #expect(errors("", every: "every = \(every)") == ["test.toml:3: streams.s.http.\(sentence)"]) }
    #expect(
      errors("obey_max_age = true", every: "stream = \"sse\"") == [
        "test.toml:4: streams.s.http.obey_max_age: expected obey_max_age only with every"
      ])
  }

  @Test func streamsWithTheSameCredentialsHaveOneAccount() throws {
    let account = try http("query = { a = \"1\" }").request.account
    #expect(
      try account
        == http("query = { a = \"2\" }, headers = { X-A = \"b\" }".replacing("}, ", with: "}\n")).request.account)
    for other in [
      "bearer = { credential = \"nonsense\" }", "headers = { X-Key = { credential = \"nonsense\" } }",
      "headers = { authorization = \"a\" }", "query = { key = { credential = \"nonsense\" } }",
    ] {
      let request = try http(other).request
      #expect(request.account != account && request.account?.contains("s3cret") == false)
    }
  }

  @Test func aCursorHasAnOriginAndAPlace() throws {
    let telegram = try http(
      "cursor = { from = \".result[-1].update_id\", add = 1, in = \"query.offset\", start = 7, pages = 10 }"
    ).request.cursor
    var expected = HTTPCursor(.program(".result[-1].update_id"), in: .query("offset"))
    (expected.addend, expected.start, expected.pages) = (1, .init("7", isNumber: true), 10)
    #expect(telegram == expected)
    let header = try http("cursor = { header = \"X-Next\", in = \"header.X-After\", start = \"a\" }").request.cursor
    expected = HTTPCursor(.header("X-Next"), in: .header("X-After"))
    expected.start = .init("a")
    #expect(header == expected)
    #expect(try http("cursor = { link = \"next\" }").request.cursor == HTTPCursor(.link("next"), in: .url))
    let body = "method = \"POST\"\nbody = { file = \"\(folder.path("file"))\" }\n"
    let place = try http(body + "cursor = { from = \".n\", in = \"body./v\" }").request.cursor?.place
    #expect(place == .body("/v"))
  }

  @Test(arguments: [
    ("method = \"HEAD\"", ".method: expected \"GET\", \"POST\", \"PUT\" or \"QUERY\", got \"HEAD\""),
    ("body = \"a\"", ".body: expected body only with method = \"POST\", \"PUT\" or \"QUERY\""),
    ("content_type = \"a/b\"", ".content_type: expected content_type only with body"),
    ("cursor = {}", ".cursor: expected from, header or link, got none"),
    (
      "cursor = { from = \".a\", link = \"next\", in = \"query.a\" }",
      ".cursor: expected from, header or link, got from and link"
    ),
    ("cursor = { from = \".a\" }", ".cursor: expected in, such as in = \"query.after\", got none"),
    ("cursor = { from = \".a[\", in = \"query.a\" }", ".cursor.from: not a jq program: syntax error, unexpected $end"),
    (
      "cursor = { link = \"next\", add = 1 }",
      ".cursor.add: expected no add with link, which is the URL of the next request"
    ),
    (
      "cursor = { header = \"A\", in = \"cookie.a\" }",
      ".cursor.in: expected \"query.NAME\", \"header.NAME\" or \"body./POINTER\", got \"cookie.a\""
    ),
    (
      "cursor = { header = \"A\", in = \"body.v\" }",
      ".cursor.in: expected \"query.NAME\", \"header.NAME\" or \"body./POINTER\", got \"body.v\""
    ),
    (
      "cursor = { header = \"A\", in = \"query.page\" }",
      ".cursor: expected the parameter page once, which cursor.in adds"
    ),
    (
      "cursor = { header = \"A\", in = \"header.Authorization\" }",
      ".cursor: expected another field than Authorization in cursor.in: the request has it in any case"
    ),
    (
      "cursor = { header = \"A\", in = \"body./v\" }",
      ".cursor: expected cursor only with body, where cursor.in has a place"
    ),
    (
      "cursor = { header = \"A\", in = \"query.a\", start = \"\" }",
      ".cursor.start: expected a whole number, or a text of 1 to 1024 bytes without control characters, got a string"
    ),
    (
      "cursor = { header = \"A\", in = \"query.a\", pages = 0 }",
      ".cursor.pages: expected a whole number from 1 to 1000, got 0"
    ),
    (
      "cursor = { header = \"A\", in = \"query.a\", add = 1.5 }",
      ".cursor.add: expected a whole number from -9007199254740992 to 9007199254740992, got 1.5"
    ),
    (
      "cursor = 5",
      ".cursor: expected a table, such as cursor = { from = \".next\", in = \"query.after\" }, got a number"
    ),
  ])
  func errorsHaveLineAndKey(text: String, sentence: String) {
    #expect(errors(text) == ["test.toml:4: streams.s.http\(sentence)"])
  }

  @Test(arguments: [
    ("headers = { content-type = \"a/b\" }", ".headers: expected content_type in place of the header content-type"),
    ("body = 5", ".body: expected a text, { credential = \"name\" } or { file = \"/path\" }, got a number"),
    (
      "body = \"request\"",
      ".body: expected body = \"request\" only in a template: each request has a stream of its own"
    ),
    (
      "body = \"\(String(repeating: "a", count: 1 << 20 + 1))\"",
      ".body: expected a text of at most 1 MiB, got a string of 1048577 bytes"
    ),
    ("body = { file = \"query\" }", ".body.file: expected an absolute path of at most 4095 bytes, got \"query\""),
    ("body = { file = \"/nonexistent/x\" }", ".body.file: /nonexistent/x cannot be read: No such file or directory"),
    ("body = { file = \"/dev/null\" }", ".body.file: /dev/null cannot be read: it is not a regular file"),
  ])
  func errorsOfABodyHaveLineAndKey(text: String, sentence: String) {
    #expect(errors("method = \"POST\"\n\(text)") == ["test.toml:5: streams.s.http\(sentence)"])
  }

  @Test func aCursorNeedsAPollAndItsPlaceInTheBody() {
    #expect(
      errors("cursor = { header = \"A\", in = \"query.a\" }", every: "stream = \"sse\"") == [
        "test.toml:4: streams.s.http.cursor: expected cursor only with every"
      ])
    for body in ["'{\"w\": null}'", "'no JSON'", "'{\"v\": []}'"] {
      #expect(
        errors("method = \"POST\"\nbody = \(body)\ncursor = { header = \"A\", in = \"body./v\" }") == [
          "test.toml:6: streams.s.http.cursor: expected a text, a number or null in the JSON body at the pointer of cursor.in"
        ])
    }
  }

  @Test func aBodyOfATemplateHasExpressionsWithinItsStrings() throws {
    func text(_ body: String) -> String {
      "[streams.\"a/{x}\".http]\nurl = \"https://h/\"\nevery = \"1s\"\nmethod = \"POST\"\nbody = '\(body)'"
    }
    let template = try #require(try parse(text("{\"a\": \"{x}\", \"b\": { \"c\": 1 }}")).templates.first)
    let (_, values) = try #require(NameTemplates([template.name]).match("a/v"))
    let section = try #require(try template.stream(values).source.section as? Configuration.HTTP)
    let bytes = Array("{\"a\": \"v\", \"b\": { \"c\": 1 }}".utf8)
    #expect(section.body?.bytes == bytes)
    let outside = streamdTests.errors(text("{\"a\": {x}}"))
    #expect(outside.first?.contains("expected {x} within a string of the JSON text") == true, "\(outside)")
  }

  @Test func aTemplateTakesRequestsOfClients() throws {
    func text(_ more: String = "", http: String = "stream = \"sse\"") -> String {
      """
      [streams."a/{x}"]
      write = ["*"]
      read = ["owner", "uid:5"]
      replay = "all"
      \(more)
      [streams."a/{x}".http]
      url = "https://h/"
      method = "POST"
      body = "request"
      content_type = "text/plain"
      \(http)
      """
    }
    let template = try #require(try parse(text("running = 5")).templates.first)
    #expect(template.terms.running == 5 && template.sample.replay == Configuration.Stream.everything)
    #expect(template.sample.source.section.takesRequests && !template.sample.source.section.repeatsRequests)
    #expect(template.sample.readRules == AccessRules([.user(5)]), "nobody has made it")
    var stream = template.copy(named: "a/b")
    stream.origin.owner = StreamOwner(saved: "uid 7")
    #expect(stream.readRules == AccessRules([.user(7), .user(5)]))
    stream.origin.owner = StreamOwner(saved: "token t")
    #expect(stream.readRules == AccessRules([.token("t"), .user(5)]))
    let configuration = StreamConfiguration(stream)
    #expect(configuration.isAnswer && configuration.start == .always && configuration.replay == 256)
    let again = try parse(text(http: "stream = \"lines\"\nidempotent = true"))
    #expect(again.templates.first?.sample.source.section.repeatsRequests == true)
    for (text, sentence) in [
      (text("start = \"first\""), ".start: expected no start with http.body"),
      (text("retry = { first = \"1s\" }"), ".retry: expected no retry with http.body"),
      (text(http: "every = \"1s\""), ".http.body: expected stream = \"sse\" or \"lines\" with body = \"request\""),
      (text("running = 0"), ".running: expected a whole number from 1 to 100000, got 0"),
      (text("replay2 = 5"), "unknown key"),
    ] {
      let errors = streamdTests.errors(text)
      #expect(errors.count == 1 && errors.first?.contains(sentence) == true, "\(errors)")
    }
    let other = "[streams.\"b/{x}\"]\ntimer = { every = \"1s\" }\n"
    #expect(streamdTests.errors(other + "running = 5").first?.contains("only with http.body = \"request\"") == true)
    #expect(streamdTests.errors(other + "read = [\"owner\"]").first?.contains("a stream has no other owner") == true)
  }

  private let client = "token_url = \"https://id/t\", client_id = \"me\", client_secret = { credential = \"nonsense\" }"

  @Test func aTokenComesFromItsEndpoint() throws {
    let oauth2 = try #require(
      try http("proxy = \"none\"\noauth2 = { \(client), scope = \"a b\", auth = \"form\" }").request.oauth2)
    var expected = OAuth2(
      tokenURL: "https://id/t", clientID: "me", clientSecret: "s3cret", grant: .clientCredentials)
    (expected.scope, expected.sendsSecretInForm, expected.route) = ("a b", true, .direct)
    expected.userAgent = oauth2.userAgent
    #expect(oauth2 == expected)
    let refresh = "token_url = \"https://id/t\", client_id = \"me\", refresh_token = { credential = \"nonsense\" }"
    let other = try http("oauth2 = { \(refresh) }").request.oauth2
    #expect(other?.grant == .refreshToken("s3cret") && other?.clientSecret == nil)
    let section = try http("oauth2 = { \(client) }").section
    #expect(!"\(section)".contains("s3cret") && !"\(section.definition)".contains("s3cret"))
  }

  @Test(arguments: [
    ("oauth2 = 5", ": expected a table, such as oauth2 = \(Configuration.OAuth2.example), got a number"),
    ("bearer = { credential = \"nonsense\" }, CLIENT", ": expected oauth2 or bearer, got both"),
    ("headers = { authorization = \"a\" }, CLIENT", ": expected oauth2 or the header authorization, got both"),
    (
      "oauth2 = { token_url = \"https://id\", client_id = \"me\" }",
      ": expected client_secret or refresh_token, got neither"
    ),
    (
      "oauth2 = { token_url = \"https://id\", client_id = \"me\", refresh_token = { credential = \"nonsense\" }, auth = \"form\" }",
      ".auth: expected auth only with client_secret"
    ),
    (
      "oauth2 = { token_url = \"https://u:p@id\", client_id = \"me\", refresh_token = { credential = \"nonsense\" } }",
      ".token_url: expected a URL such as \"https://id.example.org/token\", without a user and password, got a string"
    ),
  ])
  func errorsOfATokenHaveLineAndKey(text: String, sentence: String) {
    let text = text.replacing("CLIENT", with: "oauth2 = { \(client) }")
    #expect(
      streamdTests.errors(
        "[streams.s]\nhttp = { url = \"https://h/\", every = \"1s\", \(text) }", credentials: folder.path)
        == ["test.toml:2: streams.s.http.oauth2\(sentence)"])
  }

  @Test func theListingHidesBodiesAndPositions() throws {
    let text = """
      [streams.s.http]
      url = "https://h/"
      every = "1s"
      method = "POST"
      body = "s3cret"
      cursor = { header = "A", in = "query.a", start = "s3cret" }
      oauth2 = { token_url = "https://id/t?key=s3cret", client_id = "me" }
      """
    var listing = ConfigurationListing()
    listing.add(try ConfigurationNode.parse(Array(text.utf8)), of: "f", isMain: false)
    #expect(!listing.text.contains("s3cret") && listing.text.contains("POST"))
  }

  @Test func programsForPositionsThatAreNotExactAreNamed() throws {
    let remark = JQTransform.remark(
      on: try parse(
        """
        [streams.path.http]
        url = "https://h/"
        every = "1s"
        cursor = { from = ".a[-1].b", in = "query.a" }
        [streams.other.http]
        url = "https://h/"
        every = "1s"
        cursor = { from = ".a[-2].b", in = "query.a" }
        """))
    #expect(remark?.hasSuffix(": other (cursor.from)") == true)
  }
}
