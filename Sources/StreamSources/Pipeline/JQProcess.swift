import Glibc
import StreamRuntime

/// The daemon's side of a child process that runs a stream's programs. Confined to the source thread's loop.
final class JQProcess: EventLoop.Handler, KeptProcess {
  /// Called on the loop, never from inside a call to the process.
  protocol Owner: AnyObject {
    /// The first answer is the programs' result; one for each event follows, in order.
    func processAnswered(_ answer: JQAnswer)
    /// The process has ended by itself, for this reason. No call follows.
    /// - Parameter isForMemory: its memory is exhausted, or would soon have been.
    func processEnded(_ reason: String, isForMemory: Bool)
  }

  private weak var owner: (any Owner)?
  private let thread: SourceThread
  private let socket: OwnedDescriptor
  private let id: pid_t
  private let timePerEvent: Duration
  private var registration: EventLoop.Registration?
  private var reader = JQMessageReader()
  private var unsent: [UInt8] = []
  private var sentCount = 0
  /// Whether the socket is full.
  private var isStuck = false
  private var isReaped = false

  /// - Parameters:
  ///   - executable: a program that calls `HelperProcess.runIfAsked` first.
  ///   - timePerEvent: processor time, at least a millisecond.
  ///   - name: the stream's name, for the process list.
  ///   - transform: the programs.
  /// - Throws: the system call that failed.
  init(
    executable: String, timePerEvent: Duration, name: String, transform: JQTransform, on thread: SourceThread,
    owner: any Owner
  ) throws(SystemError) {
    guard !thread.isStopped else { throw SystemError("posix_spawn", executable, code: ECANCELED) }
    var ends: [CInt] = [0, 0]
    guard unsafe socketpair(AF_UNIX, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0, &ends) == 0 else {
      throw SystemError("socketpair")
    }
    socket = OwnedDescriptor(ends[0])
    let theirs = OwnedDescriptor(ends[1])
    self.thread = thread
    self.owner = owner
    self.timePerEvent = timePerEvent
    id = try spawnHelper(executable, [JQWorker.argument, "\(timePerEvent.wholeMilliseconds)", name], input: theirs.raw)
    guard fcntl(socket.raw, F_SETFL, O_NONBLOCK) == 0 else { throw SystemError("fcntl") }
    registration = try thread.loop.register(socket.raw, for: .readable, handler: self)
    thread.keep(self)
    send(transform.programs.map { [UInt8](($0 ?? "").utf8) })
  }

  deinit {
    if !isReaped { _ = reap() }
  }

  /// Sends events to the process.
  func send(_ events: some Sequence<[UInt8]>) {
    thread.loop.assertOnLoop()
    for event in events { unsent.appendMessage(event) }
    flush()
  }

  /// Kills the process in any state; its owner is not called any more.
  func end(within grace: Duration? = nil) {
    thread.loop.assertOnLoop()
    owner = nil
    (unsent, sentCount) = ([], 0)
    if !isReaped { kill(id, SIGKILL) }
    flush()
  }

  // MARK: - The socket

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
      let count = unsafe recv(socket.raw, buffer.baseAddress, buffer.count, 0)
      if count > 0 { unsafe reader.append(UnsafeRawBufferPointer(rebasing: buffer[..<count])) }
      return count > 0 || (count < 0 && (errno == EAGAIN || errno == EINTR))
    }
    while let owner, let message = reader.next() {
      guard let answer = JQAnswer(message) else { return close() }
      owner.processAnswered(answer)
    }
    if !isOpen || reader.isOverLimit { close() }
  }

  private func close() {
    thread.loop.assertOnLoop()
    guard let registration else { return }
    self.registration = nil
    thread.loop.unregister(registration)
    let (reason, isForMemory) = reap()
    thread.forget(self)
    owner?.processEnded(reason, isForMemory: isForMemory)
  }

  // MARK: - The process

  /// Waits for a process that has ended or is about to: nothing else closes its end of the socket.
  /// - Returns: why it ended, and whether because of its memory.
  private func reap() -> (reason: String, isForMemory: Bool) {
    kill(id, SIGKILL)
    isReaped = true
    var status: CInt = 0
    while unsafe waitpid(id, &status, 0) < 0, errno == EINTR {}
    let signal = status & 0x7f
    switch (signal, status >> 8 & 0xff) {
    case (SIGPROF, _): return ("no result within \(timePerEvent) of processor time", false)
    case (0, JQWorker.outOfMemory): return ("more than \(JQWorker.memoryLimit >> 20) MiB of memory needed", true)
    case (0, let code): return ("jq exited with status \(code)", false)
    default: return unsafe ("jq was terminated by signal \(signal) (\(String(cString: strsignal(signal))))", false)
    }
  }
}
