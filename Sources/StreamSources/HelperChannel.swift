import CLinux
import Glibc
import StreamRuntime

/// The daemon's side of a helper process that has a socket to the daemon. Each message that it sends is a length (u32)
/// and as many bytes. Confined to the source thread's loop.
final class HelperChannel: EventLoop.Handler, KeptProcess {
  /// Called on the loop, never from inside a call to the channel.
  protocol Owner: AnyObject {
    /// - Returns: false: it is no valid message, and the process is killed.
    func helperSent(_ message: ArraySlice<UInt8>) -> Bool
    /// The process has ended by itself, or after a message that is not valid. No call follows.
    /// - Parameter status: of waitpid(2).
    func helperEnded(status: CInt)
  }

  private weak var owner: (any Owner)?
  private let thread: SourceThread
  private let socket: OwnedDescriptor
  private let id: pid_t
  private var registration: EventLoop.Registration?
  private var reader: HelperMessageReader
  private var unsent: [UInt8] = []
  private var sentCount = 0
  /// Whether the socket is full.
  private var isStuck = false
  private var isReaped = false

  /// - Parameters:
  ///   - executable: a program that calls `HelperProcess.runIfAsked` first.
  ///   - task: the process' argument.
  ///   - values: what it has to know besides; only its user and root can read them.
  ///   - messageLimit: bytes of a message, above which the process is killed.
  /// - Throws: the system call that failed.
  init(
    _ executable: String, _ task: String, _ values: [String], messageLimit: Int, on thread: SourceThread,
    owner: any Owner
  ) throws(SystemError) {
    guard !thread.isStopped else { throw SystemError("posix_spawn", executable, code: ECANCELED) }
    let ends = try UnixSocket.pair(SOCK_STREAM.rawValue)
    socket = OwnedDescriptor(ends.0)
    LocalSocket.refuseDescriptors(on: ends.0)
    let theirs = OwnedDescriptor(ends.1)
    self.thread = thread
    self.owner = owner
    reader = HelperMessageReader(limit: messageLimit)
    id = try spawnHelper(executable, task, values, input: theirs.raw)
    guard fcntl(socket.raw, F_SETFL, O_NONBLOCK) == 0 else { throw SystemError("fcntl") }
    registration = try thread.loop.register(socket.raw, for: .readable, handler: self)
    thread.keep(self)
  }

  deinit {
    if !isReaped { _ = reap() }
  }

  /// Sends bytes to the process.
  func send(_ bytes: [UInt8]) {
    thread.loop.assertOnLoop()
    unsent += bytes
    flush()
  }

  /// The processor time that the process has used; zero if it has ended.
  var processorTime: Duration {
    var (clock, time) = (clockid_t(), timespec())
    guard !isReaped, unsafe clock_getcpuclockid(id, &clock) == 0, unsafe clock_gettime(clock, &time) == 0 else {
      return .zero
    }
    return .seconds(time.tv_sec) + .nanoseconds(time.tv_nsec)
  }

  /// Kills the process in any state; its owner is not called any more.
  func end(within grace: Duration? = nil) {
    thread.loop.assertOnLoop()
    owner = nil
    (unsent, sentCount) = ([], 0)
    if !isReaped { kill(id, SIGKILL) }
    flush()
  }

  func descriptorIsReady(_ readiness: EventLoop.Readiness) {
    if readiness.contains(.writable) { flush() }
    if readiness.contains(.readable) { receive() }
  }

  private func flush() {
    guard let registration else { return }
    while sentCount < unsent.count {
      let count = unsafe unsent.withUnsafeBytes { bytes in
        unsafe Glibc.send(
          socket.raw, bytes.baseAddress.map { unsafe $0 + sentCount }, bytes.count - sentCount, CInt(MSG_NOSIGNAL))
      }
      // Reading reports every error except a full buffer.
      guard count > 0 else { break }
      sentCount += count
    }
    if sentCount >= unsent.count { (unsent, sentCount) = ([], 0) }
    guard isStuck == unsent.isEmpty else { return }
    isStuck = !unsent.isEmpty
    thread.loop.update(registration, for: isStuck ? [.readable, .writable] : .readable)
  }

  private func receive() {
    let isOpen = unsafe withUnsafeTemporaryAllocation(byteCount: 65536, alignment: 1) { buffer in
      let count = unsafe LocalSocket.receive(socket.raw, into: buffer)
      if count > 0 { unsafe reader.append(UnsafeRawBufferPointer(rebasing: buffer[..<count])) }
      return count > 0 || (count < 0 && (errno == EAGAIN || errno == EINTR))
    }
    while let owner, let message = reader.next() {
      guard owner.helperSent(message) else { return close() }
    }
    if !isOpen || reader.isOverLimit { close() }
  }

  private func close() {
    thread.loop.assertOnLoop()
    guard let registration else { return }
    self.registration = nil
    thread.loop.unregister(registration)
    let status = reap()
    thread.forget(self)
    owner?.helperEnded(status: status)
  }

  /// Waits for a process that has ended or is about to: nothing else closes its end of the socket.
  /// - Returns: the status of waitpid(2).
  private func reap() -> CInt {
    kill(id, SIGKILL)
    isReaped = true
    var status: CInt = 0
    while unsafe waitpid(id, &status, 0) < 0, errno == EINTR {}
    return status
  }
}
