import Glibc
import StreamClient
import TestSupport
import Testing

/// The built binary with a journal as its source.
@Suite(.timeLimit(.minutes(10))) struct JournalDaemonTests {
  let folder: TemporaryFolder

  init() throws { folder = try TemporaryFolder() }

  private func text(_ event: StreamEvent) -> String { String(decoding: event.data, as: UTF8.self) }

  /// Appends entries with the messages `m0`, `m1`, ….
  private func write(_ numbers: Range<Int>, to file: String) async throws {
    let entries = numbers.map { number in
      """
      __REALTIME_TIMESTAMP=\(1_700_000_000_000_000 + number * 1000)
      __MONOTONIC_TIMESTAMP=\(1_000_000 + number * 1000)
      _BOOT_ID=0123456789abcdef0123456789abcdef
      MESSAGE=m\(number)


      """
    }
    try folder.write(entries.flatMap { Array($0.utf8) }, to: "export")
    let remote = try ChildProcess(
      "/lib/systemd/systemd-journal-remote", ["-o", folder.path("\(file).journal"), folder.path("export")])
    let errors = await remote.text(of: remote.errors)
    #expect(await remote.end() == 0, "\(errors)")
  }

  private var stream: String {
    """
    [streams.s]
    journal = { directory = "\(folder.path)", since = 2001-01-01T00:00:00Z }
    jq = ".MESSAGE"
    start = "always"
    keep = "disk"
    replay = 1000
    """
  }

  @Test func killsAndStopsRepeatNoEntryAndLoseNone() async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    for round in 0..<4 {
      try await write(round * 100..<round * 100 + 50, to: "\(round / 2)")
      try await daemon.start(stream)
      try await write(round * 100 + 50..<round * 100 + 100, to: "\(round / 2)")
      // Not all of them: the rest is read by the next process.
      _ = try await daemon.events(round * 100 + 60)
      if round % 2 == 0 { await daemon.kill() } else { #expect(await daemon.stop() == 0) }
    }
    try await daemon.start(stream)
    #expect(try await daemon.events(400).map(text) == (0..<400).map { "\"m\($0)\"" })
    #expect(await daemon.stop() == 0)
    #expect(!daemon.log.contains("failing") && !daemon.log.contains("missed"))
  }

  @Test func aLossIsAGapAndIsShown() async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    try await write(0..<3, to: "a")
    try await daemon.start(stream)
    _ = try await daemon.events(3)
    await daemon.kill()
    unlink(folder.path("a.journal"))
    try await write(10..<12, to: "b")
    try await daemon.start(stream)
    let events = try await daemon.events(5)
    #expect(events.map(text) == [0, 1, 2, 10, 11].map { "\"m\($0)\"" })
    #expect(events.map { $0.id ?? 0 }.map { $0 - (events[0].id ?? 0) } == [0, 1, 2, 4, 5])
    let connection = try StreamConnection(socket: daemon.folder.path("s"))
    var catalogue = connection.stream("$streams").values.makeAsyncIterator()
    while let row = try await catalogue.next().map(text) {  // made four times a second
      if row.contains(#""source":"journal""#), row.contains(#""missed":1"#) { break }
    }
    connection.close()
    #expect(try await daemon.logs("s: events missed: "))
    #expect(await daemon.stop() == 0)
  }
}
