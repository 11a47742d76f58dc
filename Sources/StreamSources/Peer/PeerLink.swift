import CLinux
import Glibc
import RSocket
import StreamRuntime

/// One connection to another streamd, from its beginning to its end. Confined to the source thread.
///
/// The socket is read only while events are wanted and all received ones are taken: what nobody has requested stays in
/// it. While it is not read, it is not watched, because a closed socket would be reported in every turn.
final class PeerLink: EventLoop.Handler, @unchecked Sendable {  // confined to the loop, which is checked
  /// Receives what comes. Each call is on the source thread.
  protocol Owner: AnyObject {
    /// Whether a part may be brought now.
    var isWanted: Bool { get }
    /// The other side has accepted the connection, this long after its beginning.
    func peerAnswered(after time: Duration)
    func peerSent(byteCount: Int)
    func peerBrought(_ part: PeerMachine.Part)
    /// The last call.
    func peerEnded(_ ending: PeerMachine.Ending)
  }

  private final class Socket {
    let descriptor: OwnedDescriptor
    /// nil: it is not watched.
    var registration: EventLoop.Registration?
    var watchesWriting = false

    init(_ descriptor: consuming OwnedDescriptor) { self.descriptor = descriptor }
  }

  private static let readByteCount = 64 << 10

  private let loop: EventLoop
  private weak var owner: (any Owner)?
  private var machine: PeerMachine
  private var socket: Socket?
  /// While it looks for an address of the other side.
  private var connector: ServerConnector?
  private let beganAt: Duration
  private var hasAnswered = false
  private var isOver = false
  private var timer: (id: TimerID, due: Duration)?

  init(_ machine: PeerMachine, on loop: EventLoop, owner: any Owner) {
    (self.machine, self.loop, self.owner) = (machine, loop, owner)
    beganAt = EventLoop.monotonicTime
  }

  /// Begins to connect.
  func open() {
    loop.assertOnLoop()
    do throws(SystemError) {
      if let made = try machine.configuration.address.connect() {
        socket = Socket(made)
      } else if case .tcp(let host, let port) = machine.configuration.address {
        connector = ServerConnector(to: host, port: port, on: loop) { [weak self] in self?.connected($0) }
      }
      proceed()
    } catch {
      finish(failed(error))
    }
  }

  private func connected(_ result: Result<CInt, SystemError>) {
    connector = nil
    guard !isOver else { return }
    switch result {
    case .failure(let error): finish(failed(error))
    case .success(let raw):
      socket = Socket(OwnedDescriptor(raw))
      proceed()
    }
  }

  private func failed(_ error: SystemError) -> PeerMachine.Ending {
    let address = machine.configuration.address
    let place = machine.isAnswered ? "the connection to \(address) has failed" : "cannot connect to \(address)"
    return .init(failure: SourceFailure("\(place): \(error.reason)"))
  }

  // MARK: Turns

  func descriptorIsReady(_ readiness: EventLoop.Readiness) {
    guard !isOver else { return }
    if readiness.contains(.readable) {
      if mayRead { read() } else { unwatch() }
    }
    proceed()
  }

  /// Continues after a change of the owner's demand, and at the machine's times.
  func proceed() {
    guard !isOver else { return }
    while isWanted, let part = machine.takePart() { owner?.peerBrought(part) }
    guard !isOver else { return }  // the owner may have closed it
    if !machine.hasParts, let ending = machine.ending { return finish(ending) }
    let now = EventLoop.monotonicTime
    machine.session.setReading(mayRead, at: now)
    do throws(PeerMachine.Ending) {
      keepTime(try machine.next(at: now))
    } catch {
      return finish(error)
    }
    write()
    guard let socket else { return }
    // The output is lost. Only if the other side has closed the connection, there may be more to read.
    if let code = machine.session.writeError, code != EPIPE, code != ECONNRESET {
      return finish(failed(SystemError("write", code: code)))
    }
    guard !machine.session.isUnread else { return finish(.unread) }
    do throws(SystemError) {
      try watch(socket)
    } catch {
      finish(.init(failure: SourceFailure("the connection cannot be watched: \(error)")))
    }
  }

  private var isWanted: Bool { owner?.isWanted == true }

  private var mayRead: Bool { isWanted && !machine.hasParts }

  private func watch(_ socket: Socket) throws(SystemError) {
    let watchesWriting = machine.session.awaitsSocket
    let interest: EventLoop.Readiness = watchesWriting ? [.readable, .writable] : .readable
    if let registration = socket.registration {
      if watchesWriting != socket.watchesWriting { loop.update(registration, for: interest) }
    } else if mayRead {
      socket.registration = try loop.register(socket.descriptor.raw, for: interest, handler: self)
    }
    socket.watchesWriting = watchesWriting
  }

  private func unwatch() {
    if let registration = socket?.registration.take() { loop.unregister(registration) }
  }

  /// Calls `proceed` at that time, unless it is called sooner.
  private func keepTime(_ due: Duration) {
    if let timer {
      guard due < timer.due else { return }
      loop.cancel(timer.id)
    }
    let id = loop.schedule(after: due - EventLoop.monotonicTime) { [weak self] in
      self?.timer = nil
      self?.proceed()
    }
    timer = (id, due)
  }

  private func read() {
    guard let socket else { return }
    let failure: PeerMachine.Ending? = unsafe withUnsafeTemporaryAllocation(
      byteCount: Self.readByteCount, alignment: 16
    ) { buffer in
      let count = unsafe LocalSocket.receive(socket.descriptor.raw, into: buffer)
      let code = errno
      if count > 0 {
        owner?.peerSent(byteCount: count)
        unsafe machine.receive(UnsafeRawBufferPointer(rebasing: buffer[..<count]), at: EventLoop.monotonicTime)
      } else if count == 0 {
        // Over TCP, the first use of the socket shows whether the connection was made.
        guard let error = machine.session.writeError, error != EPIPE, !machine.isAnswered else { return .closed }
        return failed(SystemError("connect", code: error))
      } else if code != EAGAIN && code != EINTR {
        return machine.isAnswered ? .closed : failed(SystemError("read", code: code))
      }
      return nil
    }
    if let failure { return finish(failure) }
    guard machine.isAnswered, !hasAnswered else { return }
    hasAnswered = true
    owner?.peerAnswered(after: EventLoop.monotonicTime - beganAt)
  }

  private func write() {
    guard let raw = socket?.descriptor.raw else { return }
    unsafe machine.session.write { unsafe LocalSocket.send(raw, $0) }
  }

  // MARK: The end

  private func finish(_ ending: PeerMachine.Ending) {
    write()  // the reason, if the other side has violated the protocol
    let owner = owner
    close()
    owner?.peerEnded(ending)
  }

  /// Closes it; the owner is not called any more.
  func close() {
    isOver = true
    owner = nil
    unwatch()
    socket = nil
    connector?.cancel()
    connector = nil
    if let timer { loop.cancel(timer.id) }
    timer = nil
  }
}
