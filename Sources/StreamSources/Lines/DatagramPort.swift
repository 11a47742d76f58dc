import CLinux
import Glibc
import StreamRuntime

/// Receives the datagrams that arrive at an address.
final class DatagramPort: LinePort {
  private let socket: OwnedDescriptor
  private let name: String
  /// The number of datagrams that the system has dropped because the socket's buffer was full. Wraps.
  private var (dropped, reported): (UInt32, UInt32) = (0, 0)

  let hasMessages = true
  var descriptor: CInt { socket.raw }

  /// - Throws: when the address cannot be bound.
  init(_ address: InternetAddress) throws(SourceFailure) {
    name = address.description
    do throws(SystemError) {
      socket = try UDPSocket.listen(on: address)
    } catch {
      let reason = unsafe String(cString: strerror(error.code))
      let isForbidden = error.code == EPERM || error.code == EACCES
      throw SourceFailure(
        "could not receive at \(address): \(reason)"
          + (isForbidden
            ? Sandbox.hint("SocketBindAllow=udp:\(address.port)", in: "udp.conf")
            : ""))
    }
  }

  func takeLostCount() -> Int {
    defer { reported = dropped }
    return Int(dropped &- reported)
  }

  func read(into room: UnsafeMutableRawBufferPointer) throws(SourceFailure) -> LinePortInput {
    let count = unsafe receive_datagram(descriptor, room.baseAddress, room.count, &dropped)
    if count >= 0 { return .bytes(count) }
    if errno == EAGAIN || errno == EINTR { return .nothing }
    throw unsafe SourceFailure("could not receive at \(name): \(String(cString: strerror(errno)))")
  }

  func write(_ bytes: UnsafeRawBufferPointer) throws(SourceFailure) -> Int { bytes.count }
}
