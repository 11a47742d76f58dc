import CLinux
import Glibc
import StreamRuntime

/// A substitute for the service manager: receives notifications, and stores descriptors.
///
/// For one thread at a time.
public final class FakeManager {
  /// The path of the notify socket, for NOTIFY_SOCKET.
  public let path: String
  /// The stored descriptors, oldest first; closed by the manager.
  public private(set) var kept: [(name: String, descriptor: CInt)] = []
  private let socket: OwnedDescriptor

  /// - Parameter path: of the socket; removed with its folder.
  public init(path: String) throws(SystemError) {
    self.path = path
    let raw = Glibc.socket(AF_UNIX, CInt(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
    guard raw >= 0 else { throw SystemError("socket") }
    socket = OwnedDescriptor(raw)
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
    let result = withUnsafePointer(to: &address) { pointer in
      pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        bind(raw, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
      }
    }
    guard result == 0 else { throw SystemError("bind", path) }
  }

  deinit {
    for (_, descriptor) in kept { close(descriptor) }
  }

  /// Takes the next message, and stores or removes its descriptors.
  ///
  /// - Returns: its text; nil when there is none, or, when waiting, none arrives within `hangTime`.
  public func receive(waits: Bool = true) -> String? {
    var ready = pollfd(fd: socket.raw, events: Int16(POLLIN), revents: 0)
    guard poll(&ready, 1, waits ? CInt(hangTime.wholeMilliseconds) : 0) == 1 else { return nil }
    var buffer = [UInt8](repeating: 0, count: 65536)
    let count = recv(socket.raw, &buffer, buffer.count, CInt(MSG_PEEK))
    var descriptors = [CInt](repeating: -1, count: 253)
    let descriptorCount = receive_descriptors(socket.raw, &descriptors, 0)
    guard count > 0, descriptorCount >= 0 else { return nil }
    let text = String(decoding: buffer[..<count], as: UTF8.self)
    let lines = text.split(separator: "\n")
    let name = lines.first { $0.hasPrefix("FDNAME=") }.map { String($0.dropFirst("FDNAME=".count)) } ?? "stored"
    if lines.contains("FDSTORE=1") {
      kept += descriptors[..<Int(descriptorCount)].map { (name, $0) }
    } else {
      for descriptor in descriptors[..<Int(descriptorCount)] { close(descriptor) }
    }
    if lines.contains("FDSTOREREMOVE=1") {
      for (keptName, descriptor) in kept where keptName == name { close(descriptor) }
      kept.removeAll { $0.name == name }
    }
    return text
  }

  /// Fills its socket with messages, as if it did not read: further senders wait until it does.
  public func fill() throws(SystemError) {
    let sender = OwnedDescriptor(
      Glibc.socket(AF_UNIX, CInt(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue), 0))
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
    let result = withUnsafePointer(to: &address) { pointer in
      pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        connect(sender.raw, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
      }
    }
    guard result == 0 else { throw SystemError("connect", path) }
    while send(sender.raw, "X=1", 3, 0) >= 0 {}
    guard errno == EAGAIN else { throw SystemError("send", path) }
  }

  /// Stores a descriptor, as if a service had sent it.
  public func keep(_ descriptor: CInt, as name: String) {
    kept.append((name, descriptor))
  }

  /// Removes one descriptor of this name.
  ///
  /// - Returns: the caller's to close; nil: there is none.
  public func give(_ name: String) -> CInt? {
    kept.firstIndex { $0.name == name }.map { kept.remove(at: $0).descriptor }
  }

  /// Takes all messages that have arrived.
  public func receiveAll() {
    while receive(waits: false) != nil {}
  }
}
