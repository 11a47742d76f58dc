import Glibc
import StreamClient
import StreamRuntime
import Synchronization
import TestSupport
import Testing

@testable import streamd

private let secrets = [
  "alice": "alice-0123456789\n", "bob": "bob-012345678901==", "short": "0123", "space": "0123456789 abcdef",
]

/// `[[tokens]]`, from the file to the client.
@Suite(.timeLimit(.minutes(10))) struct TokenTests {
  private let streams =
    "[streams.a]\npublish = true\n[streams.\"s/1\"]\npublish = true\n[streams.\"s/2\"]\npublish = true\n"

  @Test func tokensAdmitToTheStreamsThatTheyName() throws {
    let folder = try TemporaryFolder(secrets)
    let configuration = try parse(
      """
      [[tokens]]
      name = "alice"
      credential = "alice"
      read = ["a", "s/*"]
      [[tokens]]
      name = "bob"
      credential = "bob"
      read = ["*"]
      write = ["s/2", "none"]

      """ + streams, credentials: folder.path)
    #expect(configuration.tokens.map(\.secret.content) == ["alice-0123456789", "bob-012345678901=="])
    #expect(configuration.streams.map(\.readers) == [["alice", "bob"], ["alice", "bob"], ["alice", "bob"]])
    #expect(configuration.streams.map(\.writers) == [[], [], ["bob"]])
    var other = configuration
    other.tokens[1].write = ["*"]
    for index in other.streams.indices { other.streams[index].admit(other.tokens) }
    let difference = ConfigurationDifference(from: configuration, to: other)
    #expect(difference.changed.map(\.stream.name) == ["a", "s/1"] && difference.tokens == other.tokens)
    #expect(difference.changed.allSatisfy { !$0.hasOtherFeed && !$0.hasOtherLog } && difference.restartKeys == [])
  }

  @Test(arguments: [
    (
      "name = 5\ncredential = \"alice\"", 2,
      #"name: expected a name of letters, digits, ".", "_" and "-", at most 48 bytes, got 5"#
    ),
    ("credential = \"alice\"", 1, "expected name, got none"),
    ("name = \"x\"", 1, "expected credential, got none"),
    (
      "name = \"x\"\ncredential = \"none\"", 3,
      "credential: the credential \"none\" cannot be read: No such file or directory; "
        + "the unit passes it with LoadCredential=none in [Service] (systemctl edit streamd), after a restart"
    ),
    (
      "name = \"x\"\ncredential = \"short\"", 3,
      "credential: the credential \"short\" has no token: expected 16 to 1024 letters, digits and characters of -._~+/, "
        + "then any number of ="
    ),
    (
      "name = \"x\"\ncredential = \"space\"", 3,
      "credential: the credential \"space\" has no token: expected 16 to 1024 letters, digits and characters of -._~+/, "
        + "then any number of ="
    ),
    (
      "name = \"x\"\ncredential = \"alice\"\n[[tokens]]\nname = \"y\"\ncredential = \"alice\"", 6,
      "credential: the credential \"alice\" has the same token as another one"
    ),
    (
      "name = \"x\"\ncredential = \"alice\"\n[[tokens]]\nname = \"x\"\ncredential = \"bob\"", 5,
      "name: is the name of two tokens"
    ),
    (
      "name = \"x\"\ncredential = \"alice\"\nread = [\"a*b\"]", 4,
      #"read: expected the name of a stream, or the beginning of names and "*", got "a*b""#
    ),
    ("name = \"x\"\ncredential = \"alice\"\nraed = [\"a\"]", 4, #"raed: unknown key; did you mean "read"?"#),
  ]) func mistakesAreReported(text: String, line: Int, sentence: String) throws {
    let folder = try TemporaryFolder(secrets)
    let place = sentence.hasPrefix("expected") ? "tokens: " : "tokens."
    #expect(errors("[[tokens]]\n\(text)", credentials: folder.path) == ["test.toml:\(line): \(place)\(sentence)"])
  }

  @Test func oneTableIsNoList() {
    #expect(errors("[tokens]\nname = \"x\"") == ["test.toml:1: tokens: expected [[tokens]], got a table"])
  }

  @Test func aListingNamesTheCredentialAlone() throws {
    let folder = try TemporaryFolder(secrets)
    let text =
      "[[tokens]]\nname = \"alice\"\ncredential = \"alice\"\n[[tokens]]\nname = \"bob\"\ncredential = \"bob\"\n"
    let source = try ConfigurationSource.parse(
      [.init(path: "test.toml", bytes: Array(text.utf8))], credentialsDirectory: folder.path)
    #expect(source.text.contains("\n[[tokens]]\nname = \"bob\"\ncredential = \"bob\"\n"))
    #expect(!source.text.contains("0123456789"))
  }

  // MARK: The daemon

  private func file(_ address: InternetAddress, _ tokens: String...) -> String {
    let tables = tokens.map { "[[tokens]]\nname = \"\($0)\"\ncredential = \"\($0)\"\nread = [\"*\"]\n" }.joined()
    return
      "listen = [\"\(address)\"]\n\(tables)[streams.s]\ntimer = { every = \"2ms\" }\nstart = \"always\"\nread = [\"uid:0\"]\n"
  }

  private func daemon(_ contents: [String: String] = secrets) throws -> (RestartedDaemon, [String]) {
    let daemon = try RestartedDaemon()
    for (name, content) in contents { try daemon.folder.write(Array(content.utf8), to: name) }
    try daemon.makeListener()
    return (daemon, ["CREDENTIALS_DIRECTORY=\(daemon.folder.path)"])
  }

  private func bearer(_ token: String) -> String { "Authorization: Bearer \(token)\r\n" }

  @Test func aReloadReadsTokensAgain() async throws {
    let (daemon, environment) = try daemon()
    let address = uniqueAddress()
    try await daemon.start(file(address, "alice"), environment: environment)
    #expect(try status(address, "/streams/s?wait=60s", bearer("alice-0123456789")) == "200")
    #expect(try status(address, "/streams/s?wait=60s") == "401")
    #expect(try status(address, "/streams/s?wait=60s", bearer("bob-012345678901==")) == "401")
    let client = try TCPClient(address)
    client.request("GET", "/streams/s?as=sse", bearer("alice-0123456789"))
    #expect(client.read(through: "data:").contains("HTTP/1.1 200"))
    try daemon.folder.write(Array("another-0123456789".utf8), to: "alice")
    try await daemon.reload(file(address, "alice", "bob"))
    #expect(
      client.read(through: "is not valid any more").contains(
        #"{"reason":"token \"alice\" is not valid any more","type":"urn:streamd:token-removed"}"#))
    #expect(try status(address, "/streams/s?wait=60s", bearer("alice-0123456789")) == "401")
    #expect(try status(address, "/streams/s?wait=60s", bearer("another-0123456789")) == "200")
    #expect(try status(address, "/streams/s?wait=60s", bearer("bob-012345678901==")) == "200")
    #expect(!daemon.log.contains("0123456789"))
    #expect(await daemon.stop() == 0)
  }

  @Test func connectionsOfATokenOutliveARestart() async throws {
    let (daemon, environment) = try daemon()
    let address = uniqueAddress()
    try await daemon.start(file(address, "alice", "bob"), environment: environment)
    let tokens = Locked(["alice-0123456789", "bob-012345678901=="])
    var probes: [(StreamConnection, CreditProbe)] = []
    for _ in 0..<2 {
      let connection = try StreamConnection(
        socket: "\(address)", token: { tokens.withLock { $0.removeFirst() } }, maximumLifetime: .seconds(300))
      let probe = CreditProbe()
      connection.stream("s").subscribe(probe)
      probe.request(1000)
      #expect(await probe.next().id != nil)
      probes.append((connection, probe))
    }
    daemon.signal(SIGTERM)
    #expect(try await daemon.end() == 0)
    try await daemon.start(file(address, "alice"), environment: environment)
    #expect(try await daemon.logs("2 connections restored"))
    var last: UInt64 = 0
    for _ in 0..<100 {
      let id = try #require(await probes[0].1.next().id)
      #expect(last == 0 || id == last + 1)
      last = id
    }
    while await probes[1].1.next().id != nil {}
    #expect(try await daemon.logs("(token bob): disconnected: token \"bob\" is not valid any more"))
    for (connection, _) in probes { connection.close() }
    #expect(await daemon.stop() == 0)
  }

  @Test func streamctlSendsTheTokenOfAFile() async throws {
    let (daemon, environment) = try daemon()
    let address = uniqueAddress()
    try await daemon.start(file(address, "alice"), environment: environment)
    func get(_ file: String?) async throws -> (CInt, String) {
      let arguments =
        ["--socket", "\(address)", "get", "s"] + (file.map { ["--token-file", daemon.folder.path($0)] } ?? [])
      let client = try ChildProcess(ChildProcess.built("streamctl"), arguments)
      let errors = await client.text(of: client.errors)
      return (await client.end(), errors)
    }
    #expect(try await get("alice") == (0, ""))
    #expect(try await get(nil) == (77, "streamctl: a client without credentials may not read \"s\"\n"))
    #expect(try await get("bob") == (77, "streamctl: the token is not valid\n"))
    #expect(try await get("none").0 == 74)
    let other = uniqueAddress()
    let client = try ChildProcess(ChildProcess.built("streamctl"), ["--socket", "\(other)", "list"])
    #expect(await client.text(of: client.errors).hasPrefix("streamctl: connect \(other): Connection refused\n"))
    #expect(await client.end() == 69)
    #expect(await daemon.stop() == 0)
  }
}
