import FoundationEssentials
import Glibc
import StreamClient
import TestSupport
import Testing

/// Reloads of a daemon whose state directory is not what it was, also because another daemon used it meanwhile.
@Suite(.timeLimit(.minutes(10))) struct DisplacedLogTests {
  private func stream(_ name: String = "s") -> String {
    "[streams.\(name)]\npublish = true\nkeep = \"disk\"\nreplay = 1000\nbuffer = { bytes = \"64KiB\" }\n"
  }

  private func publish(_ count: Int, _ text: String, to daemon: RestartedDaemon) async throws {
    let publisher = try ChildProcess(
      ChildProcess.built("streamctl"), ["--socket", daemon.folder.path("s"), "pub", "s"], holdsInput: true)
    await publisher.write(Array((1...count).map { "\(text)\($0)\n" }.joined().utf8))
    publisher.endInput()
    #expect(await publisher.end() == 0)
  }

  private func texts(of daemon: RestartedDaemon, _ count: Int) async throws -> [String] {
    try await daemon.events(count).map { String(decoding: $0.data, as: UTF8.self) }
  }

  /// Waits until the catalogue, which follows a reload, has a message of the stream with this start; empty: none.
  private func shows(_ start: String, of name: String, _ daemon: RestartedDaemon) async throws -> Bool {
    try await eventually {
      let message = try await message(of: name, daemon)
      return start.isEmpty ? message.isEmpty : message.hasPrefix(start)
    }
  }

  private func message(of name: String, _ daemon: RestartedDaemon) async throws -> String {
    struct Entry: Decodable {
      let name: String
      let message: String?
    }
    let catalogue = try await daemon.events(1, of: "$streams", from: .latest)[0].data
    let entries = try JSONDecoder().decode([Entry].self, from: Data(catalogue))
    return entries.first { $0.name == name }?.message ?? ""
  }

  /// The events of a daemon of which a reload had no file are in memory. Those of another one are in the file that this has
  /// made meanwhile, or has continued.
  @Test(arguments: [false, true], [false, true])
  func aReloadReplacesNoLogOfAnotherDaemon(isContinued: Bool, isChanged: Bool) async throws {
    let (one, other) = (try RestartedDaemon(hasManager: false), try RestartedDaemon(hasManager: false))
    let (state, away) = (one.state, one.folder.path("away"))
    try await one.start(stream())
    try await publish(3, "one", to: one)
    #expect(rename(state, away) == 0)
    try one.folder.write([], to: "state")
    try await one.reload(stream())
    let reason = "\(state): it cannot be opened: Not a directory"
    #expect(try await one.logs("s: events are stored in memory, not on disk: \(reason)\n"))
    try await publish(2, "memory", to: one)
    #expect(unlink(state) == 0)
    if isContinued { #expect(rename(away, state) == 0) }
    try await other.start(stream(), state: state)
    try await publish(7, "other", to: other)
    let theirs = try await texts(of: other, isContinued ? 10 : 7)
    #expect(await other.stop() == 0)
    // Also if the reload gives the stream another log anyway.
    try await one.reload(isChanged ? stream().replacing("64KiB", with: "128KiB") : stream())
    let sentence = "\(state): s.log was written by another process and stays: move it away and reload, or restart, "
    #expect(try await one.logs("s: events are stored in memory, not on disk: \(sentence)"))
    #expect(try await shows("not on disk: s.log was written by another process", of: "s", one))
    #expect(try await texts(of: one, 5) == ["one1", "one2", "one3", "memory1", "memory2"])
    let first = try #require(try await one.events(5).last?.id)
    await one.kill()
    try await other.start(stream(), state: state)
    #expect(try await texts(of: other, theirs.count) == theirs)
    try await publish(1, "last", to: other)
    #expect(try #require(try await other.newest(of: "s").id) > first)
    #expect(await other.stop() == 0)
    for name in ["s.log", "ids"] { unlink("\(away)/\(name)") }
    rmdir(away)
  }

  /// The other one has ended.
  @Test func aReloadLocksTheStateDirectoryAgainAfterARefusal() async throws {
    let (one, other) = (try RestartedDaemon(hasManager: false), try RestartedDaemon(hasManager: false))
    try await one.start(stream())
    try await publish(3, "one", to: one)
    for name in ["s.log", "ids"] { #expect(unlink("\(one.state)/\(name)") == 0) }
    #expect(rmdir(one.state) == 0)
    try await other.start(stream("t"), state: one.state)
    let id = try #require(other.id)
    for _ in 0..<2 {
      try await one.reload(stream())
      #expect(try await shows("not on disk: process \(id) uses it", of: "s", one))
    }
    #expect(await other.stop() == 0)
    try await one.reload(stream())
    #expect(try await one.logs("s: events are stored on disk again\n"))
    #expect(try await shows("", of: "s", one))
    await one.kill()
    try await one.start(stream())
    #expect(try await texts(of: one, 3) == ["one1", "one2", "one3"])
    #expect(await one.stop() == 0)
    unlink(one.state + "/t.log")
  }

  /// The sync of a second that finds a file gone may run during the reload that makes another one.
  @Test func noStreamOnDiskHasARemarkAfterAReload() async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    let names = (0..<60).map { "s\($0)" }
    let streams = names.map {
      "[streams.\($0)]\ntimer = { every = \"50ms\" }\nstart = \"always\"\nkeep = \"disk\"\nbuffer = { bytes = \"64KiB\" }\n"
    }.joined()
    try await daemon.start(streams)
    for round in 1...6 {
      for name in names { #expect(unlink("\(daemon.state)/\(name).log") == 0) }
      // Some syncs find it before, most during the reload.
      if round > 1 { #expect(try await daemon.logs("was deleted, renamed or replaced")) }
      try await daemon.reload(streams)
      let sentence = "events of 60 streams are stored on disk again: s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, …\n"
      #expect(daemon.log.components(separatedBy: sentence).count == round + 1, "\(daemon.log.suffix(2000))")
      // Everything that was queued behind the reload is done when another one is.
      try await daemon.reload(streams)
      #expect(
        try await eventually {
          let catalogue = try await daemon.events(1, of: "$streams", from: .latest)[0].data
          return !String(decoding: catalogue, as: UTF8.self).contains("not on disk")
        })
    }
    #expect(!daemon.log.contains("s7: events are stored on disk again"))
    #expect(await daemon.stop() == 0)
    for name in names { #expect(access("\(daemon.state)/\(name).log", F_OK) == 0) }
  }
}
