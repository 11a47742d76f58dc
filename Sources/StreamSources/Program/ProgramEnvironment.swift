import Glibc

/// What a program finds in its environment.
enum ProgramEnvironment {
  /// What a service manager gives to the daemon alone: its sockets, its watchdog, its log, the folder of its secrets.
  /// A program that took these for its own would speak for the daemon. Source: systemd.exec(5), sd_listen_fds(3). And
  /// what the unit or the daemon sets for the daemon's own runtime.
  private static let daemonsOwn: Set<String> = [
    "CREDENTIALS_DIRECTORY", "FDSTORE", "JOURNAL_STREAM", "LIBDISPATCH_LOG", "LISTEN_FDNAMES", "LISTEN_FDS",
    "LISTEN_PID", "LISTEN_PIDFDID", "MAINPID", "MANAGERPID", "MANAGERPIDFDID", "MEMORY_PRESSURE_WATCH",
    "MEMORY_PRESSURE_WRITE", "NOTIFY_SOCKET", "SWIFT_BACKTRACE", "SYSTEMD_EXEC_PID", "WATCHDOG_PID", "WATCHDOG_USEC",
  ]

  /// `NAME=value`, one after the other: `inherited` without what is the daemon's own, with `more` in its place.
  static func assignments(inherited: [String], more: [String: String]) -> [String] {
    let kept = inherited.filter { assignment in
      let name = String(assignment.prefix { $0 != "=" })
      return !daemonsOwn.contains(name) && more[name] == nil
    }
    return kept + more.sorted { $0.key < $1.key }.map { "\($0.key)=\($0.value)" }
  }

  /// This process' own environment, as it was when first asked for.
  static let inherited: [String] = {
    var assignments: [String] = []
    var next = environ
    while let assignment = next.pointee {
      assignments.append(String(cString: assignment))
      next += 1
    }
    return assignments
  }()
}
