import FoundationEssentials
import Glibc
import StreamRuntime
import TestSupport

/// A nats-server on loopback, with JetStream, for as long as this value lives. Its store is kept over restarts.
final class Broker: @unchecked Sendable {  // a test uses it in one task at a time
  let port: UInt16
  /// The port of its HTTP server, which says whether it is healthy.
  private let monitorPort: UInt16
  private let folder: URL
  private let more: String
  private var process: ChildProcess?
  private var id: pid_t = 0

  var url: String { "nats://127.0.0.1:\(port)" }

  /// - Parameter more: lines of its configuration.
  init(_ more: String = "", port: UInt16? = nil) async throws {
    self.port = try port ?? Self.reservePort()
    monitorPort = try Self.reservePort()
    self.more = more
    folder = URL(filePath: "/tmp/streamd-test-nats-\(uniqueKey())")
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    try await start()
  }

  deinit {
    kill()
    try? FileManager.default.removeItem(at: folder)
  }

  /// Starts the server, and waits until it listens.
  func start() async throws {
    let configuration = folder.appending(path: "nats.conf")
    try Data(
      """
      listen: "127.0.0.1:\(port)"
      http: "127.0.0.1:\(monitorPort)"
      jetstream: { store_dir: "\(folder.path())/store" }
      \(more)
      """.utf8
    ).write(to: configuration)
    let server = access("/usr/sbin/nats-server", X_OK) == 0 ? "/usr/sbin/nats-server" : "nats-server"
    // The shell ends the server also if this process is killed: then its input ends.
    let process = try ChildProcess(
      "sh",
      [
        "-c", "\"$@\" & id=$!; echo $id; cat >/dev/null; kill -9 $id 2>/dev/null", "sh", server, "-c",
        configuration.path(), "-l", folder.appending(path: "log").path(),
      ],
      holdsInput: true, errors: .descriptor(STDERR_FILENO))
    self.process = process
    id = await process.line().flatMap { pid_t($0) } ?? 0
    for _ in 0..<600 {
      if Self.listens(port) { return }
      guard isRunning(id) else { break }
      try await Task.sleep(for: .milliseconds(100))
    }
    let log = (try? String(contentsOf: folder.appending(path: "log"), encoding: .utf8)) ?? "no log"
    throw BrokerError("nats-server, of Debian's package nats-server, does not listen: \(log)")
  }

  /// Waits until its replicas have caught up with the leaders of their logs.
  func catchesUp() async throws {
    let deadline = hangDeadline()
    while !Self.isHealthy(monitorPort) {
      guard EventLoop.monotonicNow() < deadline else { throw BrokerError("nats-server does not become healthy") }
      try await Task.sleep(for: .milliseconds(50))
    }
  }

  /// As a crash.
  func kill() {
    guard process != nil else { return }
    Glibc.kill(id, SIGKILL)
    while isRunning(id) { usleep(1000) }  // until then it has its port
    process?.endInput()
    process = nil
  }

  /// Removes the store of a broker that was killed.
  func wipe() throws { try FileManager.default.removeItem(at: folder.appending(path: "store")) }

  /// Stops its threads until `resume`: it neither answers nor closes connections.
  func stop() throws {
    Glibc.kill(id, SIGSTOP)
    // The threads on other processors stop a moment later.
    for _ in 0..<6000 {
      let threads = try FileManager.default.contentsOfDirectory(atPath: "/proc/\(id)/task")
      let states = threads.map {
        try? String(contentsOf: URL(filePath: "/proc/\(id)/task/\($0)/stat"), encoding: .utf8)
      }
      if states.allSatisfy({ $0?.contains(") T ") ?? true }) { return }
      usleep(10_000)
    }
    throw BrokerError("nats-server does not stop")
  }

  func resume() { Glibc.kill(id, SIGCONT) }

  struct BrokerError: Error, CustomStringConvertible {
    let description: String
    init(_ description: String) { self.description = description }
  }

  /// A port for a server that starts later, or again: until this process ends, nothing else gets it.
  ///
  /// The socket that holds it stays open. It does not listen, so a server that sets SO_REUSEADDR, as all do, may listen on
  /// its port.
  static func reservePort() throws -> UInt16 {
    let socket = makeSocket().release()
    var yes: CInt = 1
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, 4)
    var address = loopback(0)
    var size = socklen_t(MemoryLayout<sockaddr_in>.size)
    let isBound = withUnsafeMutablePointer(to: &address) {
      $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        bind(socket, $0, size) == 0 && getsockname(socket, $0, &size) == 0
      }
    }
    guard isBound else { throw SystemError("bind") }
    return UInt16(bigEndian: address.sin_port)
  }

  private static func listens(_ port: UInt16) -> Bool { isConnected(makeSocket(), to: port) }

  /// The answer to `GET /healthz` has the status 200.
  private static func isHealthy(_ port: UInt16) -> Bool {
    let socket = makeSocket()
    let request = "GET /healthz HTTP/1.0\r\n\r\n"
    var answer = [UInt8](repeating: 0, count: 64)
    guard isConnected(socket, to: port),
      send(socket.raw, request, request.utf8.count, CInt(MSG_NOSIGNAL)) == request.utf8.count
    else { return false }
    let count = recv(socket.raw, &answer, answer.count, 0)
    return count > 0 && String(decoding: answer[..<count], as: UTF8.self).contains(" 200 ")
  }

  private static func makeSocket() -> OwnedDescriptor {
    OwnedDescriptor(Glibc.socket(AF_INET, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0))
  }

  private static func isConnected(_ socket: borrowing OwnedDescriptor, to port: UInt16) -> Bool {
    var address = loopback(port)
    return withUnsafePointer(to: &address) { pointer in
      pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        connect(socket.raw, $0, socklen_t(MemoryLayout<sockaddr_in>.size)) == 0
      }
    }
  }

  private static func loopback(_ port: UInt16) -> sockaddr_in {
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_port = port.bigEndian
    address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
    return address
  }
}
