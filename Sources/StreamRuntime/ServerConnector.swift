import CLinux
import Glibc

/// Connects to a server of TCP: looks its name up on a thread, and tries the addresses. The next attempt begins when one has
/// failed, or 250 ms after it; the first connection that is made is used. So an address that does not answer, such as one of
/// IPv6 in a network without it, costs 250 ms. Confined to a loop. Source: RFC 8305.
package final class ServerConnector: @unchecked Sendable {  // confined to the loop, which is checked
  /// One address, while it is being connected to.
  private final class Attempt: EventLoop.Handler {
    let raw: CInt
    /// Whether this object closes the socket.
    var isOwner = true
    weak var connector: ServerConnector?
    var registration: EventLoop.Registration?

    init(_ raw: CInt, _ connector: ServerConnector) { (self.raw, self.connector) = (raw, connector) }

    deinit { if isOwner { close(raw) } }

    func descriptorIsReady(_ readiness: EventLoop.Readiness) { connector?.ready(self) }
  }

  /// Source: RFC 8305, section 5, "Connection Attempt Delay".
  private static let attemptDelay = Duration.milliseconds(250)

  private let loop: EventLoop
  /// nil: it has ended.
  private var completed: ((Result<CInt, SystemError>) -> Void)?
  private var rest: ArraySlice<InternetAddress> = []
  private var attempts: [Attempt] = []
  private var timer: TimerID?
  private var lastError = SystemError("connect", code: EHOSTUNREACH)

  /// Begins. On the loop.
  ///
  /// - Parameter completed: called once on the loop, not within this call, unless `cancel` is called before: with a
  ///   connected socket, which the receiver then owns, or with the error of the look-up or of the last attempt.
  package convenience init(
    to host: String, port: UInt16, on loop: EventLoop,
    completed: @escaping (Result<CInt, SystemError>) -> Void
  ) {
    self.init(
      to: { () throws(SystemError) in try InternetAddress.all(ofName: host, port: port) }, on: loop,
      completed: completed)
  }

  /// - Parameter lookUp: returns the addresses; may block.
  init(
    to lookUp: @escaping @Sendable () throws(SystemError) -> [InternetAddress], on loop: EventLoop,
    completed: @escaping (Result<CInt, SystemError>) -> Void
  ) {
    loop.assertOnLoop()
    (self.loop, self.completed) = (loop, completed)
    do throws(SystemError) {
      try BackgroundThread.start(name: "look-up") { [self] in
        let result: Result<[InternetAddress], SystemError>
        do throws(SystemError) { result = .success(try lookUp()) } catch { result = .failure(error) }
        loop.execute { self.found(result) }
      }
    } catch {
      loop.execute { [self] in end(.failure(error)) }
    }
  }

  /// Ends it without a connection.
  package func cancel() {
    loop.assertOnLoop()
    completed = nil
    letGo()
  }

  private func found(_ result: Result<[InternetAddress], SystemError>) {
    guard completed != nil else { return }
    switch result {
    case .success(let addresses):
      rest = addresses[...]
      attemptNext()
    case .failure(let error): end(.failure(error))
    }
  }

  private func attemptNext() {
    if let timer { loop.cancel(timer) }
    timer = nil
    while let address = rest.popFirst() {
      do throws(SystemError) {
        let attempt = Attempt(try TCPSocket.connect(to: address).release(), self)
        attempt.registration = try loop.register(attempt.raw, for: .writable, handler: attempt)
        attempts.append(attempt)
        guard !rest.isEmpty else { return }
        timer = loop.schedule(after: Self.attemptDelay) { [weak self] in
          self?.timer = nil
          self?.attemptNext()
        }
        return
      } catch {
        lastError = error
      }
    }
    if attempts.isEmpty { end(.failure(lastError)) }
  }

  private func ready(_ attempt: Attempt) {
    guard completed != nil else { return }
    var (code, size) = (CInt(0), socklen_t(MemoryLayout<CInt>.size))
    if unsafe getsockopt(attempt.raw, SOL_SOCKET, SO_ERROR, &code, &size) < 0 { code = errno }
    if let registration = attempt.registration { loop.unregister(registration) }
    attempts.removeAll { $0 === attempt }
    guard code == 0 else {
      lastError = SystemError("connect", code: code)
      return attemptNext()
    }
    attempt.isOwner = false
    end(.success(attempt.raw))
  }

  private func end(_ result: Result<CInt, SystemError>) {
    letGo()
    completed.take()?(result)
  }

  private func letGo() {
    if let timer { loop.cancel(timer) }
    timer = nil
    for attempt in attempts { if let registration = attempt.registration { loop.unregister(registration) } }
    (attempts, rest) = ([], [])
  }
}
