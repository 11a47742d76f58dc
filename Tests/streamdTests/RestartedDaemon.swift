import FoundationEssentials
import Glibc
import StreamClient
import StreamRuntime
import TestSupport

/// A daemon that is started again and again on the same configuration, state folder and service manager.
final class RestartedDaemon: LoggingDaemon {
  let folder: TemporaryFolder
  /// Nil: it runs without one.
  var manager: FakeManager?
  /// Descriptors that the manager keeps.
  var limit = 100
  /// The listening socket as a socket unit passes it, which stays its owner's; nil: the daemon makes its own.
  var listener: CInt?
  private var ownListener: CInt?
  /// As the unit's %b.
  var boot = "00000000000000000000000000000001"
  private var process: ChildProcess?
  var state: String { folder.path + "/state" }
  var log: String { (try? String(contentsOfFile: folder.path("log"), encoding: .utf8)) ?? "" }

  init(hasManager: Bool = true) throws {
    folder = try TemporaryFolder()
    if hasManager { manager = try FakeManager(path: folder.path("notify")) }
  }

  deinit {
    process?.signal(SIGKILL)
    if let ownListener { close(ownListener) }
    if let logs = opendir(state) {
      while let entry = readdir(logs) {
        let name = withUnsafePointer(to: &entry.pointee.d_name) {
          $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
        }
        unlink(state + "/" + name)
      }
      closedir(logs)
    }
    rmdir(state)
  }

  /// Names of the logs that the manager keeps.
  var keptLogs: [String] { manager?.kept.map(\.name).filter { $0.hasPrefix("kept-log-") } ?? [] }

  /// From the next start on it is passed a listening socket, so that connections outlive a restart.
  func makeListener() throws {
    ownListener = try UnixSocket.listen(at: folder.path("s"), mode: 0o600).release()
    listener = ownListener
  }

  /// Starts it, serving once this returns.
  ///
  /// - Parameters:
  ///   - environment: `NAME=value`, on top of the tests' own.
  ///   - commands: for the shell, before.
  func start(_ streams: String, state: String? = nil, environment: [String] = [], commands: String = "") async throws {
    try spawn(streams, state: state, environment: environment, commands: commands)
    try await eventually("it serves") { log.contains(" serves ") }
  }

  /// Starts it on a file that it cannot serve; the manager reads meanwhile.
  ///
  /// - Returns: the exit status.
  func startAndEnd(_ streams: String, environment: [String] = []) async throws -> CInt? {
    try spawn(streams, state: nil, environment: environment)
    return try await end()
  }

  private func spawn(_ streams: String, state: String?, environment: [String], commands: String = "") throws {
    try write(streams, state: state)
    var passed: [(name: String, descriptor: CInt)] = manager?.kept ?? []
    if let listener { passed.append(("socket", listener)) }
    var script = "export STREAMD_BOOT_ID=\(boot) \(environment.joined(separator: " "))\n"
    if let manager {
      script += "export NOTIFY_SOCKET=\(manager.path) FDSTORE=\(limit) LISTEN_PID=$$ LISTEN_FDS=\(passed.count)"
      script += " LISTEN_FDNAMES=\(passed.map(\.name).joined(separator: ":"))\n"
    }
    script += "\(commands)\nexec \(try ChildProcess.built("streamd")) --config \(folder.path("streamd.toml"))"
    process = try ChildProcess(
      "sh", ["-c", script], errors: .file(folder.path("log")), passing: passed.map(\.descriptor))
  }

  /// Waits for its end; the manager reads meanwhile.
  func end() async throws -> CInt? {
    guard let process else { return nil }
    try await eventually("it has ended") { !isRunning(process.id) }
    return await process.end()
  }

  func write(_ streams: String, state: String? = nil) throws {
    let text = """
      [server]
      socket = "\(folder.path("s"))"
      state = "\(state ?? self.state)"
      \(streams)
      """
    try folder.write(Array(text.utf8), to: "streamd.toml")
  }

  /// Waits until `condition` holds; the manager reads meanwhile.
  func eventually(_ what: String, _ condition: () -> Bool) async throws {
    let deadline = hangDeadline()
    while !condition() {
      manager?.receiveAll()
      guard EventLoop.monotonicNow() < deadline else { throw SystemError(what, log, code: ETIMEDOUT) }
      try await Task.sleep(for: .milliseconds(2))
    }
    manager?.receiveAll()
  }

  /// The process's id.
  var id: pid_t? { process?.id }

  func signal(_ number: CInt) { process?.signal(number) }

  /// Reloads another file, and waits for the result in the log.
  func reload(_ streams: String, state: String? = nil) async throws {
    try write(streams, state: state)
    let before = reloads
    signal(SIGHUP)
    try await eventually("it has reloaded") { reloads > before }
  }

  private var reloads: Int {
    log.split(separator: "\n").count { $0.contains("configuration reloaded") || $0.contains("not reloaded") }
  }

  func kill() async {
    process?.signal(SIGKILL)
    _ = await process?.end()
  }

  func stop() async -> CInt? {
    process?.signal(SIGTERM)
    return await process?.end()
  }

  /// The next events of a stream from `start` on, `count` or up to one with an id.
  func events(
    _ count: Int, of stream: String = "s", from start: SubscribeOptions.Start = .since("1970-01-01T00:00:00Z"),
    through id: UInt64? = nil
  ) async throws -> [StreamEvent] {
    let connection = try StreamConnection(socket: folder.path("s"))
    defer { connection.close() }
    var events: [StreamEvent] = []
    for try await event in connection.stream(stream, options: .init(from: start)).values {
      events.append(event)
      if events.count == count || id.map({ event.id ?? 0 >= $0 }) == true { break }
    }
    return events
  }
}

func ids(_ events: [StreamEvent]) -> [UInt64] { events.map { $0.id ?? 0 } }

func keptStream(_ name: String = "s", keep: String, bytes: String = "8MiB", every: String = "2ms") -> String {
  """
  [streams.\(name)]
  timer = { every = "\(every)" }
  start = "always"
  keep = "\(keep)"
  buffer = { bytes = "\(bytes)" }

  """
}
