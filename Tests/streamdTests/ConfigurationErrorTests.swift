import Testing

@testable import streamd

/// The errors in `text`; none if it is valid.
func errors(_ text: String, credentials: String? = nil, checksPrograms: Bool = false) -> [String] {
  do {
    _ = try parse(text, credentials: credentials, checksPrograms: checksPrograms)
    return []
  } catch {
    return error.sentences
  }
}

/// The errors in a stream `s` with a timer and the line `text` after it, which is line 3.
func errors(inStream text: String) -> [String] {
  errors("[streams.s]\ntimer = { every = \"1s\" }\n\(text)")
}

struct ConfigurationErrorTests {
  @Test func allErrorsAreReportedInTheOrderOfTheFile() {
    let text = """
      [streams.quotes]
      http = { every = 5, url = "ftp://x", tiemout = "1s" }
      replay = "ten"

      [server]
      mode = "rw"
      [streams.none]
      """
    #expect(
      errors(text) == [
        #"test.toml:2: streams.quotes.http.url: expected a URL such as "https://example.org/", got "ftp://x""#,
        #"test.toml:2: streams.quotes.http.every: expected a duration such as "30s", got 5"#,
        #"test.toml:2: streams.quotes.http.tiemout: unknown key; did you mean "timeout"?"#,
        #"test.toml:3: streams.quotes.replay: expected a whole number from 0 to 16777216, or "all", got "ten""#,
        #"test.toml:6: server.mode: expected permissions in octal such as "0660", got "rw""#,
        #"test.toml:7: streams.none: expected one source (timer, http, websocket, socket, serial, exec, streamd, journal, of or publish), got none"#,
      ])
  }

  @Test(arguments: [
    (
      "[streams.s]\n[streams.s.http]\nurl = \"http://h/\"\nevery = \"1s\"\njq = \".a\"", 5, "streams.s.http.jq",
      "jq belongs in [streams.s]"
    ),
    ("[streams.s]\nhttp.stream = \"sse\"\nurl = \"http://h/\"", 3, "streams.s.url", "url belongs in [streams.s.http]"),
    ("[streams.s]\ntimer.every = \"1s\"\nage = \"1m\"", 3, "streams.s.age", "age belongs in [streams.s.buffer]"),
    (
      "[streams.\"a/b\".buffer]\nreplay = 1\n[streams.\"a/b\"]\npublish = true", 2, "streams.\"a/b\".buffer.replay",
      "replay belongs in [streams.\"a/b\"]"
    ),
    (
      "[streams.s]\nevery = \"1s\"", 2, "streams.s.every",
      "every belongs in [streams.s.exec] or in [streams.s.http] or in [streams.s.timer]"
    ),
    ("[server]\nmax_per_host = 2", 2, "server.max_per_host", "max_per_host belongs in [http]"),
    ("[log]\nserver = 1", 2, "log.server", "server belongs at the top of the file"),
    ("keep = \"disk\"", 1, "keep", "keep belongs in [streams.NAME]"),
    ("[http]\nshards = 2", 2, "http.shards", "shards belongs in [cluster]"),
    (
      "[cluster]\nshare = \"fleet\"\nname = \"a\"\nnats = [\"tls://a\"]", 2, "cluster.share",
      "share belongs in [streams.NAME]"
    ),
  ]) func aKeyInTheWrongTableIsReportedWithItsTable(text: String, line: Int, key: String, sentence: String) {
    #expect(errors(text).contains("test.toml:\(line): \(key): unknown key; \(sentence)"))
  }

  @Test func aSyntaxErrorHasLineAndColumn() throws {
    let sentences = errors("[server]\nworkers = = 3")
    #expect(sentences.count == 1)
    #expect(try #require(sentences.first).hasPrefix("test.toml:2:11: "))
  }

  /// toml++ would give a part of a quoted name twice.
  @Test func twoTablesOfOneNameAreAnError() throws {
    for (name, shown) in [("a", " 'streams.a'"), ("\"home/door\"", "")] {
      let table = "[streams.\(name)]\n"
      let sentence = try #require(errors("\(table)publish = true\n\(table)").first)
      #expect(sentence.hasPrefix("test.toml:3:1: ") && sentence.hasSuffix("cannot redefine existing table\(shown)"))
    }
  }

  @Test func deeplyNestedKeysAreRefused() {
    let deep = String(repeating: "a.", count: 257) + "a = 1"
    #expect(errors("\n" + deep) == ["test.toml:2:1: this line has more than 256 dots"])
    let nested = String(repeating: "a.", count: 40) + "a = 1"
    #expect(errors(nested) == ["test.toml:1: tables and arrays nest more than 32 deep"])
  }

  @Test func dotsInStringsAndCommentsAreNoKeys() {
    let dots = String(repeating: ".", count: 300)
    for text in ["# \(dots)", "[log] # \(dots)", "x = \"\(dots)\"", "x = '\(dots)'", "x = '''\n\(dots)'''"] {
      #expect(!errors(text).joined().contains("dots"))
    }
  }

  @Test(arguments: [
    #"x = ["a\"b", "#, "x = [\"\"\"\na\"\"\"\"\", ", #"x = ['a\', "#, "x = ['''b''''', ", "x = [\"\", ",
    "x = \"a\ny = [", "x = [\"\"\"\\\"\"\"\", ",
  ]) func dotsAfterAStringCount(text: String) {
    let key = "a" + String(repeating: ".a", count: 300)
    #expect(errors(text + "{ \(key) = 1 }]").joined().contains("256 dots"))
  }

  @Test func keyIsAPathOf512Steps() {
    let path = String(repeating: ".a", count: 512)
    #expect(errors("[streams.s]\npublish = true\nkey = \"\(path)\"") == [])
  }

  @Test func invalidUTF8IsRefused() throws {
    let thrown = #expect(throws: ConfigurationErrors.self) {
      try ConfigurationSource.parse(
        [ConfigurationText(path: "test.toml", bytes: [0x61, 0xff, 0xfe])], credentialsDirectory: nil)
    }
    #expect(try #require(thrown).sentences.count == 1)
  }

  /// What fuzzing found: input that toml++ itself aborts on or runs into undefined behaviour with.
  @Test(arguments: [
    ("a = 1\n[&\nb = 2", "test.toml:2: this is not TOML; a header is written [name]"),
    ("[[[a]]]", "test.toml:1: this is not TOML; a header is written [name]"),
    ("[é]", "test.toml:1: this is not TOML; a header is written [name]"),
  ])
  func tableHeadersThatBreakTheParserAreErrors(text: String, sentence: String) {
    #expect(errors(text) == [sentence])
  }

  @Test func aNonASCIILetterOutsideStringsIsAnError() {
    for letter in ["\u{a7}", "\u{fd3f}", "\u{2fff}"] { #expect(errors("a\(letter)= 1").count == 1) }
  }

  @Test func anErrorIsReportedOnce() {
    #expect(errors(inStream: "replay = 100000\nbuffer = { events = \"x\" }").count == 1)
    #expect(errors(inStream: "retry = { first = \"10m\", max = 5 }").count == 1)
  }

  @Test func anUnreadableFileIsReportedWithTheReason() {
    #expect(
      throws: ConfigurationErrors(
        file: "/nonexistent/x.toml", [.init(text: "cannot be read: No such file or directory")])
    ) { try ConfigurationSource.load(path: "/nonexistent/x.toml") }
    #expect(throws: ConfigurationErrors(file: "/", [.init(text: "cannot be read: Is a directory")])) {
      try ConfigurationSource.load(path: "/")
    }
    #expect(
      throws: ConfigurationErrors(
        file: "/dev/zero", [.init(text: "cannot be read: it is not a regular file")])
    ) { try ConfigurationSource.load(path: "/dev/zero") }
  }

  // MARK: - Keys

  @Test(arguments: [
    ("serve = 1", #"test.toml:1: serve: unknown key; did you mean "server"?"#),
    ("x = 1", "test.toml:1: x: unknown key; expected one of: cluster, http, log, server, streams, tokens"),
    ("[stream.a]", #"test.toml:1: stream: unknown key; did you mean "streams"?"#),
    ("[log]\nlevle = 1", #"test.toml:2: log.levle: unknown key; did you mean "level"?"#),
    ("[log]\n\"a b\" = 1", #"test.toml:2: log."a b": unknown key; expected one of: level"#),
    ("server = 1", "test.toml:1: server: expected a table, got a number"),
    ("streams = []", "test.toml:1: streams: expected a table, got an empty array"),
  ])
  func unknownKeysAndWrongTablesAreReported(text: String, sentence: String) {
    #expect(errors(text) == [sentence])
  }

  @Test(arguments: [
    (
      "[streams.s.http]\nurl = \"http://h/\"\nevry = \"1s\"",
      #"3: streams.s.http.evry: unknown key; did you mean "every"?"#
    ),
    ("[streams.s]\ntimer = { evry = \"1s\" }", #"2: streams.s.timer.evry: unknown key; did you mean "every"?"#),
    ("[streams.s.htpp]\nurl = \"http://h/\"", #"1: streams.s.htpp: unknown key; did you mean "http"?"#),
    (
      "[streams.s.http]\nurl = \"http://h/\"\nstrem = \"lines\"\nidle_timeout = \"1s\"",
      #"3: streams.s.http.strem: unknown key; did you mean "stream"?"#
    ),
    ("[streams.s]\nexec.comand = [\"date\"]", #"2: streams.s.exec.comand: unknown key; did you mean "command"?"#),
    (
      "[cluster]\nnmae = \"a\"\nnats = [\"tls://a\"]", #"2: cluster.nmae: unknown key; did you mean "name"?"#
    ),
  ])
  func aMisspelledKeyIsOneError(text: String, sentence: String) {
    #expect(errors(text) == ["test.toml:\(sentence)"])
  }

  @Test func aMisspelledKeyHidesNoErrorThatItDoesNotExplain() {
    #expect(
      errors("[streams.s.http]\ntimeuot = \"1s\"\nurl = \"http://h/\"") == [
        "test.toml:1: streams.s.http: expected every, such as every = \"30s\", or stream, got neither",
        #"test.toml:2: streams.s.http.timeuot: unknown key; did you mean "timeout"?"#,
      ])
  }

  @Test func anUnquotedNameWithADotIsExplained() {
    #expect(
      errors("[streams.a]\ntimer = { every = \"1s\" }\n[streams.a.kitchen]\ntimer = { every = \"1s\" }") == [
        #"test.toml:3: streams.a.kitchen: unknown key; write a stream named a.kitchen as [streams."a.kitchen"]"#
      ])
  }

  @Test(arguments: [#""$stats""#, #""a b""#, #""é""#, #""""#, "\"\(String(repeating: "n", count: 256))\""])
  func invalidNamesAreRefused(name: String) throws {
    let sentences = errors("[streams.\(name)]\ntimer = { every = \"1s\" }")
    #expect(sentences.count == 1)
    let what = #"expected a name of letters, digits, ".", "_", "-" and "/", at most 255 bytes"#
    #expect(try #require(sentences.first).hasSuffix(what))
  }

  @Test(arguments: ["..", "a/../b", "./a", "a/."]) func namesThatNoURLCanHaveAreRefused(name: String) throws {
    let sentences = errors("[streams.\"\(name)\"]\ntimer = { every = \"1s\" }")
    #expect(try #require(sentences.first).hasSuffix(#"without the segments "." and "..", which no URL can have"#))
  }

  @Test func canonicallyEqualKeysAreErrors() {
    // Two keys for TOML, one for Swift: composed and decomposed.
    #expect(!errors("\"\u{e9}\" = 1\n\"e\u{301}\" = 2").isEmpty)
  }

  // MARK: - Values

  @Test(arguments: [
    ("socket = \"x\"", #"server.socket: expected an absolute path of at most 107 bytes, got "x""#),
    ("socket = 7", "server.socket: expected an absolute path of at most 107 bytes, got 7"),
    ("socket = \"/a\\u0000b\"", #"server.socket: expected an absolute path of at most 107 bytes, got "/a?b""#),
    ("mode = \"0888\"", #"server.mode: expected permissions in octal such as "0660", got "0888""#),
    ("mode = \"+660\"", #"server.mode: expected permissions in octal such as "0660", got "+660""#),
    ("mode = \"1777\"", #"server.mode: expected permissions in octal such as "0660", got "1777""#),
    ("mode = 0o660", #"server.mode: expected permissions in octal such as "0660", got 432"#),
    ("workers = -1", "server.workers: expected a whole number from 0 to 1024, got -1"),
    ("workers = 1.5", "server.workers: expected a whole number from 0 to 1024, got 1.5"),
    ("workers = true", "server.workers: expected a whole number from 0 to 1024, got true"),
    ("max_connections = 0", "server.max_connections: expected a whole number from 1 to 1048576, got 0"),
    (
      "max_connections = 1979-05-27",
      "server.max_connections: expected a whole number from 1 to 1048576, got a date or time"
    ),
    (
      "max_requests_per_connection = 0",
      "server.max_requests_per_connection: expected a whole number from 1 to 1048576, got 0"
    ),
    ("max_request = \"16MiB\"", #"server.max_request: expected a size from 1KiB to 16777215B, got "16MiB""#),
    ("max_request = \"16\"", #"server.max_request: expected a size such as "64KiB", got "16""#),
    ("max_request = \"16 KiB\"", #"server.max_request: expected a size such as "64KiB", got "16 KiB""#),
    (
      "max_request = \"9223372036854775807GiB\"",
      #"server.max_request: expected a size from 1KiB to 16777215B, got "9223372036854775807GiB""#
    ),
    ("max_request = {}", #"server.max_request: expected a size such as "64KiB", got a table"#),
    ("state = \"lib\"", #"server.state: expected an absolute path of at most 3072 bytes, got "lib""#),
    ("handshake_timeout = \"0s\"", #"server.handshake_timeout: expected a duration from 1ms to 365d, got "0s""#),
    (
      "hosts = [\"Example.org\"]",
      #"server.hosts: expected a host name in small letters, without a port, such as "stream.example.org", got "Example.org""#
    ),
    (
      "hosts = [\"example.org:80\"]",
      #"server.hosts: expected a host name in small letters, without a port, such as "stream.example.org", got "example.org:80""#
    ),
    (
      "listen = [\"localhost:7878\"]",
      #"server.listen: expected an address and a port such as "127.0.0.1:7878" or "[::1]:7878", got "localhost:7878""#
    ),
    (
      "listen = [\"[0:0::1]:7878\", \"[::1]:7878\"]",
      #"server.listen: expected each address once, got "[::1]:7878" twice"#
    ),
    (
      "listen = [\"127.0.0.1:1\", \"0.0.0.0:7878\"]",
      #"server.listen: expected hosts, the names of this server, with "0.0.0.0:7878", which other machines reach"#
    ),
    ("hosts = 1", "server.hosts: expected a list, got 1"),
    (
      "origins = [\"https://example.org/\"]",
      #"server.origins: expected an origin such as "https://dashboard.example.org", without a path, got "https://example.org/""#
    ),
    (
      "origins = [\"example.org\"]",
      #"server.origins: expected an origin such as "https://dashboard.example.org", without a path, got "example.org""#
    ),
    ("handshake_timeout = \"-1s\"", #"server.handshake_timeout: expected a duration such as "30s", got "-1s""#),
    ("handshake_timeout = \"1.5s\"", #"server.handshake_timeout: expected a duration such as "30s", got "1.5s""#),
    ("handshake_timeout = \"s\"", #"server.handshake_timeout: expected a duration such as "30s", got "s""#),
    ("handshake_timeout = \"366d\"", #"server.handshake_timeout: expected a duration from 1ms to 365d, got "366d""#),
    (
      "handshake_timeout = \"99999999999999999999d\"",
      #"server.handshake_timeout: expected a duration from 1ms to 365d, got "99999999999999999999d""#
    ),
  ])
  func valuesOfTheServerAreChecked(line: String, sentence: String) {
    #expect(errors("[server]\n\(line)") == ["test.toml:2: \(sentence)"])
  }

  @Test func aLevelIsOneOfSyslog() {
    let levels =
      #""emergency", "alert", "critical", "error", "warning", "notice", "info" or "debug""#
    #expect(errors("[log]\nlevel = \"loud\"") == ["test.toml:2: log.level: expected \(levels), got \"loud\""])
  }

  @Test(arguments: [
    ("description = 1", "description: expected a text of at most 1024 bytes, got 1"),
    ("type = \"json\"", #"type: expected a media type such as "application/json", got "json""#),
    ("replay = -1", "replay: expected a whole number from 0 to 16777216, or \"all\", got -1"),
    ("replay = 65537", "replay: expected at most buffer.events, which is 65536, got 65537"),
    ("buffer = { events = 0 }", "buffer.events: expected a whole number from 1 to 16777216, got 0"),
    ("buffer = { bytes = \"1B\" }", #"buffer.bytes: expected a size from 4KiB to 64GiB, got "1B""#),
    ("buffer = { age = \"0s\" }", #"buffer.age: expected a duration from 1ms to 365d, got "0s""#),
    ("buffer = 5", "buffer: expected a table, got a number"),
    ("start = \"now\"", #"start: expected "subscribed", "first" or "always", got "now""#),
    ("linger = 30", #"linger: expected a duration such as "30s", got 30"#),
    ("linger = \"366d\"", #"linger: expected a duration from 0s to 365d, got "366d""#),
    ("expect_every = \"0s\"", #"expect_every: expected a duration from 1ms to 365d, got "0s""#),
    ("on_lag = \"block\"", #"on_lag: expected "skip", "latest" or "fail", got "block""#),
    ("retry = { first = \"10m\" }", #"retry.first: expected at most max, which is 5m, got "10m""#),
    ("retry = { first = \"2s\", max = \"1s\" }", #"retry.first: expected at most max, got "2s""#),
    ("retry = { max = \"10ms\" }", #"retry.max: expected at least first, which is 1s, got "10ms""#),
    ("block_timeout = \"1s\"", #"block_timeout: expected block_timeout only with overflow = "block""#),
    ("block_pace = \"1s\"", #"block_pace: expected block_pace only with overflow = "block""#),
    (
      "block_timeout = \"forever\"\noverflow = \"block\"",
      #"block_timeout: expected a duration such as "30s", or "never", got "forever""#
    ),
    ("overflow = \"grow\"", #"overflow: expected "drop" or "block", got "grow""#),
    ("map = 1", "map: expected true or false, got 1"),
    (
      "map = true\nkeep = \"disk\"",
      #"map: expected keep = "memory" or "no" with map = true: clients cannot map a file"#
    ),
    (
      "map = true\noverflow = \"block\"",
      #"map: expected overflow = "drop" with map = true: no stream waits for those who read its memory"#
    ),
    ("keep = \"yes\"", #"keep: expected "no", "memory" or "disk", got "yes""#),
    ("read = \"*\"", #"read: expected a list, got "*""#),
    ("read = [1]", #"read: expected "*", "user:NAME", "group:NAME", "uid:N" or "gid:N", got 1"#),
    ("read = [\"root\"]", #"read: expected "*", "user:NAME", "group:NAME", "uid:N" or "gid:N", got "root""#),
    ("read = [\"user:\"]", #"read: expected "*", "user:NAME", "group:NAME", "uid:N" or "gid:N", got "user:""#),
    (
      "read = [\"uid:4294967295\"]",
      #"read: expected "*", "user:NAME", "group:NAME", "uid:N" or "gid:N", got "uid:4294967295""#
    ),
    ("read = [\"user:no-such-user\"]", #"read: expected a user that exists, got "user:no-such-user""#),
    ("read = [\"group:no-such-group\"]", #"read: expected a group that exists, got "group:no-such-group""#),
  ])
  func valuesOfAStreamAreChecked(line: String, sentence: String) {
    #expect(errors(inStream: line) == ["test.toml:3: streams.s.\(sentence)"])
  }

  @Test func aRuleInAListHasItsOwnLine() {
    #expect(
      errors(inStream: "read = [\n\"*\",\n\"x\",\n\"y\"]") == [
        #"test.toml:5: streams.s.read: expected "*", "user:NAME", "group:NAME", "uid:N" or "gid:N", got "x""#,
        #"test.toml:6: streams.s.read: expected "*", "user:NAME", "group:NAME", "uid:N" or "gid:N", got "y""#,
      ])
  }

  // MARK: - Sources

  @Test func aStreamHasExactlyOneSource() {
    #expect(
      errors(inStream: "http = { url = \"http://h\", every = \"1s\" }") == [
        "test.toml:1: streams.s: expected one source, got timer and http"
      ])
  }

  @Test(arguments: [
    ("{}", #"timer: expected every, such as every = "30s", got none"#),
    ("{ every = \"0s\" }", #"timer.every: expected a duration from 1ms to 365d, got "0s""#),
    ("{ every = \"1s\", leeway = \"1s\" }", #"timer.leeway: expected less than every, got "1s""#),
    (
      "{ every = \"1s\", times = 0 }",
      "timer.times: expected a whole number from 1 to 9223372036854775807, got 0"
    ),
    ("{ every = \"1s\", at = 1 }", "timer.at: unknown key; expected one of: every, leeway, times"),
    ("\"1s\"", #"timer: expected a table, such as timer = { every = "1s" }, got a string"#),
  ])
  func timersAreChecked(timer: String, sentence: String) {
    #expect(errors("[streams.s]\ntimer = \(timer)") == ["test.toml:2: streams.s.\(sentence)"])
  }

  @Test(arguments: [
    ("every = \"1s\"", #": expected url, such as url = "https://example.org/", got none"#),
    ("url = \"http://h\"", #": expected every, such as every = "30s", or stream, got neither"#),
    ("url = \"http://h\", stream = \"sse\", every = \"1s\"", ": expected every or stream, got both"),
    (
      "url = \"http://${HOST}/\", every = \"1s\"",
      ".url: expected a URL without ${…}: no variable is replaced in it"
    ),
    (
      "url = \"http://h/?key=${KEY}\", every = \"1s\"",
      ".url: expected a URL without ${…}: no variable is replaced in it"
    ),
    (
      "url = \"http://$HOST/\", every = \"1s\"",
      #".url: expected a URL such as "https://example.org/", got "http://$HOST/""#
    ),
    (
      "url = \"http://%zz/\", every = \"1s\"",
      #".url: expected a URL such as "https://example.org/", got a string"#
    ),
    ("url = \"http://h\", stream = \"xml\"", #".stream: expected "lines" or "sse", got "xml""#),
    (
      "url = \"http://h\", every = \"1s\", idle_timeout = \"1m\"",
      ".idle_timeout: expected idle_timeout only with stream"
    ),
    (
      "url = \"http://h\", stream = \"sse\", idle_timeout = 5",
      #".idle_timeout: expected a duration such as "30s", got 5"#
    ),
    ("url = \"http://h\", every = \"1s\", sse = \"data\"", #".sse: expected sse only with stream = "sse""#),
    ("url = \"http://h\", stream = \"lines\", sse = \"data\"", #".sse: expected sse only with stream = "sse""#),
    (
      "url = \"http://h\", stream = \"sse\", sse = \"names\"",
      #".sse: expected "data" or "envelope", got "names""#
    ),
    ("url = 5, every = \"1s\"", #".url: expected a URL such as "https://example.org/", got 5"#),
    ("url = \"http://h\", every = \"1s\", timeout = \"x\"", #".timeout: expected a duration such as "30s", got "x""#),
    (
      "url = \"http://h\", every = \"1s\", max_body = \"2GiB\"",
      #".max_body: expected a size from 1B to 1GiB, got "2GiB""#
    ),
    (
      "url = \"http://h\", every = \"1s\", unix_socket = \"x\"",
      #".unix_socket: expected an absolute path of at most 107 bytes, got "x""#
    ),
    (
      "url = \"http://h\", every = \"1s\", headers = { \"a b\" = \"c\" }",
      #".headers."…": expected the name of a header"#
    ),
    (
      "url = \"http://h\", every = \"1s\", headers = { a = 5 }",
      #".headers.a: expected a string or { credential = "name" }, got a number"#
    ),
  ])
  func httpSourcesAreChecked(http: String, sentence: String) {
    #expect(errors("[streams.s]\nhttp = { \(http) }") == ["test.toml:2: streams.s.http\(sentence)"])
  }

  @Test(
    arguments: [
      (["/nonexistent/sensor"], #"got "/nonexistent/sensor": No such file or directory"#),
      (["/etc"], #"got "/etc", which is not a regular file"#),
      (["/etc/passwd"], #"got "/etc/passwd", which is not executable"#),
      (["streamd-test-no-such-program", "x"], #"got "streamd-test-no-such-program", which is not in PATH"#),
      (["sh", "-c", "x"], nil), (["/bin/sh"], nil),
    ] as [([String], String?)])
  func aCheckSearchesPrograms(command: [String], sentence: String?) {
    let text = "[streams.s]\nexec = { command = \(command) }"
    #expect(errors(text) == [])
    let expected = sentence.map {
      ["test.toml:2: streams.s.exec.command: expected a program that can be run, \($0)"]
    }
    #expect(errors(text, checksPrograms: true) == expected ?? [])
  }

  @Test(arguments: [
    ("http = { url = \"http://h\", every = \"1s\", max_body = \"1MiB\" }", "http: expected http.max_body"),
    ("http = { url = \"http://h\", stream = \"sse\", max_body = \"1MiB\" }", "http: expected http.max_body"),
    ("exec = { command = [\"a\"], max_line = \"1MiB\" }", "exec: expected exec.max_line"),
    ("exec = { command = [\"a\"], every = \"1s\", max_body = \"1MiB\" }", "exec: expected exec.max_body"),
  ])
  func anEventLimitOverTheBufferIsAnError(source: String, place: String) {
    let stream = "[streams.s]\n\(source)\nbuffer.bytes = \"64KiB\"\n"
    #expect(
      errors(stream) == [
        "test.toml:2: streams.s.\(place) of at most buffer.bytes, which is 65536 bytes, got 1048576 bytes: "
          + "larger events are dropped"
      ])
    #expect(errors(stream + "jq = \".[]\"") == [])
  }

  @Test func theParsersMessagesHaveNoControlCharacters() {
    let messages = errors("a = 1 \u{85}\n")
    #expect(messages.count == 1 && messages.allSatisfy { $0.hasSuffix(#"saw '\u{0085}'"#) }, "\(messages)")
  }

  @Test(arguments: [
    ("exec = {}", #": expected command, a list such as ["sensor", "--json"] (no shell is used), got none"#),
    (
      "exec = { command = \"sensor --json\" }",
      #".command: expected a list such as ["sensor", "--json"] (no shell is used), got a string"#
    ),
    ("exec = { command = [] }", ".command: expected a list of one or more, got an empty array"),
    ("exec = { command = 5 }", ".command: expected a list of one or more, got a number"),
    ("exec = { command = [\"a\", 5] }", ".command: expected a string without NUL, got a number"),
    ("exec = { command = [\"a\\u0000b\"] }", #".command: expected a string without NUL, got a string"#),
    ("exec = { command = [\"\", \"b\"] }", #".command: expected the name of a program first, got """#),
    (
      "exec = { command = [\"a\"], max_line = \"2GiB\" }",
      #".max_line: expected a size from 1B to 1GiB, got "2GiB""#
    ),
    (
      "exec = { command = [\"a\"], environment = { 1K = \"v\" } }",
      #".environment.1K: expected a name of letters, digits and "_", not a digit first"#
    ),
    (
      "exec = { command = [\"a\"], environment = { K = 5 } }",
      #".environment.K: expected a string or { credential = "name" }, got a number"#
    ),
    (
      "exec = { command = [\"a\"], environment = { K = \"s3cret\\u0000\" } }",
      ".environment.K: expected a string without NUL, got a string"
    ),
    (
      "exec = { command = [\"a\"], shell = true }",
      ".shell: unknown key; expected one of: command, end, environment, every, max_body, max_line, split, stream, timeout"
    ),
    ("exec = \"sensor\"", #": expected a table, such as exec = { command = ["PROGRAM", "ARGUMENT"] }, got a string"#),
    ("exec = { command = [\"a\"], stream = \"lines\" }", ".stream: expected stream only with every"),
    ("exec = { command = [\"a\"], timeout = \"1s\" }", ".timeout: expected timeout only with every"),
    ("exec = { command = [\"a\"], max_body = \"1MiB\" }", ".max_body: expected max_body only with every"),
    (
      "exec = { command = [\"a\"], every = \"1s\", stream = \"sse\" }", #".stream: expected "lines", got "sse""#
    ),
    (
      "exec = { command = [\"a\"], every = \"1s\", max_line = \"1KiB\" }",
      #".max_line: expected max_line only with stream = "lines"; max_body limits the whole output"#
    ),
    (
      "exec = { command = [\"a\"], every = \"1s\", stream = \"lines\", max_body = \"1KiB\" }",
      #".max_body: expected max_line in place of max_body with stream = "lines""#
    ),
    (
      "exec = { command = [\"a\"], every = \"0s\" }", #".every: expected a duration from 1ms to 365d, got "0s""#
    ),
  ])
  func programsAreChecked(exec: String, sentence: String) {
    #expect(errors("[streams.s]\n\(exec)") == ["test.toml:2: streams.s.exec\(sentence)"])
  }

  @Test(arguments: [
    ("jq = \".a | nope\"", "jq: not a jq program: nope/0 is not defined"),
    ("jq = \"\"", "jq: expected a jq program such as \".quotes[]\", got \"\""),
    ("jq = true", "jq: expected a jq program such as \".quotes[]\", got true"),
    ("jq = \"\"\"\n.a |\n $b\n\"\"\"", "jq: not a jq program: $b is not defined in line 2"),
    ("distinct = \"nope\"", "distinct: not a jq program: nope/0 is not defined"),
    ("distinct = \"\"", "distinct: expected true, false or a jq path such as \".id\", got \"\""),
    ("distinct = 1", "distinct: expected true, false or a jq path such as \".id\", got 1"),
    ("key = \".a | nope\"", "key: not a jq program: nope/0 is not defined"),
    ("key = \"\"", "key: expected a jq program such as \".symbol\", got \"\""),
    ("tombstone = \".b\"", "tombstone: expected tombstone only with key"),
    ("validate = \"xml\"", "validate: expected \"no\" or \"json\", got \"xml\""),
    ("validate = \"jsn\"", "validate: expected \"no\" or \"json\", got \"jsn\""),
    ("max_keys = 5", "max_keys: expected max_keys only with key"),
    ("throttle = \"0s\"", "throttle: expected a duration from 1ms to 365d, got \"0s\""),
    ("throttle = 5", "throttle: expected a duration such as \"30s\", got 5"),
  ])
  func thePipelineIsChecked(line: String, sentence: String) {
    #expect(errors(inStream: line) == ["test.toml:3: streams.s.\(sentence)"])
  }

  @Test func aSyntaxErrorOfAProgramHasJQsMessage() throws {
    let sentence = try #require(errors(inStream: "jq = \".a[\"").first)
    #expect(sentence.hasPrefix("test.toml:3: streams.s.jq: not a jq program: syntax error, unexpected"))
  }

  @Test(arguments: [
    ("publish = false", "publish: expected true or {}; omit publish if clients do not publish"),
    ("publish = 1", "publish: expected true or {}, got a number"),
    ("publish = { window = 1 }", "publish.window: unknown key; expected none"),
  ])
  func publishIsChecked(line: String, sentence: String) {
    #expect(errors("[streams.s]\n\(line)") == ["test.toml:2: streams.s.\(sentence)"])
  }

  @Test(arguments: [("start", "\"always\""), ("linger", "\"1s\""), ("retry", "{}")])
  func keysOfOtherSourcesAreErrorsWithPublish(key: String, value: String) {
    #expect(
      errors("[streams.s]\npublish = true\n\(key) = \(value)") == [
        "test.toml:3: streams.s.\(key): expected no \(key) with publish: clients may publish at any time"
      ])
  }

  @Test func writeIsAnErrorWithoutPublish() {
    #expect(
      errors(inStream: "write = [\"*\"]") == [
        "test.toml:3: streams.s.write: expected write only with publish: no other source accepts values from clients"
      ])
  }

  @Test func anEmptyListMeansNone() throws {
    let configuration = try parse(
      "[server]\nhosts = []\norigins = []\nlisten = []\n[streams.s]\npublish = {}\nread = []\nwrite = []")
    #expect(configuration.server == Configuration.Server())
    #expect(configuration.streams[0].read == [] && configuration.streams[0].write == [])
  }
}
