import CLinux
import Glibc
import StreamRuntime

/// An open place of lines or messages. Nothing of it blocks. Confined to the source thread.
protocol LinePort: AnyObject {
  /// To wait for.
  var descriptor: CInt { get }
  /// Whether each read is one message.
  var hasMessages: Bool { get }
  /// Whether bytes may be present although the descriptor is not readable.
  var holdsBytes: Bool { get }
  /// The number of messages that the system has left out since the last call.
  func takeLostCount() -> Int
  /// Reads once.
  /// - Throws: when the connection has failed.
  func read(into room: UnsafeMutableRawBufferPointer) throws(SourceFailure) -> LinePortInput
  /// Writes once.
  /// - Returns: the number of bytes taken; 0: the descriptor is not writable.
  /// - Throws: when the connection has failed.
  func write(_ bytes: UnsafeRawBufferPointer) throws(SourceFailure) -> Int
}

/// The result of a read.
enum LinePortInput: Equatable {
  case nothing
  /// The number of bytes; of a message, also if it is larger than the room, which then has a part of it.
  case bytes(Int)
  case end
}

extension LinePort {
  var hasMessages: Bool { false }
  var holdsBytes: Bool { false }
  func takeLostCount() -> Int { 0 }
}

/// A place that is one descriptor.
class DescriptorPort: LinePort {
  private let owned: OwnedDescriptor
  /// For messages.
  let name: String
  let hasMessages: Bool
  private let isSocket: Bool

  final var descriptor: CInt { owned.raw }

  init(_ descriptor: consuming OwnedDescriptor, name: String, isSocket: Bool = false, hasMessages: Bool = false) {
    owned = descriptor
    (self.name, self.isSocket, self.hasMessages) = (name, isSocket, hasMessages)
  }

  func read(into room: UnsafeMutableRawBufferPointer) throws(SourceFailure) -> LinePortInput {
    let count =
      isSocket
      ? unsafe LocalSocket.receive(descriptor, into: room, flags: hasMessages ? CInt(MSG_TRUNC) : 0)
      : unsafe Glibc.read(descriptor, room.baseAddress, room.count)
    if count > 0 { return .bytes(count) }
    if count == 0 { return hasMessages && !hasEnded ? .bytes(0) : .end }
    if errno == EAGAIN || errno == EINTR { return .nothing }
    throw failure(errno)
  }

  /// Whether a read without bytes was the end of the connection, and not an empty message.
  private var hasEnded: Bool {
    var waiting: CInt = 0
    if unsafe bytes_waiting(descriptor, &waiting) == 0, waiting > 0 { return false }
    var state = pollfd(fd: descriptor, events: Int16(EPOLLRDHUP.rawValue), revents: 0)
    return unsafe poll(&state, 1, 0) > 0
  }

  func write(_ bytes: UnsafeRawBufferPointer) throws(SourceFailure) -> Int {
    let count = unsafe Glibc.write(descriptor, bytes.baseAddress, bytes.count)
    if count >= 0 { return count }
    if errno == EAGAIN || errno == EINTR { return 0 }
    throw failure(errno)
  }

  func failure(_ code: CInt) -> SourceFailure {
    unsafe SourceFailure("the connection to \(name) has failed: \(String(cString: strerror(code)))")
  }
}

extension DescriptorPort {
  /// Connects to a Unix socket.
  /// - Parameter needsMessages: whether it must be a socket of sequenced packets.
  static func unix(_ path: String, needsMessages: Bool) throws(SourceFailure) -> DescriptorPort {
    do throws(SystemError) {
      if !needsMessages {
        do throws(SystemError) {
          return DescriptorPort(try UnixSocket.connect(to: path), name: path, isSocket: true)
        } catch  where error.code == EPROTOTYPE {}  // a listener with messages
      }
      return DescriptorPort(
        try UnixSocket.connect(to: path, hasMessages: true), name: path, isSocket: true, hasMessages: true)
    } catch {
      guard error.code == EPROTOTYPE else { throw .connecting(to: path, error.code) }
      throw SourceFailure(
        needsMessages
          ? "\(path) is no socket of messages (sequenced packets); use split = \"lines\""
          : "\(path) is a socket of datagrams, to which no source can connect")
    }
  }
}

extension SourceFailure {
  static func connecting(to place: String, _ code: CInt) -> SourceFailure {
    unsafe SourceFailure("could not connect to \(place): \(String(cString: strerror(code)))")
  }
}
