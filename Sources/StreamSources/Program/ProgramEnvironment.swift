import Glibc

/// The environment of a program.
enum ProgramEnvironment {
  /// The variables that a service manager sets for the daemon alone: its sockets, its watchdog, its log, its
  /// credentials directory. A program that used these would act as the daemon. Source: systemd.exec(5),
  /// sd_listen_fds(3). Also the variables that the unit or the daemon sets for the daemon's own runtime.
  private static let daemonsOwn: Set<String> = [
    "CREDENTIALS_DIRECTORY", "FDSTORE", "JOURNAL_STREAM", "LIBDISPATCH_LOG", "LISTEN_FDNAMES", "LISTEN_FDS",
    "LISTEN_PID", "LISTEN_PIDFDID", "MAINPID", "MANAGERPID", "MANAGERPIDFDID", "MEMORY_PRESSURE_WATCH",
    "MEMORY_PRESSURE_WRITE", "NOTIFY_SOCKET", "SWIFT_BACKTRACE", "SYSTEMD_EXEC_PID", "WATCHDOG_PID", "WATCHDOG_USEC",
  ]

  /// `NAME=value` strings: `inherited` without the daemon's own variables, overridden by `more`.
  static func assignments(inherited: [String], more: [String: String]) -> [String] {
    let kept = inherited.filter { assignment in
      let name = String(assignment.prefix { $0 != "=" })
      return !daemonsOwn.contains(name) && more[name] == nil
    }
    return kept + more.sorted { $0.key < $1.key }.map { "\($0.key)=\($0.value)" }
  }

  /// This process' environment at the first use.
  static let inherited: [String] = {
    var assignments: [String] = []
    var next = unsafe environ
    while let assignment = unsafe next.pointee {
      unsafe assignments.append(String(cString: assignment))
      unsafe next += 1
    }
    return assignments
  }()
}
