import CSystemd
import Glibc
import StreamRuntime
import Synchronization

/// The service manager that started this process, if there is one: what it is told and what it asks for.
///
/// Telling it something never waits and never fails: where no manager listens, or it does not take its messages, they
/// are lost and nothing else happens.
public final class ServiceManager: Sendable {
  /// One thing to tell the service manager; see sd_notify(3).
  public enum Notice: Sendable, Equatable {
    /// Start-up is over: clients are accepted and answered.
    case ready
    /// The configuration is read anew from this moment on; `ready` ends that, whatever has come of it.
    case reloading
    /// The way out has begun.
    case stopping
    /// One line for `systemctl status`. Control and format characters in it become spaces.
    case status(String)
    /// The keep-alive, see `Watchdog`.
    case watchdog
    /// The running start or stop may take this much longer, from now on.
    case extendTimeout(Duration)
  }

  /// Messages that may wait for a manager which does not read; there are a few per second at most.
  private static let waitingLimit = 64

  /// Whether a service manager asked to be told (NOTIFY_SOCKET).
  public let isPresent: Bool

  /// Within this time of the last keep-alive the next has to arrive (WatchdogSec= of the unit); nil when no watchdog
  /// is set for this process.
  public let watchdogInterval: Duration?

  /// Descriptors that the manager keeps for this service, at most; 0 where it keeps none. What is over it is lost.
  ///
  /// systemd tells since version 254 (FDSTORE); before that the unit has to, beside its FileDescriptorStoreMax=.
  public let storeLimit: Int

  private let queue = DroppingQueue(label: "streamd.notify", limit: waitingLimit)
  /// Apart, as nothing of it may be dropped: there are as many as descriptors, at most.
  private let storeQueue = DroppingQueue(label: "streamd.store", limit: .max)
  let hasTakenDescriptors = Atomic<Bool>(false)

  /// Reads the environment once.
  public init() {
    isPresent = unsafe getenv("NOTIFY_SOCKET") != nil
    storeLimit = unsafe isPresent ? getenv("FDSTORE").flatMap { unsafe Int(String(cString: $0)) } ?? 0 : 0
    var microseconds: UInt64 = 0
    watchdogInterval = unsafe sd_watchdog_enabled(0, &microseconds) > 0 ? .microseconds(microseconds) : nil
  }

  /// Tells the manager all of `notices` in one message.
  public func notify(_ notices: Notice...) {
    guard isPresent, !notices.isEmpty else { return }
    let state = notices.map(\.assignment).joined(separator: "\n")
    _ = queue.carry { unsafe sd_notify(0, state) }
  }

  /// Waits until the manager has all that it was told before. For the moment before the process ends.
  ///
  /// - Returns: false when `timeout` ran out first.
  @discardableResult public func flush(within timeout: Duration) -> Bool {
    storeQueue.flush(within: timeout) && queue.flush(within: timeout)
  }

  /// Waits until the manager has also dealt with what was stored: it cannot tell whose a descriptor is that comes from a
  /// process which has ended by then.
  ///
  /// - Returns: false when `timeout` ran out first.
  @discardableResult public func settle(within timeout: Duration) -> Bool {
    flush(within: timeout) && isPresent && sd_notify_barrier(0, UInt64(timeout.wholeMicroseconds)) >= 0
  }

  /// Gives a descriptor into the manager's keeping: the next process of this service gets it, however this one ends, as
  /// one of `PassedDescriptors.stored`. Stopping the service for good lets all of them go.
  ///
  /// - Parameters:
  ///   - descriptor: stays the caller's, who may close it at once.
  ///   - name: printable ASCII without a colon, at most 200 bytes; short, as all names have to fit into one variable.
  public func store(_ descriptor: CInt, as name: String) {
    guard storeLimit > 0 else { return }
    let copy = fcntl(descriptor, F_DUPFD_CLOEXEC, 0)
    guard copy >= 0 else { return }
    // FDPOLL=0: the manager would watch for an end that memory never has, and let go of a socket at its peer's.
    let state = "FDSTORE=1\nFDPOLL=0\nFDNAME=" + PassedDescriptors.storedPrefix + name
    _ = storeQueue.carry {
      unsafe withUnsafePointer(to: copy) { _ = unsafe sd_pid_notify_with_fds(0, 0, state, $0, 1) }
      close(copy)
    }
  }

  /// Lets go of every descriptor that was stored under this name.
  public func removeStored(_ name: String) {
    guard isPresent else { return }
    let state = "FDSTOREREMOVE=1\nFDNAME=" + PassedDescriptors.storedPrefix + name
    _ = storeQueue.carry { unsafe sd_notify(0, state) }
  }
}

extension ServiceManager.Notice {
  /// As sd_notify wants it. A newline would begin another assignment, so none gets through.
  var assignment: String {
    switch self {
    case .ready: "READY=1"
    case .reloading: "RELOADING=1\nMONOTONIC_USEC=\(EventLoop.monotonicNow() / 1000)"
    case .stopping: "STOPPING=1"
    case .status(let text):
      "STATUS=" + String(String.UnicodeScalarView(text.unicodeScalars.map { $0.isDeceptive ? " " : $0 }))
    case .watchdog: "WATCHDOG=1"
    case .extendTimeout(let time): "EXTEND_TIMEOUT_USEC=\(max(0, time.wholeMicroseconds))"
    }
  }
}

extension String {
  /// On one line, with escapes for what would forge a line or steer a terminal, as in the journal.
  public var escapedForTerminal: String {
    unicodeScalars.reduce(into: "") { $0 += $1.isDeceptive ? $1.escaped(asASCII: true) : String($1) }
  }
}

extension Unicode.Scalar {
  /// Whether it would show as something else than itself: control characters (C0, DEL, C1), which move a terminal's
  /// cursor; format characters (bidirectional controls, zero-width characters), which reorder or hide what stands beside
  /// them; and the separators of lines and paragraphs.
  var isDeceptive: Bool {
    guard value >= 0x7f else { return value < 0x20 }
    return switch properties.generalCategory {
    case .control, .format, .lineSeparator, .paragraphSeparator: true
    default: false
    }
  }
}
