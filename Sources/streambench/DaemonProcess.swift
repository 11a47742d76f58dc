import EventLoop
import Glibc

/// A daemon of its own, on a configuration with one quiet stream, told over a notify socket when it is ready.
final class DaemonProcess {
  let path: String
  let secondsToReady: Double
  private let folder: String
  private let child: pid_t

  init(_ program: String) throws {
    var template = Array("/tmp/streambench-XXXXXX".utf8CString)
    guard mkdtemp(&template) != nil else { throw SystemError("mkdtemp") }
    folder = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
    path = folder + "/s"
    let configuration = """
      [server]
      socket = "\(path)"
      [streams.quiet]
      timer = { every = "1d" }
      [streams.clock]
      timer = { every = "1s" }
      """
    guard let file = fopen(folder + "/streamd.toml", "w") else { throw SystemError("fopen", folder) }
    fputs(configuration, file)
    fclose(file)
    let notify = try Self.notifySocket(folder + "/notify")
    let start = monotonicSeconds()
    child = try spawn([program, "--config", folder + "/streamd.toml"], environment: ["NOTIFY_SOCKET=\(folder)/notify"])
    var message = [UInt8](repeating: 0, count: 4096)
    repeat {
      let count = recv(notify.raw, &message, message.count, 0)
      guard count > 0 else { throw SystemError("recv", "notify socket") }
      message = Array(message.prefix(count))
      if message.starts(with: Array("READY=1".utf8)) { break }
      message = [UInt8](repeating: 0, count: 4096)
    } while true
    secondsToReady = monotonicSeconds() - start
  }

  deinit {
    kill(child, SIGTERM)
    waitpid(child, nil, 0)
    for name in ["/s", "/streamd.toml", "/notify"] { unlink(folder + name) }
    rmdir(folder)
  }

  /// Resident memory of the process, without what it maps of files.
  func residentBytes() throws -> Int {
    guard let file = fopen("/proc/\(child)/status", "r") else { throw SystemError("fopen", "/proc/\(child)/status") }
    defer { fclose(file) }
    var bytes = 0
    var line = [CChar](repeating: 0, count: 256)
    while fgets(&line, CInt(line.count), file) != nil {
      let text = String(decoding: line.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
      for key in ["RssAnon:", "RssShmem:"] where text.hasPrefix(key) {
        bytes += (Int(text.split(whereSeparator: { $0 == " " || $0 == "\t" })[1]) ?? 0) * 1024
      }
    }
    return bytes
  }

  private static func notifySocket(_ path: String) throws -> OwnedDescriptor {
    let raw = socket(AF_UNIX, CInt(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
    guard raw >= 0 else { throw SystemError("socket") }
    let socket = OwnedDescriptor(raw)
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
    let bound = withUnsafePointer(to: &address) {
      $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { bind(raw, $0, socklen_t(MemoryLayout<sockaddr_un>.size)) }
    }
    guard bound == 0 else { throw SystemError("bind", path) }
    var patience = timeval(tv_sec: 10, tv_usec: 0)
    setsockopt(raw, SOL_SOCKET, SO_RCVTIMEO, &patience, socklen_t(MemoryLayout<timeval>.size))
    return socket
  }
}
