import CLinux
import Glibc
import StreamRuntime

/// The reading end of a pipe that a program writes to. Confined to the source thread's loop.
///
/// Without `watch` nothing is read: the pipe fills up, and the program's next write blocks.
@safe final class ProgramPipe: EventLoop.Handler {
  /// Called with each piece. May stop the watch.
  var receive: (UnsafeRawBufferPointer) -> Void = { _ in }
  /// Called once, at the end of the input.
  var ended: () -> Void = {}
  /// Whether the input has ended.
  private(set) var isAtEnd = false
  private let descriptor: OwnedDescriptor
  private let loop: EventLoop
  private var registration: EventLoop.Registration?
  /// Bytes still to be read; nil while the program may write more.
  private var bytesLeft: Int?

  private let pieceBytes: Int
  /// The share of the thread's time that all pipes with it may take together; nil: no limit.
  var share: ThreadShare?

  /// - Parameters:
  ///   - pieceBytes: maximum bytes read in one turn of the loop.
  ///   - share: as the property.
  init(_ descriptor: consuming OwnedDescriptor, pieceBytes: Int, share: ThreadShare? = nil, on loop: EventLoop) {
    self.descriptor = descriptor
    self.pieceBytes = pieceBytes
    self.share = share
    self.loop = loop
  }

  /// Reads present and future input, a piece per turn.
  /// - Throws: `epoll_ctl`, when the kernel's limit of watches is reached.
  func watch() throws(SystemError) {
    loop.assertOnLoop()
    guard !isAtEnd, registration == nil else { return }
    registration = try loop.register(descriptor.raw, for: .readable, handler: self)
  }

  /// Stops reading until `watch`. Not a watch without interest, which would report a closed pipe in every turn.
  func rest() {
    loop.assertOnLoop()
    if let registration { loop.unregister(registration) }
    registration = nil
  }

  /// The program has ended: the pipe's present content is its output and is still read. Later output, from a process
  /// that inherited the pipe, is not.
  func limitToWhatIsThere() {
    loop.assertOnLoop()
    guard !isAtEnd else { return }
    var count: CInt = 0
    bytesLeft = unsafe bytes_waiting(descriptor.raw, &count) == 0 ? Int(count) : 0
    if bytesLeft == 0 { end() }
  }

  /// Ends the input here.
  func drop() {
    loop.assertOnLoop()
    if !isAtEnd { end() }
  }

  func descriptorIsReady(_ readiness: EventLoop.Readiness) {
    guard let share else { return readPiece() }
    let start = EventLoop.monotonicNow()
    readPiece()
    guard registration != nil else { return }
    rest()
    watch(after: share.pause(after: EventLoop.monotonicNow() &- start))
  }

  private func watch(after delay: Duration) {
    _ = loop.schedule(after: delay) { [weak self] in
      // At the kernel's limit of watches it is tried again.
      do throws(SystemError) { try self?.watch() } catch { self?.watch(after: .seconds(1)) }
    }
  }

  private func readPiece() {
    let size = min(pieceBytes, bytesLeft ?? .max)
    unsafe withUnsafeTemporaryAllocation(byteCount: size, alignment: 1) { buffer in
      let count = unsafe read(descriptor.raw, buffer.baseAddress, size)
      if count < 0, errno == EAGAIN || errno == EINTR { return }
      guard count > 0 else { return end() }
      bytesLeft = bytesLeft.map { $0 - count }
      unsafe receive(UnsafeRawBufferPointer(rebasing: buffer[..<count]))
      if bytesLeft == 0 { end() }
    }
  }

  private func end() {
    isAtEnd = true
    rest()
    ended()
  }
}
