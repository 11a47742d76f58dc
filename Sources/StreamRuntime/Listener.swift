import CLinux
import Glibc

/// Accepts connections on one loop, and pauses when the machine has no more descriptors or memory for them.
public final class Listener: EventLoop.Handler {
  private let descriptor: OwnedDescriptor
  /// The descriptor, which is open as long as this exists.
  public var raw: CInt { descriptor.raw }
  private let loop: EventLoop
  private let accepted: (consuming OwnedDescriptor) -> Void
  private let paused: (SystemError) -> Void
  private var registration: EventLoop.Registration?
  private var retry: TimerID?

  /// Maximum connections accepted per turn, so that a burst does not delay existing connections.
  private static let acceptsPerTurn = 64
  /// The pause when the table is full: without it accepting would spin, because the waiting connection stays readable.
  private static let pause = Duration.seconds(1)

  /// - Parameters:
  ///   - descriptor: a listening stream socket; made non-blocking here, and connections to it refuse descriptors.
  ///   - accepted: receives each new connection, non-blocking and closed on exec.
  ///   - paused: called once per pause with its cause (`EMFILE`, `ENFILE`, `ENOBUFS`, `ENOMEM`; at the start also
  ///     `ENOSPC`, when the kernel watches no more descriptors); accepting resumes by itself after a second.
  public init(
    _ descriptor: consuming OwnedDescriptor, on loop: EventLoop,
    accepted: @escaping (consuming OwnedDescriptor) -> Void, paused: @escaping (SystemError) -> Void
  ) {
    self.descriptor = descriptor
    self.loop = loop
    self.accepted = accepted
    self.paused = paused
    LocalSocket.refuseDescriptors(on: raw)
    _ = fcntl(self.descriptor.raw, F_SETFL, fcntl(self.descriptor.raw, F_GETFL) | O_NONBLOCK)
  }

  /// Starts accepting; while that fails, tries again each second. On the loop.
  public func start() {
    do throws(SystemError) {
      registration = try loop.register(descriptor.raw, for: .readable, handler: self)
    } catch {
      retry = loop.schedule(after: Self.pause) { [weak self] in
        self?.retry = nil
        self?.start()
      }
      paused(error)
    }
  }

  /// Stops accepting. On the loop. Connections in the backlog stay there until the socket is closed.
  public func stop() {
    if let registration { loop.unregister(registration) }
    if let retry { loop.cancel(retry) }
    registration = nil
    retry = nil
  }

  /// Accepts waiting connections, up to one turn's limit.
  public func descriptorIsReady(_ readiness: EventLoop.Readiness) {
    for _ in 0..<Self.acceptsPerTurn {
      let raw = accept4(descriptor.raw, nil, nil, CInt(SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue))
      let code = errno
      if raw >= 0 {
        if LocalSocket.refuseDescriptors(on: raw) {
          accepted(OwnedDescriptor(raw))
        } else {
          LocalSocket.closeAside(raw)
        }
        continue
      }
      switch code {
      case EMFILE, ENFILE, ENOBUFS, ENOMEM:
        pauseAccepting()
        paused(SystemError("accept", code: code))
        return
      case EINTR, ECONNABORTED: continue  // the peer aborted; continue with the next
      default: return  // EAGAIN: none left
      }
    }
  }

  private func pauseAccepting() {
    guard let registration else { return }
    loop.update(registration, for: [])
    retry = loop.schedule(after: Self.pause) { [weak self] in
      guard let self, let registration = self.registration else { return }
      retry = nil
      loop.update(registration, for: .readable)
    }
  }
}
