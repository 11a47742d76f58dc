import CLinux
import Glibc
import StreamRuntime

/// The end of a pipe that a program writes into. Belongs to the source thread's loop.
///
/// Without `watch` nothing is read: the pipe fills up, and the program's next write waits.
final class ProgramPipe: EventLoop.Handler {
  /// Takes each piece. May stop the watching.
  var receive: (UnsafeRawBufferPointer) -> Void = { _ in }
  /// Called once, when nothing more is to come.
  var ended: () -> Void = {}
  /// Nothing more is to come.
  private(set) var isAtEnd = false
  private let descriptor: OwnedDescriptor
  private let loop: EventLoop
  private var registration: EventLoop.Registration?
  /// How much is still to be read; nil while the program may write more.
  private var bytesLeft: Int?

  private let pieceBytes: Int

  /// - Parameter pieceBytes: how much is read in one turn of the loop.
  init(_ descriptor: consuming OwnedDescriptor, pieceBytes: Int, on loop: EventLoop) {
    self.descriptor = descriptor
    self.pieceBytes = pieceBytes
    self.loop = loop
  }

  /// Reads what is there and what comes, a piece a turn.
  /// - Throws: `epoll_ctl`, when the kernel's limit of watches is reached.
  func watch() throws(SystemError) {
    loop.assertOnLoop()
    guard !isAtEnd, registration == nil else { return }
    registration = try loop.register(descriptor.raw, for: .readable, handler: self)
  }

  /// Reads no more until `watch`. Not a watch for nothing: that would still tell of a writer that is gone, every turn.
  func rest() {
    loop.assertOnLoop()
    if let registration { loop.unregister(registration) }
    registration = nil
  }

  /// The program has ended: what is in the pipe now was written by it and is still to be read. What somebody else to whom
  /// it has left the other end writes later is not.
  func limitToWhatIsThere() {
    loop.assertOnLoop()
    guard !isAtEnd else { return }
    var count: CInt = 0
    bytesLeft = bytes_waiting(descriptor.raw, &count) == 0 ? Int(count) : 0
    if bytesLeft == 0 { end() }
  }

  /// Reads all that `limitToWhatIsThere` has left, now.
  func readWhatIsThere() {
    limitToWhatIsThere()
    while !isAtEnd { descriptorIsReady() }
  }

  /// Reads a piece.
  func descriptorIsReady(_ readiness: EventLoop.Readiness = .readable) {
    let size = min(pieceBytes, bytesLeft ?? .max)
    withUnsafeTemporaryAllocation(byteCount: size, alignment: 1) { buffer in
      let count = read(descriptor.raw, buffer.baseAddress, size)
      if count < 0, errno == EAGAIN || errno == EINTR { return }
      guard count > 0 else { return end() }
      bytesLeft = bytesLeft.map { $0 - count }
      receive(UnsafeRawBufferPointer(rebasing: buffer[..<count]))
      if bytesLeft == 0 { end() }
    }
  }

  private func end() {
    isAtEnd = true
    rest()
    ended()
  }
}
