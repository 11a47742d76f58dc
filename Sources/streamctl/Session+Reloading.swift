import Dispatch
import Glibc
import StreamClient
import StreamProtocol
import StreamRuntime

extension Session {
  /// The interval at which a wait for the outcome checks that the daemon still runs. The connection need not show it:
  /// the service manager's socket accepts connections without a daemon.
  private static let checkInterval = DispatchTimeInterval.milliseconds(250)

  /// Makes a daemon reload its configuration, and waits for the outcome.
  ///
  /// - Parameters:
  ///   - process: the daemon's process.
  ///   - timeout: maximum wait for the outcome.
  /// - Throws: unless the daemon serves its files. The signal may have been sent.
  func reload(_ process: pid_t, within timeout: Duration) throws(Stop) {
    let start = EventLoop.monotonicNow() / 1000
    // SIGHUP ends most other programs.
    if let name = Self.name(of: process), name != "streamd" {
      throw .unavailable("process \(process) is \"\(name)\", not streamd")
    }
    guard kill(process, SIGHUP) == 0 else { throw .refused(SystemError("kill", "process \(process)")) }
    connection.stream("$config", options: SubscribeOptions(from: .latest, onLag: .latest)).subscribe(inbox)
    inbox.request(1)
    let deadline = Self.deadline(timeout)
    while true {
      let (events, end) = inbox.takeAll()
      if let event = events.last {
        let report = try ConfigurationReport(event)
        // The files were read after the signal: by this reload or a later one.
        if let readAt = report.readAt, readAt >= start {
          if let error = report.error { throw .configuration(error) }
          return
        }
        inbox.request(1)
      } else if let end {
        throw .unknownOutcome(end)
      } else if kill(process, 0) != 0 {
        throw .unknownOutcome(.unavailable("process \(process) has ended"))
      } else if .now() >= deadline {
        throw .unknownOutcome(.unavailable("no reply from the daemon for \(timeout)"))
      }
      _ = inbox.wait(until: min(deadline, .now() + Self.checkInterval))
    }
  }

  /// The name of a process's program; nil if there is none, or if it is hidden from this user. Such a user may not
  /// signal the process either.
  private static func name(of process: pid_t) -> String? {
    guard let file = unsafe fopen("/proc/\(process)/comm", "re") else { return nil }
    defer { unsafe fclose(file) }
    var room = [CChar](repeating: 0, count: 64)  // the kernel keeps 15 bytes
    guard let line = unsafe fgets(&room, CInt(room.count), file) else { return nil }
    return unsafe String(cString: line).split(separator: "\n").first.map(String.init)
  }
}
