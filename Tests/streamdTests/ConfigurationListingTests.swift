import FoundationEssentials
import Glibc
import StreamClient
import StreamProtocol
import TestSupport
import Testing

@testable import streamd

/// The configuration as clients see it.
@Suite(.timeLimit(.minutes(10))) struct ConfigurationListingTests {
  private func listing(_ texts: String...) throws -> String {
    let files = texts.enumerated().map { ConfigurationText(path: "/\($0).toml", bytes: Array($1.utf8)) }
    return try ConfigurationSource.parse(files, credentialsDirectory: nil).text
  }

  @Test func filesAreShownWithTheirNamesAndDefaults() throws {
    let text = try listing(
      #"""
      [streams.b]
      timer.every = "1s"
      buffer = { events = 10, bytes = "4KiB" }
      jq = '''
      .x |
      "\u001b"'''
      [server]
      hosts = ["a.example", "b.example"]
      max_connections = 5
      [streams."a/b"]
      publish = true
      """#, "[streams.c]\nexec.command = [\"true\"]\n")
    #expect(
      text.hasPrefix(
        """
        # /0.toml

        [server]
        hosts = ["a.example", "b.example"]
        max_connections = 5
        handshake_timeout = "10s"  # default

        """))
    #expect(text.contains("\nsocket = \"/run/streamd/streamd.sock\"  # default\n"))
    #expect(text.contains("\nmode = \"0660\"  # default\n") && text.contains("\nmax_request = \"1MiB\"  # default\n"))
    #expect(text.contains("\n[log]\nlevel = \"info\"  # default\n"))
    #expect(text.contains("\nmax_per_host = 4  # default\n"))
    #expect(
      text.contains(
        #"""

        [streams.b]
        timer = { every = "1s" }
        buffer = { bytes = "4KiB", events = 10 }
        jq = ".x |\U0000000A\"\\u001b\""

        [streams."a/b"]
        publish = true

        # /1.toml

        [streams.c]
        exec = { command = ["true"] }

        # Defaults of streams:
        # block_pace = "1s"

        """#))
    for line in ["buffer.bytes = \"8MiB\"", "block_timeout = \"1m\"", "retry.max = \"5m\"", "distinct = false"] {
      #expect(text.contains("\n# \(line)\n"), "\(line)")
    }
    #expect(!text.contains("# http.redirects"))
  }

  @Test func theTextIsAConfigurationOfTheSameMeaning() throws {
    let text = #"""
      [server]
      max_input = "1GiB"
      [http]
      redirects = "none"
      [streams."a.b/c"]
      http = { url = "http://localhost/", stream = "sse", sse = "envelope", idle_timeout = "90s" }
      on_lag = "fail"
      overflow = "block"
      block_timeout = "never"
      read = ["uid:7", "gid:8"]
      [streams.s]
      timer = { every = "1500ms", times = 3 }
      distinct = ".id"
      description = "é \u202E \t \""
      [streams.t]
      publish = true
      share = "fleet"
      lead = false
      [cluster]
      nats = ["nats://a:4222", "nats://[::1]"]
      name = "prod"
      replicas = 1
      """#
    #expect(try parse(listing(text)) == parse(text))
    #expect(
      try listing(text).contains(
        "\nreplicas = 1\nresume_wait = \"5s\"  # default\nshard_bytes = \"1GiB\"  # default\nshards = 16  # default\n"))
    #expect(try !listing("").contains("[cluster]"))
  }

  @Test func whatMayBeASecretIsHidden() throws {
    let folder = try TemporaryFolder(["token": "s3cret"])
    let text = """
      [http]
      proxy = { url = "http://proxy.example:3128", user = "SECRET1", password = { credential = "token" } }
      [streams.a.http]
      url = "https://example.org/path?key=SECRET2#SECRET3"
      every = "1s"
      headers = { Authorization = "SECRET4", X-Key = { credential = "token" } }
      query = { apikey = "SECRET5", other = { credential = "token" } }
      [streams.b.http]
      url = "https://example.org/SHOWN"
      every = "1s"
      proxy = "http://other.example"
      basic = { user = "SECRET6", password = { credential = "token" } }
      [streams.c]
      exec = { command = ["SHOWN", "--password=SECRET7", "SECRET8"], environment = { TOKEN = "SECRET9" } }
      [streams.d.websocket]
      url = "wss://example.org/SHOWN?key=SECRET11"
      send = ["SECRET12", { credential = "token" }, { text = "SECRET14", after = ".SHOWN" }]
      answer = [{ to = ".SHOWN", with = ".SECRET15" }]
      ignore = ["SHOWN"]
      heartbeat = { send = "SECRET13", every = "9s" }
      [streams.e.streamd]
      address = "tcp:other.example:7878"
      token = { credential = "token" }
      [cluster]
      nats = ["tls://shown.example"]
      name = "SHOWN"
      user = "SECRET10"
      password = { credential = "token" }
      [streams.headers]
      description = "SHOWN"
      publish = true
      """
    let files = [ConfigurationText(path: "/x", bytes: Array(text.utf8))]
    let shown = try ConfigurationSource.parse(files, credentialsDirectory: folder.path).text
    #expect(!shown.contains("SECRET") && !shown.contains("s3cret"))
    for part in [
      #"url = "https://example.org/path?<hidden>""#, #"X-Key = { credential = "token" }"#,
      #"Authorization = "<hidden>""#, #"command = ["SHOWN", "<hidden>", "<hidden>"]"#, "https://example.org/SHOWN",
      #"url = "wss://example.org/SHOWN?<hidden>""#,
      #"send = ["<hidden>", { credential = "token" }, { after = ".SHOWN", text = "<hidden>" }]"#,
      #"answer = [{ to = ".SHOWN", with = "<hidden>" }]"#, #"ignore = ["SHOWN"]"#,
      #"heartbeat = { every = "9s", send = "<hidden>" }"#,
      #"token = { credential = "token" }"#, "tcp:other.example:7878",
      #"proxy = "http://other.example""#, "description = \"SHOWN\"",
      "\n[cluster]\nnats = [\"tls://shown.example\"]\nname = \"SHOWN\"\nuser = \"<hidden>\"\n",
    ] {
      #expect(shown.contains(part), "\(part) in \(shown)")
    }
  }

  @Test func aLargeConfigurationFitsIntoAnEvent() throws {
    let streams = (0..<30_000).map { "[streams.s\($0)]\npublish=true\n" }.joined()
    let variables = (0..<60_000).map { "V\($0)=\"\"" }.joined(separator: ",")
    for text in [streams, "[streams.s]\nexec={command=[\"x\"],environment={\(variables)}}\n"] {
      #expect(text.utf8.count < ConfigurationText.limit)
      #expect(try listing(text).utf8.count < 4 << 20)
    }
  }

  @Test func aRefusedReloadIsShownUntilTheFilesAreCorrect() async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    try await daemon.start(keptStream(keep: "no"))
    let connection = try StreamConnection(socket: daemon.folder.path("s"))
    var reports = connection.stream("$config").values.makeAsyncIterator()
    func report() async throws -> ConfigurationReport {
      let event = try #require(try await reports.next())
      return try JSONDecoder().decode(ConfigurationReport.self, from: Data(event.data))
    }
    let first = try await report()
    #expect(first.error == nil && first.text.contains("\n[streams.s]\n") && first.restartKeys == nil)
    try await daemon.reload("[streams.s]\ntimer = { evry = \"1s\" }\n")
    let second = try await report()
    #expect(second.text == first.text && second.readAt ?? 0 > first.readAt ?? 0)
    #expect(second.error?.hasPrefix("\(daemon.folder.path("streamd.toml")):5: streams.s.timer") == true)
    try await daemon.reload("workers = 3\n" + keptStream("t", keep: "no"))
    let third = try await report()
    #expect(third.error == nil && third.text.contains("\n[streams.t]\n") && third.restartKeys == ["server.workers"])
    connection.close()
    #expect(await daemon.stop() == 0)
  }

  @Test func streamctlReportsTheOutcomeOfAReload() async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    try await daemon.start(keptStream(keep: "no"))
    func reload(_ streams: String) async throws -> (code: CInt, errors: String) {
      try daemon.write(streams)
      let process = try ChildProcess(
        ChildProcess.built("streamctl"),
        ["--socket", daemon.folder.path("s"), "reload", "\(try #require(daemon.id))", "--timeout", "2m"])
      let text = await process.text(of: process.errors)
      return (await process.end(), text)
    }
    for _ in 0..<3 {
      #expect(try await reload(keptStream("t", keep: "no")) == (0, ""))
      let (code, text) = try await reload("[streams.s]\ntimer = { evry = \"1s\" }\n")
      #expect(code == 78)
      #expect(text.contains("configuration not reloaded: \(daemon.folder.path("streamd.toml")):5: streams.s"))
    }
    #expect(await daemon.stop() == 0)
  }
}
