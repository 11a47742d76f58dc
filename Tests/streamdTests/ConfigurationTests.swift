import ReplayLog
import StreamServer
import StreamSources
import TestSupport
import Testing

@testable import streamd

/// Reads `text` as `test.toml`, outside of a unit unless `credentials` is set.
func parse(
  _ text: String, credentials: String? = nil, checksPrograms: Bool = false
) throws(ConfigurationErrors) -> Configuration {
  try ConfigurationSource.parse(
    [ConfigurationText(path: "test.toml", bytes: Array(text.utf8))], credentialsDirectory: credentials,
    checksPrograms: checksPrograms
  ).configuration
}

struct ConfigurationTests {
  @Test func anEmptyFileGivesTheDefaults() throws {
    let configuration = try parse("")
    #expect(configuration == Configuration())
    #expect(configuration.server.socket == "/run/streamd/streamd.sock")
    #expect(configuration.server.mode == 0o660)
    #expect(configuration.server.limits.workers == 0)
    #expect(configuration.server.limits.connections == 65536)
    #expect(configuration.server.limits.requestsPerConnection == 256)
    #expect(configuration.server.limits.requestBytes == 1_048_576)
    #expect(configuration.server.limits.handshakeTimeout == .seconds(10))
    #expect(configuration.log.level == .info)
    #expect(configuration.http.maxPerHost == 4)
    #expect(configuration.streams.isEmpty)
  }

  @Test func aStreamNeedsOnlyASource() throws {
    let configuration = try parse("[streams.clock]\ntimer = { every = \"1s\" }")
    let stream = try #require(configuration.streams.first)
    #expect(stream == Configuration.Stream(name: "clock", source: .timer(.init(every: .seconds(1)))))
    #expect(stream.description == "")
    #expect(stream.type == "application/json")
    #expect(stream.replay == 1)
    #expect(stream.buffer.events == 65536)
    #expect(stream.buffer.bytes == 8_388_608)
    #expect(stream.buffer.age == nil)
    #expect(stream.start == .subscribed)
    #expect(stream.linger == .seconds(30))
    #expect(stream.onLag == .skip)
    #expect(stream.retry.first == .seconds(1))
    #expect(stream.retry.max == .seconds(300))
    #expect(stream.read == [.anyone])
  }

  @Test func distinctIsABooleanOrAProgram() throws {
    let timer = "timer = { every = \"1s\" }"
    #expect(try parse("[streams.s]\n\(timer)\ndistinct = true").streams.first?.distinct == .whole)
    #expect(try parse("[streams.s]\n\(timer)\ndistinct = false").streams.first?.distinct == .no)
    #expect(try parse("[streams.s]\n\(timer)").streams.first?.distinct == .no)
  }

  @Test(arguments: HTTPStreamFormat.allCases) func aStreamingResponseIsASource(
    format: HTTPStreamFormat
  ) throws {
    let text = "[streams.q.http]\nurl = \"http://localhost\"\nstream = \"\(format.rawValue)\"\n"
    let configuration = try parse(text + "idle_timeout = \"1m\"")
    #expect(
      configuration.streams.first?.source
        == .http(.init(url: "http://localhost", fetching: .stream(format, idleTimeout: .seconds(60)))))
    #expect(
      try parse(text).streams.first?.source
        == .http(.init(url: "http://localhost", fetching: .stream(format, idleTimeout: nil))))
  }

  @Test func anHTTPSourceNeedsOnlyURLAndInterval() throws {
    let configuration = try parse("[streams.q]\nhttp = { url = \"http://localhost\", every = \"5m\" }")
    guard let http = configuration.streams.first?.source.section as? Configuration.HTTP else {
      Issue.record("not an HTTP source")
      return
    }
    #expect(http == Configuration.HTTP(url: "http://localhost", fetching: .poll(every: .seconds(300))))
    #expect(http.timeout == .seconds(30))
    #expect(http.maxBodyBytes == nil)
    #expect(http.headers.isEmpty && http.query.isEmpty && http.authorization == nil && http.unixSocket == nil)
    #expect(http.settings == Configuration.HTTPSettings() && http.settings.proxy == .environment)
  }

  @Test func serverSentEventsAreTheirDataByDefault() throws {
    func form(_ more: String) throws -> ServerSentEventForm? {
      let stream = try parse("[streams.q]\nhttp = { url = \"http://h\", stream = \"sse\"\(more) }").streams.first
      guard let http = stream?.source.section as? Configuration.HTTP else { return nil }
      return http.eventForm
    }
    #expect(try form("") == .data)
    #expect(try form(", sse = \"envelope\"") == .envelope)
  }

  @Test func theDefaultPageSizeIsLimitedByTheBuffer() throws {
    func limit(_ more: String, _ fetching: String = "every = \"1s\"") throws -> Int? {
      let stream = try parse("[streams.q]\nhttp = { url = \"http://h\", \(fetching) }\n\(more)").streams.first
      guard let stream, let http = stream.source.section as? Configuration.HTTP else { return nil }
      return http.request(of: stream).maximumBodyBytes
    }
    let header = (8 << 20) - EventLog.Limits(Configuration.Buffer()).maximumEventBytes
    #expect(try limit("") == (8 << 20) - header)
    #expect(try limit("buffer.bytes = \"64KiB\"") == 65536 - header)
    #expect(try limit("buffer.bytes = \"64MiB\"") == 8 << 20)
    #expect(try limit("buffer.bytes = \"64KiB\"\njq = \".[]\"") == 8 << 20)
    #expect(try limit("buffer.bytes = \"64KiB\"", "stream = \"lines\"") == 8 << 20)
    #expect(try limit("buffer.bytes = \"64KiB\"", "every = \"1s\", max_body = \"64KiB\"") == 65536 - header)
  }

  @Test(arguments: ["true", "{}"]) func publishIsASource(publish: String) throws {
    let text = "[streams.p]\npublish = \(publish)\n"
    #expect(try parse(text).streams == [Configuration.Stream(name: "p", source: .publish)])
    let stream = try #require(try parse(text + "write = [\"uid:7\", \"gid:8\", \"*\"]").streams.first)
    #expect(stream.write == [.user(7), .group(8), .anyone])
  }

  @Test func everyKeyOfTheServerAndTheLogIsRead() throws {
    let configuration = try parse(
      """
      [server]
      socket = "/tmp/s.sock"
      mode = "0600"
      workers = 3
      max_connections = 10
      max_connections_per_user = 7
      max_requests_per_connection = 4
      max_requests_per_user = 20
      max_request = "64KiB"
      max_input = "8MiB"
      max_input_per_user = "2MiB"
      max_lifetime = "1m"
      handshake_timeout = "500ms"
      hosts = ["stream.example.org"]
      origins = ["https://dashboard.example.org:8443"]
      state = "/var/lib/else"
      [log]
      level = "debug"
      """)
    var limits = ServerLimits(
      workers: 3, connections: 10, connectionsPerUser: 7, requestsPerConnection: 4, requestsPerUser: 20,
      requestBytes: 65536, inputBytes: 8 << 20, inputBytesPerUser: 2 << 20, lifetime: .seconds(60),
      handshakeTimeout: .milliseconds(500))
    (limits.httpHosts, limits.httpOrigins) = (["stream.example.org"], ["https://dashboard.example.org:8443"])
    #expect(
      configuration.server
        == Configuration.Server(socket: "/tmp/s.sock", mode: 0o600, limits: limits, state: "/var/lib/else"))
    #expect(configuration.log.level == .debug)
  }

  @Test func everyKeyOfAStreamIsRead() throws {
    let configuration = try parse(
      """
      [streams."a/b.c_d-1"]
      description = "All of it"
      type = "text/plain; charset=utf-8"
      timer = { every = "1h", leeway = "10s", times = 7 }
      validate = "no"
      jq = ".[]"
      distinct = ".id"
      throttle = "500ms"
      replay = 5
      buffer = { events = 16, bytes = "4KiB", age = "1d" }
      start = "first"
      linger = "0s"
      expect_every = "90s"
      on_lag = "fail"
      overflow = "block"
      block_timeout = "2m"
      block_pace = "5s"
      retry = { first = "20ms", max = "2s" }
      keep = "disk"
      read = ["*", "user:root", "group:root", "uid:1000", "gid:4294967294"]
      """)
    var stream = Configuration.Stream(
      name: "a/b.c_d-1", source: .timer(.init(every: .seconds(3600), leeway: .seconds(10), times: 7)))
    stream.description = "All of it"
    stream.type = "text/plain; charset=utf-8"
    stream.jq = ".[]"
    stream.distinct = .by(".id")
    stream.throttle = .milliseconds(500)
    stream.replay = 5
    stream.buffer = .init(events: 16, bytes: 4096, age: .seconds(86400))
    stream.start = .first
    stream.linger = .zero
    stream.expectEvery = .seconds(90)
    stream.onLag = .fail
    stream.overflow = .block
    stream.blockTimeout = .seconds(120)
    stream.blockPace = .seconds(5)
    stream.retry = .init(first: .milliseconds(20), max: .seconds(2))
    stream.keep = .disk
    stream.read = [.anyone, .user(0), .group(0), .user(1000), .group(4_294_967_294)]
    #expect(configuration.streams == [stream])
  }

  @Test func aStreamIsMappedIfItsConfigurationSaysSo() throws {
    for (text, isMapped) in [("", false), ("map = false\nkeep = \"disk\"", false), ("map = true\nkeep = \"no\"", true)]
    {
      let stream = try parse("[streams.s]\npublish = true\n\(text)\n").streams[0]
      #expect(stream.map == isMapped && StreamConfiguration(stream).isMapped == isMapped)
    }
  }

  @Test func onlyStreamsWithATypeOfJSONAreValidated() throws {
    func text(_ type: String) -> String { "[streams.s]\npublish = true\ntype = \"\(type)\"\nvalidate = \"json\"\n" }
    #expect(try parse(text("application/json")).streams[0].validate == .json)
    #expect(try parse(text("application/geo+json; a=b")).streams[0].validate == .json)
    #expect(
      errors(text("text/plain")) == [
        "test.toml:4: streams.s.validate: expected a type of JSON with validate = \"json\", such as \"application/json\""
      ])
  }

  @Test func blockTimeoutHasADefaultAndCanBeNever() throws {
    let text = "[streams.s]\ntimer = { every = \"1s\" }\noverflow = \"block\"\n"
    let stream = try #require(try parse(text).streams.first)
    #expect(stream.blockTimeout == .seconds(60) && stream.blockPace == .seconds(1))
    #expect(try parse(text + "block_timeout = \"never\"").streams.first?.blockTimeout == .some(nil))
  }

  @Test func everyKeyOfAnHTTPSourceIsRead() throws {
    let folder = try TemporaryFolder(["token": "s3cret\n", "key": "k3y"])
    let configuration = try parse(
      """
      [streams.q.http]
      url = "https://example.org:8443/a?b=c#d"
      every = "30s"
      timeout = "10s"
      max_body = "100B"
      headers = { Accept = "application/json", X-Key = { credential = "key" } }
      query = { apikey = { credential = "key" }, symbol = "EUR" }
      bearer = { credential = "token" }
      unix_socket = "/run/up.sock"
      """, credentials: folder.path)
    var http = Configuration.HTTP(
      url: "https://example.org:8443/a?b=c#d", fetching: .poll(every: .seconds(30)))
    http.timeout = .seconds(10)
    http.maxBodyBytes = 100
    http.headers = [
      .init(name: "Accept", value: .plain("application/json")),
      .init(name: "X-Key", value: .secret(Secret(name: "key", content: "k3y"))),
    ]
    http.query = [
      .init(name: "apikey", value: .secret(Secret(name: "key", content: "k3y"))),
      .init(name: "symbol", value: .plain("EUR")),
    ]
    http.authorization = .bearer(Secret(name: "token", content: "s3cret"))
    http.unixSocket = "/run/up.sock"
    #expect(configuration.streams.map(\.source) == [.http(http)])
  }

  @Test func everyKeyOfAProgramIsRead() throws {
    let folder = try TemporaryFolder(["token": "s3cret\n"])
    let configuration = try parse(
      """
      [streams.q.exec]
      command = ["/usr/bin/sensor", "--name", "a b", ""]
      environment = { TOKEN = { credential = "token" }, _LANG2 = "a=b\\nc" }
      max_line = "64KiB"
      [streams.r]
      exec = { command = ["sensor"] }
      """, credentials: folder.path)
    var exec = Configuration.Exec(command: ["/usr/bin/sensor", "--name", "a b", ""])
    exec.environment = [
      .init(name: "TOKEN", value: .secret(Secret(name: "token", content: "s3cret"))),
      .init(name: "_LANG2", value: .plain("a=b\nc")),
    ]
    exec.maxLineBytes = 65536
    #expect(configuration.streams.map(\.source) == [.exec(exec), .exec(.init(command: ["sensor"]))])
  }

  @Test func programsRunByTheClock() throws {
    let configuration = try parse(
      """
      [streams.disk]
      exec = { command = ["df"], every = "5m" }
      [streams.lines]
      exec = { command = ["df"], every = "1h", stream = "lines", timeout = "2m", max_line = "1KiB" }
      buffer.bytes = "1MiB"
      [streams.small]
      exec = { command = ["df"], every = "5m", max_body = "64KiB" }
      """)
    var disk = Configuration.Exec(command: ["df"])
    (disk.every, disk.hasLines) = (.seconds(300), false)
    var lines = Configuration.Exec(command: ["df"], maxLineBytes: 1024)
    (lines.every, lines.timeout) = (.seconds(3600), .seconds(120))
    var small = disk
    small.maxBodyBytes = 64 << 10
    #expect(configuration.streams.map(\.source) == [.exec(disk), .exec(lines), .exec(small)])
    #expect(configuration.streams.map(\.source.section.fleetKind) == [.poll, .continuous, .poll])
    // Such an output is an event as a whole, so it has to fit into the log.
    #expect(configuration.streams[0].maxPageBytes(nil) < 8 << 20 && configuration.streams[0].sizeOverBuffer == nil)
    #expect(Configuration.Exec(command: ["sensor"]).maxLineBytes == nil)
  }

  @Test func streamsAreInTheOrderOfTheFile() throws {
    let timer = "timer = { every = \"1s\" }"
    let configuration = try parse("[streams.z]\n\(timer)\n[streams.a]\n\(timer)\n[streams.m]\n\(timer)")
    #expect(configuration.streams.map(\.name) == ["z", "a", "m"])
  }

  @Test(arguments: [
    ("1ms", 1), ("500ms", 500), ("10s", 10_000), ("5m", 300_000), ("1h", 3_600_000), ("365d", 31_536_000_000),
  ])
  func durationsHaveFiveUnits(text: String, milliseconds: Int) throws {
    let configuration = try parse("[streams.c]\ntimer = { every = \"\(text)\" }")
    #expect(configuration.streams.first?.source == .timer(.init(every: .milliseconds(milliseconds))))
  }

  @Test(arguments: [("4096B", 4096), ("4KiB", 4096), ("2MiB", 2_097_152), ("64GiB", 68_719_476_736)])
  func sizesHaveFourUnits(text: String, bytes: Int) throws {
    let configuration = try parse("[streams.c]\ntimer = { every = \"1s\" }\nbuffer = { bytes = \"\(text)\" }")
    #expect(configuration.streams.first?.buffer.bytes == bytes)
  }

  @Test func levelsHaveThePrioritiesOfSyslog() throws {
    for (name, priority) in [("emergency", UInt8(0)), ("info", 6), ("debug", 7)] {
      #expect(try parse("[log]\nlevel = \"\(name)\"").log.level.rawValue == priority)
    }
  }

  @Test(arguments: [
    "http://h", "HTTPS://h/", "http://h:1", "http://[::1]/x", "https://[fe80::1]:443", "http://10.0.0.1?q=a@b",
  ])
  func validURLsAreAccepted(url: String) throws {
    try UpstreamURL.check(url)
  }

  @Test(arguments: [
    "", "h", "ftp://h", "http:/h", "http://", "http:///p", "http://:80", "http://h:", "http://h:0", "http://h:65536",
    "http://h:+1", "http://h:1x", "http://[::1", "http://[]", "http://[::1]x", "http://[h]", "http://a b", "http://é",
    "http://h\\x", "file:///etc/passwd", "http://h/\r\nX: y",
  ])
  func invalidURLsAreRefused(url: String) {
    #expect(throws: UpstreamURL.Fault.noURL) { try UpstreamURL.check(url) }
  }
}
