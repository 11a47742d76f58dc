import FoundationEssentials
import StreamClient
import TestSupport
import Testing

@testable import streamd

/// Every kind of secret with every kind of failure, and all output of the daemon.
@Suite(.timeLimit(.minutes(10))) struct SecrecyTests {
  private let upstream: Upstream
  private let key = uniqueKey()
  /// By the name of its credential.
  private let secrets: [String: String]
  private let folder: TemporaryFolder

  init() throws {
    upstream = try Upstream.shared.get()
    let kinds = [
      "bearer", "basic", "header", "query", "proxy", "passphrase", "variable", "message", "token", "body", "client",
      "refresh",
    ]
    var files = Dictionary(uniqueKeysWithValues: kinds.map { ($0, "\($0)-s3cret/\(uniqueKey())") })
    files["address"] = upstream.url("/status/c\(key)/\(uniqueKey())?code=500&times=9999999&s3cret=\(uniqueKey())")
    files["key"] = try String(contentsOfFile: upstream.file("locked.key"), encoding: .utf8)
    secrets = files
    folder = try TemporaryFolder(files)
  }

  /// A token that its upstream refuses.
  private static let token = "{\"access_token\":\"access-s3cret/1\"}"

  /// Each stream fails in a way of its own, and for ever.
  private var streams: [(name: String, source: String)] {
    let all = """
      query = { apikey = { credential = "query" } }, headers = { X-Key = { credential = "header" } }, \
      basic = { user = "me", password = { credential = "basic" } }
      """
    let bearer = "bearer = { credential = \"bearer\" }, query = { apikey = { credential = \"query\" } }"
    let proxy = "proxy = { url = \"\(upstream.lockedProxy)\", user = \"me\", password = { credential = \"proxy\" } }"
    let identity = """
      ca_file = "\(upstream.file("authority.pem"))", client_certificate = "\(upstream.file("client.pem"))", \
      client_key = { credential = "key" }, client_key_passphrase = { credential = "passphrase" }
      """
    let elsewhere = Upstream.redirect(key, to: upstream.otherURL("/status/\(key)?code=403&times=9999999"))
    func poll(_ url: String, _ more: String) -> String { "http = { url = \"\(url)\", every = \"10ms\", \(more) }" }
    return [
      ("refused", poll("http://127.0.0.1:1/x", all)),
      ("unknown-host", poll("http://\(String(repeating: "x", count: 64))/", bearer)),
      ("unauthorized", poll(upstream.url("/status/a\(key)?code=401&times=9999999"), all)),
      ("too-many", poll(upstream.url("/status/b\(key)?code=500&times=9999999"), bearer)),
      ("elsewhere", poll(upstream.url(elsewhere), "redirects = \"any\", \(all)")),
      ("mirrored", poll(upstream.url("/mirror/\(key)"), "redirects = \"any\", \(bearer)")),
      ("not-followed", poll(upstream.url("/mirror/\(key)"), bearer)),
      ("another-scheme", poll(upstream.url(Upstream.redirect(key, to: "ftp://h/")), all)),
      ("circle", poll(upstream.url("/circle/\(key)"), bearer)),
      ("cut", poll(upstream.url("/cut/\(key)"), all)),
      ("not-http", poll(upstream.refusingProxy.replacing("socks5://", with: "http://"), bearer)),
      ("too-large", poll(upstream.url("/size/\(key)?bytes=100"), all + ", max_body = \"10B\"")),
      ("not-events", "http = { url = \"\(upstream.url("/stream/\(key)?type=text/html"))\", stream = \"sse\", \(all) }"),
      (
        "silent",
        "http = { url = \"\(upstream.url("/hang/\(key)"))\", stream = \"lines\", timeout = \"9ms\", \(bearer) }"
      ),
      (
        "closed",
        "websocket = { url = \"ws\(upstream.url("/websocket/\(key)?send=88020fa1").dropFirst(4))\", "
          + "send = [{ credential = \"message\" }], \(all) }"
      ),
      ("other-streamd", "streamd = { address = \"tcp:127.0.0.1:1\", token = { credential = \"token\" } }"),
      (
        "body",
        poll(upstream.url("/scripted/\(key)?do=500"), "method = \"POST\", body = { credential = \"body\" }, \(all)")
      ),
      (
        "body-elsewhere",
        poll(
          upstream.url(Upstream.redirect(key, to: upstream.otherURL("/"), "&code=307")),
          "redirects = \"any\", method = \"POST\", body = { credential = \"body\" }, \(bearer)")
      ),
      (
        "not-repeated",
        poll(
          upstream.url("/scripted/\(key)?do=drop"),
          "idempotent = false, method = \"POST\", body = { credential = \"body\" }, \(bearer)")
      ),
      (
        "no-position",
        poll(
          upstream.url("/scripted/\(key)?do=\(Upstream.escaped("{\"n\":[\"position-s3cret/1\"]}"))"),
          "cursor = { from = \".n + 1\", in = \"query.after\" }, \(bearer)")
      ),
      (
        "no-token",
        poll(
          upstream.url("/guarded/\(key)"),
          "oauth2 = { token_url = \"\(upstream.url("/token/\(key)?do=401"))\", client_id = \"me\", "
            + "client_secret = { credential = \"client\" } }")
      ),
      (
        "no-refresh",
        poll(
          upstream.url("/guarded/\(key)"),
          "oauth2 = { token_url = \"\(upstream.url("/token/\(key)?do=\(Upstream.escaped(Self.token))"))\", "
            + "client_id = \"me\", refresh_token = { credential = \"refresh\" } }")
      ),
      ("secret-address", "http = { url = { credential = \"address\" }, every = \"10ms\", \(bearer) }"),
      ("untrusted", poll(upstream.secureURL("/count/\(key)"), all)),
      ("locked", poll(upstream.mutualURL("/count/\(key)"), identity)),
      ("nobody", poll(upstream.mutualURL("/count/\(key)"), "ca_file = \"\(upstream.file("authority.pem"))\", \(all)")),
      ("proxied", poll(upstream.url("/count/p\(key)"), "\(proxy), \(all)")),
      ("tunnelled", poll(upstream.trustedURL("/count/p\(key)"), "\(proxy), \(bearer)")),
      (
        "program",
        "exec = { command = [\"sh\", \"-c\", \"exit 3\"], environment = { WORD = { credential = \"variable\" } } }"
      ),
    ]
  }

  /// Each secret as it is, and as it is sent.
  private var forms: [String] {
    var forms = Array(secrets.values).filter { !$0.contains("\n") }
    forms += [
      "access-s3cret/1", "position-s3cret/1", secrets["address"]?.split(separator: "=").last.map(String.init) ?? "",
    ]
    forms += forms.map { $0.replacing("/", with: "%2f") }
    for (user, kind) in [("me", "basic"), ("me", "proxy")] {
      forms.append(Data("\(user):\(secrets[kind] ?? "")".utf8).base64EncodedString())
    }
    return forms + (secrets["key"] ?? "").split(separator: "\n").dropFirst().dropLast().map(String.init)
  }

  @Test func secretsAreNeverPrinted() async throws {
    let tables = streams.map { name, source in
      """
      [streams.\(name)]
      \(source)
      start = "always"
      retry = { first = "10ms", max = "20ms" }
      """
    }
    let text = "[log]\nlevel = \"debug\"\n[http]\nproxy = \"none\"\n" + tables.joined(separator: "\n")
    let environment = ["CREDENTIALS_DIRECTORY=\(folder.path)"]
    let daemon = try await DaemonProcess(text, environment: environment)
    let connection = try StreamConnection(socket: daemon.socket)
    var said: [String] = []
    for try await event in connection.stream("$streams").values {
      said.append(String(decoding: event.data, as: UTF8.self))
      let rows = try JSONDecoder().decode([Row].self, from: Data(event.data))
      let failing = Set(rows.filter { $0.state == "failing" && $0.message != nil }.map(\.name))
      if failing == Set(streams.map(\.name)) { break }
    }
    var statistics = connection.stream("$stats").values.makeAsyncIterator()
    said.append(String(decoding: try #require(try await statistics.next()).data, as: UTF8.self))
    var shown = connection.stream("$config").values.makeAsyncIterator()
    said.append(String(decoding: try #require(try await shown.next()).data, as: UTF8.self))
    #expect(try await daemon.logs("source failing: "))
    connection.close()
    said += try await shownTexts(
      socket: daemon.socket, process: daemon.id, log: daemon.log
    ).map(\.text)
    let good = try await run(["--check", "--config", daemon.file], environment: environment)
    #expect(good.status == 0, "\(good.errors)")
    // The same with an error next to every secret.
    let broken = tables.map { $0.replacing(", every = \"10ms\"", with: ", every = 5, surplus = 1, unix_socket = 7") }
    try folder.write(Array(broken.joined(separator: "\n").utf8), to: "broken.toml")
    let bad = try await run(["--check", "--config", folder.path("broken.toml")], environment: environment)
    #expect(bad.status == 78)
    #expect(await daemon.stop() == 0)
    said += [daemon.log, good.output, good.errors, bad.output, bad.errors]
    for form in forms where form.count > 8 {
      for text in said { #expect(!text.contains(form), "\(form) in \(text)") }
    }
  }

  @Test(arguments: [
    "exec.command = \"prog --password s3cretWord\"", "exec.command = [\"prog\", { p = \"s3cretWord\" }]",
    "exec.command = [\"prog\", \"-ps3cretWord\\u0000\"]", "exec.command = [\"prog\", 31415926535]",
    "exec = { command = [\"true\"], environment = { \"TOKEN=s3cretWord\" = \"\" } }",
    "http = { every = \"1s\", url = \"http://h/\", headers = { \"Authorization: s3cretWord\" = \"\" } }",
    "http = { every = \"1s\", url = \"http://h/\", query = { \"s3cretWord\\u0001\" = \"\" } }",
    "http = { every = \"1s\", url = \"http://h/\", basic = { user = \"me:s3cretWord\", password = { credential = \"x\" } } }",
    "http = { every = \"1s\", url = \"http://h/\", bearer = { credential = \"s3cretWord/+\" } }",
    "http = { every = \"1s\", url = \"http://h/\", bearer = { credential = 31415926535 } }",
    "http = { every = \"1s\", url = \"http://h/\", bearer = 31415926535897932384626433832795 }",
    "http = { every = \"1s\", url = \"h/x#access_token=s3cretWord\" }",
    "http = { every = \"1s\", url = \"http:/h/x;token=s3cretWord\" }",
    "http = { every = \"1s\", url = \"http://u:s3cretWord%40h/\" }",
    "http = { every = \"1s\", url = \"http://u:s3cretWord@\\u0301h/\" }",
    "http = { every = \"1s\", url = \"http://h/?\\u0301k=s3cretWord\" }",
    "http = { every = \"http://u:s3cretWord@h/\", url = \"http://h/\" }",
    "http = { every = \"1s\", url = \"http://h/\", unix_socket = \"http://u:s3cretWord@h\" }",
    "http = { every = \"1s\", url = \"http://h/\", proxy = \"h:3128#s3cretWord\" }",
    "streamd = { address = \"tcp:u:s3cretWord@h:1\" }",
    "streamd = { address = \"tcp:h:1\", token = \"s3cretWord\" }",
    "http = { every = \"1s\", url = \"http://h/\", client_key = \"-----BEGIN PRIVATE KEY-----s3cretWord\" }",
  ]) func aMistakeShowsNothingThatMayBeASecret(line: String) {
    let sentences = errors("[streams.s]\n\(line)")
    #expect(!sentences.isEmpty)
    for sentence in sentences { #expect(!sentence.contains("s3cretWord") && !sentence.contains("31415926535")) }
  }

  private struct Row: Decodable {
    let name: String
    let state: String
    let message: String?
  }
}
