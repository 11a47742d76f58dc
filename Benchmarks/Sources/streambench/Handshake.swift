import CLinux
import Glibc
import StreamRuntime

/// Blocking handshakes before a run, for each broker's protocol.
enum Handshake {
  /// A blocking connection to a Unix socket; waits while the backlog is full.
  static func connect(to path: String) throws(SystemError) -> CInt {
    while true {
      do throws(SystemError) {
        let raw = try UnixSocket.connect(to: path).release()
        _ = fcntl(raw, F_SETFL, 0)
        return raw
      } catch {
        guard error.code == EAGAIN else { throw error }
        usleep(100)
      }
    }
  }

  /// A blocking connection to this machine.
  static func connect(toPort port: UInt16) throws(SystemError) -> CInt {
    let raw = socket(AF_INET, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
    guard raw >= 0 else { throw SystemError("socket") }
    let status = unsafe withAddress(port: port) { unsafe Glibc.connect(raw, $0, $1) }
    guard status == 0 else {
      let error = SystemError("connect", "port \(port)")
      close(raw)
      throw error
    }
    var one: CInt = 1
    unsafe setsockopt(raw, CInt(IPPROTO_TCP), TCP_NODELAY, &one, socklen_t(MemoryLayout<CInt>.size))
    return raw
  }

  /// A port for a server that starts later: until this process ends, nothing else gets it.
  ///
  /// The socket that holds it stays open. It does not listen, so a server that sets SO_REUSEADDR, as all do, may listen on
  /// its port.
  static func reservePort() throws(SystemError) -> UInt16 {
    let raw = socket(AF_INET, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
    guard raw >= 0 else { throw SystemError("socket") }
    var yes: CInt = 1
    unsafe setsockopt(raw, SOL_SOCKET, SO_REUSEADDR, &yes, socklen_t(MemoryLayout<CInt>.size))
    guard unsafe withAddress(port: 0, { unsafe bind(raw, $0, $1) }) == 0 else { throw SystemError("bind") }
    var address = sockaddr_in()
    var length = socklen_t(MemoryLayout<sockaddr_in>.size)
    let status = unsafe withUnsafeMutablePointer(to: &address) {
      unsafe $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { unsafe getsockname(raw, $0, &length) }
    }
    guard status == 0 else { throw SystemError("getsockname") }
    return UInt16(bigEndian: address.sin_port)
  }

  static func say(_ bytes: [UInt8], to descriptor: CInt) throws(SystemError) {
    guard unsafe send(descriptor, bytes, bytes.count, CInt(MSG_NOSIGNAL)) == bytes.count else {
      throw SystemError("send")
    }
  }

  /// Reads until the input ends with `ending`, with nothing after it.
  @discardableResult static func hear(_ ending: [UInt8], from descriptor: CInt) throws -> [UInt8] {
    var heard: [UInt8] = []
    var buffer = [UInt8](repeating: 0, count: 4096)
    while !heard.suffix(ending.count).elementsEqual(ending) {
      let count = unsafe recv(descriptor, &buffer, buffer.count, 0)
      guard count > 0 else { throw BenchError("the server hung up instead of answering") }
      heard += buffer.prefix(count)
    }
    return heard
  }

  /// Reads `count` bytes.
  static func hear(_ count: Int, from descriptor: CInt) throws -> [UInt8] {
    var heard = [UInt8](repeating: 0, count: count)
    guard unsafe recv(descriptor, &heard, count, CInt(MSG_WAITALL)) == count else {
      throw BenchError("the server hung up instead of answering")
    }
    return heard
  }

  private static func withAddress(port: UInt16, _ body: (UnsafePointer<sockaddr>, socklen_t) -> CInt) -> CInt {
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_port = port.bigEndian
    address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
    return unsafe withUnsafePointer(to: &address) { pointer in
      unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        unsafe body($0, socklen_t(MemoryLayout<sockaddr_in>.size))
      }
    }
  }
}
