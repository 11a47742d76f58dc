import CSystemd
import Glibc
import StreamRuntime
import Synchronization

/// The service manager that started this process, if any: sends it notices and descriptors, and queries its job.
///
/// Notices never wait and never fail: where no manager listens, or it does not read its messages, they are lost.
public final class ServiceManager: Sendable {
  /// A notice for the service manager; see sd_notify(3).
  public enum Notice: Sendable, Equatable {
    /// Start-up is complete: clients are accepted and served.
    case ready
    /// A reload has begun; `ready` ends it, whatever its result.
    case reloading
    /// The daemon is stopping.
    case stopping
    /// One line for `systemctl status`. Control and format characters in it become spaces.
    case status(String)
    /// The keep-alive, see `Watchdog`.
    case watchdog
    /// Extends the timeout of the current start or stop to this much from now on.
    case extendTimeout(Duration)
  }

  /// Maximum number of notices that wait for a manager which does not read; there are a few per second at most.
  private static let waitingLimit = 64

  /// Whether a service manager expects notices (NOTIFY_SOCKET).
  public let isPresent: Bool

  /// The manager must receive keep-alives at most this far apart (WatchdogSec= of the unit); nil when no watchdog is
  /// set for this process.
  public let watchdogInterval: Duration?

  /// Maximum number of descriptors that the manager stores for this service; 0: it stores none. Further ones are lost.
  ///
  /// systemd passes it since version 254 (FDSTORE); before that the unit must, beside its FileDescriptorStoreMax=.
  public let storeLimit: Int

  private let queue = DroppingQueue(label: "streamd.notify", limit: waitingLimit)
  /// Separate from the notices, because no call may be dropped: at most one call per descriptor.
  private let storeQueue = DroppingQueue(label: "streamd.store", limit: .max)
  let hasTakenDescriptors = Atomic<Bool>(false)

  /// Reads the environment once.
  public init() {
    isPresent = unsafe getenv("NOTIFY_SOCKET") != nil
    storeLimit = unsafe isPresent ? getenv("FDSTORE").flatMap { unsafe Int(String(cString: $0)) } ?? 0 : 0
    var microseconds: UInt64 = 0
    watchdogInterval = unsafe sd_watchdog_enabled(0, &microseconds) > 0 ? .microseconds(microseconds) : nil
  }

  /// Sends all of `notices` in one message.
  public func notify(_ notices: Notice...) {
    guard isPresent, !notices.isEmpty else { return }
    let state = notices.map(\.assignment).joined(separator: "\n")
    _ = queue.carry { unsafe sd_notify(0, state) }
  }

  /// Waits until the manager has received all notices. For the end of the process.
  ///
  /// - Returns: false at the timeout.
  @discardableResult public func flush(within timeout: Duration) -> Bool {
    storeQueue.flush(within: timeout) && queue.flush(within: timeout)
  }

  /// Waits until the manager has also processed the stored descriptors: it cannot attribute a descriptor from a process
  /// that has ended by then.
  ///
  /// - Returns: false at the timeout.
  @discardableResult public func settle(within timeout: Duration) -> Bool {
    flush(within: timeout) && isPresent && sd_notify_barrier(0, UInt64(timeout.wholeMicroseconds)) >= 0
  }

  /// Stores a descriptor in the manager: the next process of this service receives it in `PassedDescriptors.stored`,
  /// however this process ends. Stopping the service permanently releases all of them.
  ///
  /// - Parameters:
  ///   - descriptor: still owned by the caller, which may close it at once.
  ///   - name: printable ASCII without a colon, at most 200 bytes; short, because all names must fit into one variable.
  public func store(_ descriptor: CInt, as name: String) {
    guard storeLimit > 0 else { return }
    let copy = fcntl(descriptor, F_DUPFD_CLOEXEC, 0)
    guard copy >= 0 else { return }
    // FDPOLL=0: otherwise the manager would poll for a hang-up, which memory never has, and would drop a socket when
    // its peer closes.
    let state = "FDSTORE=1\nFDPOLL=0\nFDNAME=" + PassedDescriptors.storedPrefix + name
    _ = storeQueue.carry {
      unsafe withUnsafePointer(to: copy) { _ = unsafe sd_pid_notify_with_fds(0, 0, state, $0, 1) }
      close(copy)
    }
  }

  /// Removes every descriptor stored under this name.
  public func removeStored(_ name: String) {
    guard isPresent else { return }
    let state = "FDSTOREREMOVE=1\nFDNAME=" + PassedDescriptors.storedPrefix + name
    _ = storeQueue.carry { unsafe sd_notify(0, state) }
  }
}

extension ServiceManager.Notice {
  /// The assignment in sd_notify's format. Newlines, which would begin another assignment, are replaced.
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
