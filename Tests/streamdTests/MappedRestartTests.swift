import Glibc
import StreamClient
import StreamRuntime
import TestSupport
import Testing

/// Readers of a mapped stream while the daemon restarts.
@Suite(.timeLimit(.minutes(10))) struct MappedRestartTests {
  /// In an experiment, 1,000.
  private static let readerCount =
    unsafe getenv("STREAMD_MAP_READERS").flatMap { unsafe Int(String(cString: $0)) } ?? 50

  private static let stream = """
    max_connections = 5000
    max_connections_per_user = 5000
    [streams.s]
    timer = { every = "20ms" }
    start = "always"
    map = true
    """

  /// The last id that each reader has got.
  private final class Progress: Sendable {
    private let state = Locked((ids: [UInt64](repeating: 0, count: readerCount), isOver: false))

    var least: UInt64 { state.withLock { $0.ids.min() ?? 0 } }
    var most: UInt64 { state.withLock { $0.ids.max() ?? 0 } }

    func end() { state.withLock { $0.isOver = true } }

    /// - Returns: whether the reader goes on.
    func note(_ id: UInt64, of reader: Int) -> Bool {
      state.withLock { state in
        state.ids[reader] = id
        return !state.isOver
      }
    }
  }

  /// - Returns: the ids that do not follow the one before.
  private static func read(_ path: String, as number: Int, _ progress: Progress) async throws -> [UInt64] {
    let connection = try StreamConnection(socket: path)
    defer { connection.close() }
    var next: UInt64?
    var faults: [UInt64] = []
    for try await event in connection.mapped("s", from: .new, reconnect: ReconnectPolicy()).values {
      let id = event.id ?? 0
      if let next, id != next { faults.append(id) }
      next = id + 1
      guard progress.note(id, of: number) else { break }
    }
    return faults
  }

  private static func end(_ daemon: RestartedDaemon) async throws {
    daemon.signal(SIGTERM)
    #expect(try await daemon.end() == 0)
  }

  @Test func readersOfAMapGetEachEventOnceOverARestartAndAKill() async throws {
    let daemon = try RestartedDaemon()
    daemon.limit = 10_000
    try daemon.makeListener()
    try await daemon.start(Self.stream)
    let path = daemon.folder.path("s")
    let progress = Progress()
    let readers = (0..<Self.readerCount).map { number in
      Task { try await Self.read(path, as: number, progress) }
    }
    try await daemon.eventually("all read") { progress.least > 0 }
    for isKilled in [false, true] {
      let before = progress.most
      if isKilled { await daemon.kill() } else { try await Self.end(daemon) }
      try await daemon.start(Self.stream)
      try await daemon.eventually("all read on") { progress.least > before + 20 }
    }
    progress.end()
    for reader in readers { #expect(try await reader.value == []) }
    try await Self.end(daemon)
  }
}
