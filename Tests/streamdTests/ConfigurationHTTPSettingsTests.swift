import StreamSources
import TestSupport
import Testing

@testable import streamd

private let certificate = "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----\n"
private let key = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMII\n-----END ENCRYPTED PRIVATE KEY-----\n"

/// `[http]`, and the same settings of a stream.
struct ConfigurationHTTPSettingsTests {
  private let folder: TemporaryFolder

  init() throws {
    folder = try TemporaryFolder(
      ["ca.pem": certificate, "client.pem": certificate, "key": key, "both.pem": certificate + key, "word": "s3cret"])
  }

  /// The settings of a stream with the lines `text`, and with `http` as the defaults.
  private func settings(_ text: String, http: String = "") throws(ConfigurationErrors) -> Configuration.HTTPSettings? {
    let stream = "[streams.s.http]\nurl = \"http://h\"\nevery = \"1s\"\n\(text)\n[http]\n\(http)"
    guard let http = try parse(stream, credentials: folder.path).streams.first?.source.section as? Configuration.HTTP
    else { return nil }
    return http.settings
  }

  private func httpErrors(_ text: String) -> [String] {
    errors("[streams.s.http]\nurl = \"http://h\"\nevery = \"1s\"\n\(text)", credentials: folder.path)
  }

  @Test func maxPerHostIsRead() throws {
    #expect(try parse("[http]\nmax_per_host = 1024").http.maxPerHost == 1024)
    #expect(
      errors("[http]\nmax_per_host = 0") == [
        "test.toml:2: http.max_per_host: expected a whole number from 1 to 1024, got 0"
      ])
    #expect(errors("[streams.s.http]\nurl = \"http://h\"\nevery = \"1s\"\nmax_per_host = 4").count == 1)
  }

  @Test func everyKeyIsReadAndAppliesToAllStreams() throws {
    let http = """
      user_agent = "me/1"
      redirects = "https"
      proxy = { url = "socks5h://p:1080", user = "u", password = { credential = "word" } }
      ca_file = "\(folder.path("ca.pem"))"
      client_certificate = "\(folder.path("client.pem"))"
      client_key = { credential = "key" }
      client_key_passphrase = { credential = "word" }
      """
    let secret = Secret(name: "word", content: "s3cret")
    let expected = Configuration.HTTPSettings(
      userAgent: "me/1", proxy: .server("socks5h://p:1080", .init(user: "u", password: secret)),
      authorities: folder.path("ca.pem"),
      identity: .init(certificate: folder.path("client.pem"), key: folder.path("key"), passphrase: secret),
      redirects: .https)
    #expect(try settings("", http: http) == expected)
    #expect(try settings(http) == expected)
  }

  @Test func redirectsStayWithinTheOriginByDefault() throws {
    #expect(try settings("")?.redirects == .sameOrigin)
    #expect(try settings("", http: "redirects = \"any\"")?.redirects == .any)
    #expect(
      try settings("redirects = \"none\"", http: "redirects = \"any\"")?.redirects == HTTPRedirects.none)
    #expect(
      httpErrors("redirects = \"all\"") == [
        #"test.toml:4: streams.s.http.redirects: expected "none", "same-origin", "https" or "any", got "all""#
      ])
  }

  @Test func aStreamOverridesTheDefaults() throws {
    let http = """
      user_agent = "me/1"
      proxy = "http://p:3128"
      ca_file = "\(folder.path("ca.pem"))"
      client_certificate = "\(folder.path("both.pem"))"
      """
    let stream = """
      user_agent = "you/1"
      proxy = "none"
      ca_file = "system"
      client_certificate = "none"
      """
    var expected = Configuration.HTTPSettings(userAgent: "you/1")
    expected.proxy = .none
    #expect(try settings(stream, http: http) == expected)
    let both = folder.path("both.pem")
    #expect(try settings("", http: http)?.identity == .init(certificate: both, key: both))
    #expect(try settings("unix_socket = \"/s\"", http: http)?.proxy == .server("http://p:3128", nil))
  }

  @Test(arguments: [
    ("user_agent = \"\"", "user_agent: expected a text of 1 to 256 bytes without control characters, got \"\""),
    (
      "proxy = 5",
      #"proxy: expected "none", a URL such as "http://proxy.example.org:3128", or { url, user, password }, got a number"#
    ),
    (
      "proxy = \"http://u:s3cret@p\"",
      #"proxy: expected "none", a URL such as "http://proxy.example.org:3128", or { url, user, password }, got a string"#
    ),
    (
      "proxy = \"ftp://p\"",
      #"proxy: expected "none", a URL such as "http://proxy.example.org:3128", or { url, user, password }, got "ftp://p""#
    ),
    (
      "proxy = { url = \"http://u:s3cret@p\" }",
      #"proxy.url: expected a URL such as "http://proxy.example.org:3128", got a string"#
    ),
    ("proxy = { url = \"http://p\", user = \"u\" }", "proxy: expected password, got none"),
    (
      "proxy = { url = \"http://p\", user = \"u\", password = \"s3cret\" }",
      #"proxy.password: expected { credential = "name" }, got a string"#
    ),
    ("unix_socket = \"/s\"\nproxy = \"http://p\"", "proxy: expected proxy or unix_socket, got both"),
    ("ca_file = \"ca.pem\"", #"ca_file: expected an absolute path or { credential = "name" }, got "ca.pem""#),
    ("ca_file = \"/nonexistent/x\"", "ca_file: /nonexistent/x cannot be read: No such file or directory"),
    ("ca_file = 5", #"ca_file: expected an absolute path or { credential = "name" }, got a number"#),
    ("client_key = { credential = \"key\" }", "client_key: expected client_key only with client_certificate"),
    (
      "client_key_passphrase = { credential = \"word\" }",
      "client_key_passphrase: expected client_key_passphrase only with client_certificate"
    ),
    ("basic = { user = \"u\" }", "basic: expected password, got none"),
    (
      "basic = { user = \"a:b\", password = { credential = \"word\" } }",
      #"basic.user: expected a name of at most 256 bytes without a colon and control characters, got a string"#
    ),
    (
      "bearer = { credential = \"word\" }\nbasic = { user = \"u\", password = { credential = \"word\" } }",
      "basic: expected bearer or basic, got both"
    ),
    ("headers = { Accept = \"x\", accept = \"y\" }", "headers: expected a header once, got Accept and accept"),
    ("headers = { content-length = \"5\" }", "headers: expected no content-length: it follows from the body"),
    (
      "headers = { authorization = \"x\" }\nbasic = { user = \"u\", password = { credential = \"word\" } }",
      "basic: expected basic or the header authorization, got both"
    ),
    ("query = { \"\" = \"x\" }", #"query."…": expected a name of 1 to 256 bytes without control characters"#),
    ("query = { a = 5 }", #"query.a: expected a string or { credential = "name" }, got a number"#),
    (
      "query = { a = \"s3cret\\n\" }",
      "query.a: expected at most 8192 bytes without control characters, got a string"
    ),
  ])
  func errorsAreReported(text: String, sentence: String) {
    let line = 3 + text.split(separator: "\n").count
    #expect(httpErrors(text) == ["test.toml:\(line): streams.s.http.\(sentence)"])
  }

  @Test func filesMustHaveTheExpectedContent() {
    let (word, only) = (folder.path("word"), folder.path("client.pem"))
    #expect(
      httpErrors("ca_file = \"\(word)\"") == [
        "test.toml:4: streams.s.http.ca_file: expected a file in PEM with a certificate, \(word) has none"
      ])
    #expect(
      httpErrors("client_certificate = \"\(only)\"\nclient_key = { credential = \"word\" }") == [
        "test.toml:5: streams.s.http.client_key: expected a file in PEM with a private key, \(word) has none"
      ])
    #expect(
      httpErrors("client_certificate = \"\(only)\"") == [
        "test.toml:4: streams.s.http.client_certificate: expected a file in PEM with a private key, \(only) has none"
      ])
  }

  @Test func anInvalidURLIsNotPrinted() {
    let sentences = errors("[streams.s]\nhttp = { every = \"1s\", url = \"https://h/?key=s3cret x\" }")
    #expect(
      sentences == [#"test.toml:2: streams.s.http.url: expected a URL such as "https://example.org/", got a string"#])
  }
}
