import FoundationEssentials
import Glibc
import StreamClient
import StreamRuntime
import StreamServer
import TestSupport
import Testing

@testable import streamd

/// Restarts on a file that has become invalid, and on a manager that keeps little.
@Suite(.timeLimit(.minutes(10))) struct StoredConfigurationTests {
  private let broken = "[streams.s]\ntimer = { evry = \"1s\" }\n"

  @Test func aRestartWithAnInvalidFileServesThePreviousConfiguration() async throws {
    let daemon = try RestartedDaemon()
    let manager = try #require(daemon.manager)
    try await daemon.start(keptStream(keep: "memory"))
    let before = try await daemon.events(10)
    try await daemon.eventually("the configuration is kept") { manager.kept.contains { $0.name == "kept-config-0" } }
    #expect(await daemon.stop() == 0)
    manager.receiveAll()
    try await daemon.start(broken)
    #expect(try await daemon.logs("streams.s.timer.evry: "))
    #expect(try await daemon.logs("serving the previous configuration: "))
    #expect(try await daemon.events(10) == before)
    // Mended, it is applied as ever, and kept in place of the former.
    try await daemon.reload(keptStream(keep: "memory") + keptStream("t", keep: "no"))
    #expect(try await daemon.logs("configuration reloaded: 1 unchanged, 0 changed, 1 added, 0 removed"))
    try await daemon.eventually("the new one is kept alone") {
      manager.kept.map(\.name).filter { $0.hasPrefix("kept-config") } == ["kept-config-1"]
    }
    #expect(await daemon.stop() == 0)
    manager.receiveAll()
    try await daemon.start(broken)
    #expect(try await daemon.events(1, of: "t").count == 1)
    #expect(await daemon.stop() == 0)
  }

  @Test func aPreviousConfigurationThatIsNoLongerValidIsRetriedByTheManager() async throws {
    let daemon = try RestartedDaemon()
    let manager = try #require(daemon.manager)
    try daemon.folder.write(Array("secret".utf8), to: "token")
    let credentials = ["CREDENTIALS_DIRECTORY=\(daemon.folder.path)"]
    let text =
      keptStream(keep: "memory")
      + "[streams.w]\nhttp = { url = \"http://127.0.0.1:1/\", every = \"1h\", bearer = { credential = \"token\" } }\n"
    try await daemon.start(text, environment: credentials)
    let before = try await daemon.events(10)
    try await daemon.eventually("the configuration is kept") { manager.kept.contains { $0.name == "kept-config-0" } }
    await daemon.kill()
    manager.receiveAll()
    // The secret is in nothing that is kept.
    for (name, descriptor) in manager.kept where name == "kept-config-0" {
      let kept = String(decoding: MemoryFile.bytes(of: descriptor) ?? [], as: UTF8.self)
      #expect(kept.contains("credential = \"token\"") && !kept.contains("secret"))
    }
    unlink(daemon.folder.path("token"))
    #expect(try await daemon.startAndEnd(text, environment: credentials) == 75)
    manager.receiveAll()
    #expect(manager.kept.contains { $0.name == "kept-log-0" })
    try daemon.folder.write(Array("secret".utf8), to: "token")
    try await daemon.start(text, environment: credentials)
    #expect(try await daemon.events(10) == before)
    #expect(await daemon.stop() == 0)
  }

  /// What `Fixtures/configuration-1` and `Fixtures/configuration-1-drop-ins` have.
  private static let files = [
    ConfigurationText(path: "/etc/streamd/streamd.toml", bytes: Array("[streams.a]\npublish = true\n".utf8)),
    ConfigurationText(path: "/etc/streamd/streamd.d/10.toml", bytes: Array("[streams.b]\npublish = true\n".utf8)),
    ConfigurationText(path: "/etc/streamd/streamd.d/é.toml", bytes: []),
  ]

  @Test(arguments: [("configuration-1", 1), ("configuration-1-drop-ins", 3)])
  func version1IsRead(name: String, count: Int) throws {
    let stored = try SavedState.open(fixture(name), as: .configuration)
    let files = try #require([ConfigurationText](stored: Array(stored), path: "/etc/streamd/streamd.toml"))
    #expect(files == Array(Self.files.prefix(count)))
    #expect(try !ConfigurationSource.parse(files, credentialsDirectory: nil).configuration.streams.isEmpty)
  }

  /// A change of the format adds a fixture, and does not change the others.
  @Test(arguments: [("configuration-1", 1), ("configuration-1-drop-ins", 3)])
  func theCurrentVersionWritesTheNewestFixture(name: String, count: Int) throws {
    let written = SavedState.seal(Array(Self.files.prefix(count)).stored, as: .configuration)
    #expect(try written == fixture(name))
  }

  @Test func aConfigurationOfAnotherVersionIsNotServed() async throws {
    let daemon = try RestartedDaemon()
    let manager = try #require(daemon.manager)
    var bytes = try fixture("configuration-1")
    bytes[7] = 9
    manager.keep(try MemoryFile.make(bytes, name: "x"), as: "kept-config-0")
    #expect(try await daemon.startAndEnd(broken) == 78)
    #expect(try await daemon.logs("the stored configuration is not used: its format is version 9"))
  }

  @Test func aDamagedStoredConfigurationIsNotServed() async throws {
    let daemon = try RestartedDaemon()
    let manager = try #require(daemon.manager)
    for bytes in [[], [0x0a], [0xff, 0x00, 0x5b], [UInt8](repeating: 0x20, count: (1 << 20) + 1)] {
      manager.keep(try MemoryFile.make(bytes, name: "x"), as: "kept-config-9223372036854775807")
    }
    #expect(try await daemon.startAndEnd(broken) == 78)
    try await daemon.start(keptStream(keep: "no"))
    #expect(await daemon.stop() == 0)
  }

  /// Where something else is kept, the manager is to try again.
  @Test(arguments: ["empty", "short", "other byte"])
  func aDamagedStoredConfigurationKeepsTheStoredDescriptors(damage: String) async throws {
    let daemon = try RestartedDaemon()
    let manager = try #require(daemon.manager)
    try await daemon.start(keptStream(keep: "memory"))
    let before = try await daemon.events(10)
    try await daemon.eventually("the configuration is kept") { manager.kept.contains { $0.name == "kept-config-0" } }
    await daemon.kill()
    manager.receiveAll()
    let kept = try #require(manager.kept.first { $0.name == "kept-config-0" }).descriptor
    let bytes = try #require(MemoryFile.bytes(of: kept))
    // Every such text is a configuration: of fewer streams, or with another interval.
    let place = try #require(bytes.lastIndex(of: UInt8(ascii: "2")))
    switch damage {
    case "empty": #expect(ftruncate(kept, 0) == 0)
    case "short": #expect(ftruncate(kept, off_t(place / 2)) == 0)
    default: #expect(pwrite(kept, "1", 1, off_t(place)) == 1)
    }
    #expect(try await daemon.startAndEnd(broken) == 75)
    #expect(try await daemon.logs("the stored configuration is not used: "))
    manager.receiveAll()
    #expect(manager.kept.contains { $0.name == "kept-log-0" })
    try await daemon.start(keptStream(keep: "memory"))
    #expect(try await daemon.events(10) == before)
    #expect(await daemon.stop() == 0)
  }

  @Test(arguments: [1, 2]) func connectionsWithoutSpaceInTheManagerAreCanceled(limit: Int) async throws {
    let daemon = try RestartedDaemon()
    let manager = try #require(daemon.manager)
    daemon.limit = limit
    let listener = try UnixSocket.listen(at: daemon.folder.path("s"), mode: 0o600)
    daemon.listener = listener.raw
    try await daemon.start(keptStream(keep: "no"))
    let connection = try StreamConnection(socket: daemon.folder.path("s"))
    var events = connection.stream("s").values.makeAsyncIterator()
    _ = try await events.next()
    #expect(await daemon.stop() == 0)
    manager.receiveAll()
    if limit == 1 {
      #expect(
        try await daemon.logs("1 connection closed: handing them over takes 2 descriptors of the service manager"))
      await #expect(throws: StreamError.canceled("streamd is restarting")) {
        while try await events.next() != nil {}
      }
      // What streams leave has room.
      #expect(manager.kept.map(\.name) == ["kept-connections-state"])
    } else {
      #expect(!daemon.log.contains("closed"))
      #expect(manager.kept.map(\.name).sorted() == ["kept-connections-by-16-at-0", "kept-connections-state"])
    }
    connection.close()
  }
}
