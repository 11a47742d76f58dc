import TestSupport
import Testing

@testable import streamd

private let certificate = "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----\n"
private let key = "-----BEGIN PRIVATE KEY-----\nMII\n-----END PRIVATE KEY-----\n"
private let seed = "SUAM\(String(repeating: "A2", count: 27))"
private let publicKey = "UB\(String(repeating: "C7", count: 27))"
private let creds = """
  -----BEGIN NATS USER JWT-----
  eyJ0eXAi
  ------END NATS USER JWT------

  -----BEGIN USER NKEY SEED-----
  \(seed)
  ------END USER NKEY SEED------

  """
private let minimal = "nats = [\"tls://n1:4222\"]\nname = \"prod\"\n"

/// `[cluster]`.
struct ConfigurationClusterTests {
  private let folder: TemporaryFolder

  init() throws {
    folder = try TemporaryFolder([
      "ca.pem": certificate, "client.pem": certificate, "key": key, "both.pem": certificate + key, "word": "s3cret",
      "creds": creds, "seed": seed + "\n", "locked": key.replacing("PRIVATE", with: "ENCRYPTED PRIVATE"),
      "old": key.replacing("MII", with: "Proc-Type: 4,ENCRYPTED\n\nMII"),
    ])
  }

  /// The section with `nats`, `name` and the lines `more`.
  private func cluster(_ more: String = "") throws -> Configuration.Cluster {
    try #require(try parse("[cluster]\n\(minimal)\(more)", credentials: folder.path).cluster)
  }

  /// The errors in the lines `more`, which begin with line 4, after `nats` and `name`.
  private func errors(in more: String) -> [String] {
    errors(of: minimal + more)
  }

  private func errors(of section: String) -> [String] {
    streamdTests.errors("[cluster]\n\(section)", credentials: folder.path)
  }

  @Test func withoutTheSectionThereIsNoCluster() throws {
    #expect(try parse("").cluster == nil)
  }

  @Test func aClusterNeedsOnlyServersAndAName() throws {
    let cluster = try cluster()
    #expect(cluster == Configuration.Cluster(servers: ["tls://n1:4222"], name: "prod"))
    #expect(cluster.shards == 16 && cluster.replicas == 3 && cluster.shardBytes == 1 << 30)
    #expect(cluster.login == nil && cluster.authorities == nil && cluster.identity == nil)
    #expect(
      errors(of: "shards = 4") == [
        #"test.toml:1: cluster: expected nats, such as nats = ["tls://nats.example.org:4222"], got none"#,
        #"test.toml:1: cluster: expected name, such as name = "prod", got none"#,
      ])
  }

  @Test func everyKeyIsRead() throws {
    let cluster = try parse(
      """
      [cluster]
      nats = ["tls://n1.example.org", "tls://[::1]:4223"]
      name = "prod_2-B"
      shards = 256
      replicas = 5
      shard_bytes = "16MiB"
      resume_wait = "0s"
      creds = { credential = "creds" }
      ca_file = "\(folder.path("ca.pem"))"
      client_certificate = "\(folder.path("client.pem"))"
      client_key = { credential = "key" }
      """, credentials: folder.path
    ).cluster
    #expect(
      cluster
        == Configuration.Cluster(
          servers: ["tls://n1.example.org", "tls://[::1]:4223"], name: "prod_2-B", shards: 256, replicas: 5,
          shardBytes: 16 << 20, resumeWait: .zero,
          login: .creds(Secret(name: "creds", content: String(creds.dropLast()))),
          authorities: folder.path("ca.pem"),
          identity: .init(certificate: folder.path("client.pem"), key: folder.path("key"))
        ))
  }

  @Test func oneFileMayHaveTheCertificateAndItsKey() throws {
    let both = folder.path("both.pem")
    #expect(try cluster("client_certificate = \"\(both)\"").identity == .init(certificate: both, key: both))
  }

  @Test func eachLoginIsRead() throws {
    #expect(
      try cluster("nkey = \"\(publicKey)\"\nnkey_seed = { credential = \"seed\" }").login
        == .nkey(publicKey, seed: Secret(name: "seed", content: seed)))
    let word = Secret(name: "word", content: "s3cret")
    #expect(try cluster("token = { credential = \"word\" }").login == .token(word))
    #expect(
      try cluster("user = \"me\"\npassword = { credential = \"word\" }").login
        == .user(.init(user: "me", password: word)))
  }

  @Test func aSecretNeverPrintsItself() throws {
    for login in [
      "creds = { credential = \"creds\" }", "nkey = \"\(publicKey)\"\nnkey_seed = { credential = \"seed\" }",
    ] {
      let cluster = try cluster(login)
      var dumped = ""
      dump(cluster, to: &dumped)
      for text in ["\(cluster)", String(reflecting: cluster), dumped] { #expect(!text.contains(seed)) }
    }
    for (key, name) in [("creds", "word"), ("nkey_seed", "word"), ("nkey_seed", "creds"), ("token", "creds")] {
      let sentences = errors(in: "\(key) = { credential = \"\(name)\" }")
      #expect(sentences.contains { $0.contains("cluster.\(key).credential: ") })
      #expect(!sentences.joined().contains("s3cret") && !sentences.joined().contains(seed))
    }
  }

  @Test(arguments: [
    ("nats = \"tls://n1\"", #"nats: expected a list of one or more, got "tls://n1""#),
    ("nats = []", "nats: expected a list of one or more, got an empty array"),
    (
      "nats = [\"TLS://n1\"]",
      #"nats: expected a URL such as "tls://nats.example.org:4222", without a path, got "TLS://n1""#
    ),
    ("nats = [4222]", #"nats: expected a URL such as "tls://nats.example.org:4222", without a path, got 4222"#),
    (
      "nats = [\"https://n1\"]",
      #"nats: expected a URL such as "tls://nats.example.org:4222", without a path, got "https://n1""#
    ),
    (
      "nats = [\"n1:4222\"]",
      #"nats: expected a URL such as "tls://nats.example.org:4222", without a path, got "n1:4222""#
    ),
    (
      "nats = [\"tls://n1/x\"]",
      #"nats: expected a URL such as "tls://nats.example.org:4222", without a path, got "tls://n1/x""#
    ),
    (
      "nats = [\"tls://n1:0\"]",
      #"nats: expected a URL such as "tls://nats.example.org:4222", without a path, got "tls://n1:0""#
    ),
    (
      "nats = [\"tls://me:s3cret@n1\"]",
      "nats: expected a URL without a user or password (use creds, nkey, token, or user and password), got a string"
    ),
    (
      "nats = [\"tls://${HOST}\"]",
      #"nats: expected a URL without ${…} (no variable is replaced in it), got "tls://${HOST}""#
    ),
    ("nats = [\"tls://a\", \"nats://b\"]", "nats: expected servers of scheme nats or of scheme tls, got both"),
    (
      "nats = [\(String(repeating: "\"tls://a\",", count: 17))]", "nats: expected at most 16 servers, got 17"
    ),
  ])
  func serversAreChecked(line: String, sentence: String) {
    #expect(errors(of: "\(line)\nname = \"prod\"") == ["test.toml:2: cluster.\(sentence)"])
  }

  @Test func sixteenServersAreAccepted() throws {
    let servers = (1...16).map { "nats://n\($0)" }
    #expect(try parse("[cluster]\nname = \"a\"\nnats = \(servers)").cluster?.servers == servers)
  }

  @Test(arguments: ["\"\"", "\"a.b\"", "\"a b\"", "\"a*\"", "\"é\"", "\"\(String(repeating: "n", count: 65))\"", "5"])
  func invalidNamesAreRefused(name: String) throws {
    let sentences = errors(of: "name = \(name)\nnats = [\"tls://n1\"]")
    #expect(sentences.count == 1)
    let start = #"test.toml:2: cluster.name: expected a name of letters, digits, "-" and "_", at most 64 bytes, got "#
    #expect(try #require(sentences.first).hasPrefix(start))
  }

  @Test func aNameHasAtMost64Bytes() throws {
    let name = String(repeating: "n", count: 64)
    #expect(try parse("[cluster]\nname = \"\(name)\"\nnats = [\"tls://n1\"]").cluster?.name == name)
  }

  @Test(arguments: [
    ("shards = 0", "shards: expected a whole number from 1 to 256, got 0"),
    ("shards = 257", "shards: expected a whole number from 1 to 256, got 257"),
    ("replicas = 2", "replicas: expected 1, 3 or 5, got 2"),
    ("replicas = \"3\"", #"replicas: expected 1, 3 or 5, got "3""#),
    ("shard_bytes = \"15MiB\"", #"shard_bytes: expected a size from 16MiB to 1024GiB, got "15MiB""#),
    ("shard_bytes = \"1025GiB\"", #"shard_bytes: expected a size from 16MiB to 1024GiB, got "1025GiB""#),
    ("shard_bytes = 1", #"shard_bytes: expected a size such as "64KiB", got 1"#),
    ("creds = \"/etc/creds\"", #"creds: expected { credential = "name" }, got a string"#),
    (
      "creds = { credential = \"word\" }",
      "creds.credential: expected a user's JWT and the seed of its key, as in a file of nsc; "
        + "the credential \"word\" has something else"
    ),
    ("nkey = \"\(publicKey)\"", ": expected nkey_seed with nkey, got none"),
    ("nkey_seed = { credential = \"seed\" }", ": expected nkey with nkey_seed, got none"),
    (
      "nkey_seed = { credential = \"word\" }\nnkey = \"\(publicKey)\"",
      "nkey_seed.credential: expected the seed of a user's key, SU and 56 letters and digits more; "
        + "the credential \"word\" has something else"
    ),
    (
      "nkey = \"\(seed)\"\nnkey_seed = { credential = \"seed\" }",
      "nkey: expected a user's public key, U and 55 letters and digits more, got a string"
    ),
    (
      "nkey_seed = { credential = \"none\" }\nnkey = \"\(publicKey)\"",
      "nkey_seed.credential: the credential \"none\" cannot be read: No such file or directory; "
        + "the unit passes it with LoadCredential=none in [Service] (systemctl edit streamd), after a restart"
    ),
    ("token = 5", #"token: expected { credential = "name" }, got a number"#),
    (
      "token = { credential = \"creds\" }",
      "token.credential: the credential \"creds\" cannot be read: it contains control characters"
    ),
    ("user = \"me\"", ": expected password, got none"),
    ("password = { credential = \"word\" }", ": expected user, got none"),
    ("ca_file = \"ca.pem\"", #"ca_file: expected an absolute path or { credential = "name" }, got "ca.pem""#),
    (
      "client_certificate = \"none\"",
      #"client_certificate: expected an absolute path or { credential = "name" }, got a string"#
    ),
    ("client_key = { credential = \"key\" }", "client_key: expected client_key only with client_certificate"),
    ("histroy = 1", "histroy: unknown key; expected one of: "),
    ("shard = 1", "shard: unknown key; did you mean \"shards\"?"),
  ])
  func valuesAreChecked(line: String, sentence: String) throws {
    let place = sentence.hasPrefix(":") ? "test.toml:1: cluster" : "test.toml:4: cluster."
    let sentences = errors(in: line)
    #expect(try #require(sentences.first).hasPrefix(place + sentence), "\(sentences)")
  }

  @Test func aHostHasOneLogin() {
    let (creds, token) = ("creds = { credential = \"creds\" }\n", "token = { credential = \"word\" }\n")
    let user = "user = \"me\"\npassword = { credential = \"word\" }\n"
    #expect(
      errors(in: creds + token) == [
        "test.toml:5: cluster.token: expected one of creds, nkey, token and user, got creds and token"
      ])
    #expect(
      errors(in: creds + user) == [
        "test.toml:5: cluster.user: expected one of creds, nkey, token and user, got creds and user"
      ])
  }

  @Test func filesForTLSNeedServersWithTLS() {
    let files = "ca_file = \"\(folder.path("ca.pem"))\"\nclient_certificate = \"\(folder.path("both.pem"))\"\n"
    #expect(
      errors(of: "name = \"a\"\nnats = [\"nats://n1\"]\n\(files)") == [
        "test.toml:4: cluster.ca_file: expected ca_file only with servers of scheme tls",
        "test.toml:5: cluster.client_certificate: expected client_certificate only with servers of scheme tls",
      ])
  }

  @Test(arguments: ["locked", "old"]) func aKeyWithAPassphraseIsRefused(name: String) {
    let certificate = "client_certificate = \"\(folder.path("client.pem"))\"\n"
    #expect(
      errors(in: certificate + "client_key = { credential = \"\(name)\" }") == [
        "test.toml:5: cluster.client_key: expected a key without a passphrase"
      ])
  }

  @Test func aDropInHasNoCluster() {
    let files = [("/a.toml", ""), ("/a.d/1.toml", "[cluster]\n\(minimal)")].map {
      ConfigurationText(path: $0, bytes: Array($1.utf8))
    }
    let thrown = #expect(throws: ConfigurationErrors.self) { try ConfigurationSource.parse(files) }
    #expect(
      thrown?.sentences == [
        "/a.d/1.toml:1: cluster: belongs in /a.toml: a drop-in adds streams, tokens, server.hosts and server.origins"
      ])
  }
}

/// `share` and `lead` of a stream.
struct ConfigurationSharingTests {
  /// The errors in a stream `s`, whose lines begin with line 5, with `share = "fleet"` in line 4 of a file with `[cluster]`.
  private func errors(inStream text: String) -> [String] {
    streamdTests.errors(
      "cluster = { nats = [\"tls://n1\"], name = \"prod\" }\n\n[streams.s]\nshare = \"fleet\"\n\(text)")
  }

  @Test func aStreamIsSharedOnItsHostByDefault() throws {
    let stream = try #require(try parse("[streams.s]\npublish = true").streams.first)
    #expect(stream.share == .host && stream.lead)
    #expect(try parse("[streams.s]\npublish = true\nshare = \"host\"").streams == [stream])
  }

  @Test(arguments: ["true", "false"]) func aStreamIsSharedWithAFleet(lead: String) throws {
    let stream = try #require(
      try parse("[cluster]\n\(minimal)[streams.s]\ntimer.every = \"1s\"\nshare = \"fleet\"\nlead = \(lead)").streams
        .first)
    #expect(stream.share == .fleet && "\(stream.lead)" == lead)
  }

  @Test func aFleetNeedsACluster() {
    let stream = "[streams.s]\npublish = true\nshare = \"fleet\"\n"
    #expect(
      streamdTests.errors(stream) == [
        "test.toml:3: streams.s.share: expected share = \"fleet\" only with the section [cluster] in the main file"
      ])
    // One error is enough.
    #expect(streamdTests.errors(stream + "[cluster]\nname = \"prod\"").count == 1)
  }

  @Test(arguments: [("[cluster]\n\(minimal)", 0), ("", 1), ("[", 1)])
  func aStreamOfADropInIsSharedWithTheMainFilesCluster(main: String, count: Int) {
    let files = [("/a.toml", main), ("/a.d/1.toml", "[streams.s]\npublish = true\nshare = \"fleet\"")].map {
      ConfigurationText(path: $0, bytes: Array($1.utf8))
    }
    do throws(ConfigurationErrors) {
      _ = try ConfigurationSource.parse(files)
      #expect(count == 0)
    } catch {
      #expect(error.sentences.count == count)
    }
  }

  @Test(arguments: [
    (
      "publish = true\noverflow = \"block\"", 6,
      #"overflow: expected overflow = "drop" with share = "fleet": no stream waits for the clients of another host"#
    ),
    (
      "timer = { every = \"1s\", times = 3 }", 5,
      #"timer: expected no timer.times with share = "fleet": a stream of a fleet does not complete"#
    ),
    (
      "publish = true\ndistinct = \".id\"", 6,
      "distinct: expected no distinct with publish and share = \"fleet\": "
        + "it would apply to the values of each host alone"
    ),
    (
      "publish = true\nthrottle = \"1s\"", 6,
      "throttle: expected no throttle with publish and share = \"fleet\": "
        + "it would apply to the values of each host alone"
    ),
    (
      "http = { url = \"http://h\", every = \"1s\", max_body = \"33554433B\" }\nbuffer.bytes = \"1GiB\"", 5,
      "http: expected http.max_body of at most 32MiB with share = \"fleet\", got 33554433 bytes: "
        + "a larger event does not fit into a record of the fleet"
    ),
    (
      "exec = { command = [\"a\"], max_line = \"1GiB\" }\njq = \".\"", 5,
      "exec: expected exec.max_line of at most 32MiB with share = \"fleet\", got 1073741824 bytes: "
        + "a larger event does not fit into a record of the fleet"
    ),
    (
      "journal = {}", 4, "share: expected no share = \"fleet\" with journal: each host has its own"
    ),
    ("publish = true\nlead = \"no\"", 6, "lead: expected true or false, got \"no\""),
  ])
  func whatAFleetCannotDoIsAnError(text: String, line: Int, sentence: String) {
    #expect(errors(inStream: text) == ["test.toml:\(line): streams.s.\(sentence)"])
    // A stream of one host can.
    guard !text.contains("lead") else { return }
    #expect(streamdTests.errors("[streams.s]\n\(text)") == [])
  }

  @Test(arguments: [
    "publish = true\njq = \".\"\nbuffer.bytes = \"64GiB\"",
    "exec = { command = [\"a\"], max_line = \"32MiB\" }\nbuffer.bytes = \"64MiB\"\ndistinct = true",
    "timer.every = \"1s\"\noverflow = \"drop\"\nkeep = \"disk\"\nthrottle = \"1m\"",
  ])
  func whatAFleetCanDoIsAccepted(text: String) {
    #expect(errors(inStream: text) == [])
  }

  @Test func shareAndLeadAreChecked() {
    #expect(
      streamdTests.errors("[streams.s]\npublish = true\nshare = \"all\"\nlead = false") == [
        #"test.toml:3: streams.s.share: expected "host" or "fleet", got "all""#
      ])
    #expect(
      streamdTests.errors("[streams.s]\npublish = true\nlead = true") == [
        "test.toml:3: streams.s.lead: expected lead only with share = \"fleet\""
      ])
  }

  @Test func aHostThatNeverLeadsNeedsNoSecretsAndPrograms() throws {
    func text(lead: Bool) -> String {
      """
      cluster = { nats = ["tls://n1"], name = "prod" }
      [streams.a]
      share = "fleet"
      lead = \(lead)
      http = { url = "https://h", every = "1s", bearer = { credential = "x" }, ca_file = { credential = "y" } }
      [streams.b]
      share = "fleet"
      lead = \(lead)
      exec = { command = ["streamd-test-no-such-program"], environment = { T = { credential = "z" } } }
      """
    }
    #expect(streamdTests.errors(text(lead: true), checksPrograms: true).count == 4)
    let streams = try parse(text(lead: false), checksPrograms: true).streams
    #expect(streams.count == 2)
    // A wrong name is an error nevertheless.
    #expect(streamdTests.errors(text(lead: false).replacing("\"x\"", with: "\"/x\"")).count == 1)
  }
}
