import CSystemd
import Glibc
import StreamRuntime

/// The descriptors that the service manager passed to this process: sockets of socket activation, valid and invalid
/// ones, and the descriptors that an earlier process of this service stored.
public struct PassedDescriptors: Sendable, Equatable {
  /// A listening stream socket. The receiver of this value owns the descriptor and closes it; it is close-on-exec.
  public struct Listener: Sendable, Equatable {
    /// The open descriptor.
    public let descriptor: CInt
    /// FileDescriptorName= of the socket unit; by default the unit's name.
    public let name: String
  }

  /// A stored descriptor. The receiver of this value owns the descriptor and closes it; it is close-on-exec. The
  /// manager also keeps a copy until it is removed by its name.
  public struct Stored: Sendable, Equatable {
    /// The open descriptor.
    public let descriptor: CInt
    /// The name under which it was stored; names may repeat.
    public let name: String
  }

  /// A descriptor that was closed because it cannot be used.
  public struct Refusal: Sendable, Equatable {
    /// As in `Listener`.
    public let name: String
    /// The reason, one sentence for the log.
    public let reason: String
  }

  /// In the order of the socket unit.
  public private(set) var listeners: [Listener] = []
  /// In no particular order: systemd lists the newest first. A user of some of them removes them.
  public var stored: [Stored] = []
  /// To be logged; empty when the socket unit is correct.
  public private(set) var refusals: [Refusal] = []

  /// The prefix that distinguishes names of stored descriptors from those of socket units.
  static let storedPrefix = "kept-"

  init(_ passed: [(descriptor: CInt, name: String)]) {
    for (descriptor, name) in passed {
      if name.hasPrefix(Self.storedPrefix) {
        stored.append(Stored(descriptor: descriptor, name: String(name.dropFirst(Self.storedPrefix.count))))
      } else if sd_is_socket(descriptor, AF_UNSPEC, CInt(SOCK_STREAM.rawValue), 1) > 0 {
        listeners.append(Listener(descriptor: descriptor, name: name))
      } else {
        LocalSocket.close(descriptor)
        refusals.append(Refusal(name: name, reason: "descriptor \(descriptor) is not a listening stream socket"))
      }
    }
  }
}

extension ServiceManager {
  /// Takes all passed descriptors, once: a second call returns none, and a child process gets none.
  ///
  /// Does not change the environment, since other threads may be reading it: a child process finds LISTEN_FDS there,
  /// with a LISTEN_PID that is not its own.
  public func takeDescriptors() -> PassedDescriptors {
    guard !hasTakenDescriptors.exchange(true, ordering: .relaxed) else { return PassedDescriptors([]) }
    var names: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>?
    let count = unsafe sd_listen_fds_with_names(0, &names)
    guard count > 0 else { return PassedDescriptors([]) }
    defer { unsafe free(names) }
    let first: CInt = 3  // SD_LISTEN_FDS_START, a macro that Swift does not import
    return PassedDescriptors(
      (0..<count).map { index in
        let name = unsafe names?[Int(index)]
        defer { unsafe free(name) }
        return unsafe (first + index, name.map { unsafe String(cString: $0) } ?? "unknown")
      })
  }
}
