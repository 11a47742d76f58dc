import CLinux
import Glibc

/// Signals as events of a loop. Create it first in `main`: threads started later inherit the blocked set, so that no
/// signal interrupts a thread.
public final class Signals: EventLoop.Handler {
  private let descriptor: OwnedDescriptor
  private let received: (CInt) -> Void

  /// - Parameters:
  ///   - numbers: blocked for the process and delivered to `received`, on the loop. SIGPIPE is also ignored: a closed
  ///     peer is reported as EPIPE.
  /// - Throws: `signalfd`, when the process has no free descriptor.
  public init(_ numbers: [CInt], on loop: EventLoop, received: @escaping (CInt) -> Void) throws(SystemError) {
    var set = sigset_t()
    unsafe sigemptyset(&set)
    for number in numbers { unsafe sigaddset(&set, number) }
    signal(SIGPIPE, SIG_IGN)
    unsafe pthread_sigmask(SIG_BLOCK, &set, nil)
    let raw = unsafe signalfd(-1, &set, CInt(SFD_CLOEXEC | SFD_NONBLOCK))
    guard raw >= 0 else { throw SystemError("signalfd") }
    descriptor = OwnedDescriptor(raw)
    self.received = received
    _ = try loop.register(raw, for: .readable, handler: self)
  }

  /// Delivers every pending signal.
  public func descriptorIsReady(_ readiness: EventLoop.Readiness) {
    var info = signalfd_siginfo()
    while unsafe read(descriptor.raw, &info, MemoryLayout<signalfd_siginfo>.size) == MemoryLayout<signalfd_siginfo>.size
    {
      received(CInt(info.ssi_signo))
    }
  }
}
