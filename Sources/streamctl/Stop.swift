import Glibc
import StreamClient
import StreamRuntime

/// Why the program ends: its exit code, as in sysexits.h, and one line for standard error unless it succeeded.
struct Stop: Error, Equatable {
  let message: String?
  let exitCode: CInt
  /// Whether no event arrived in time.
  var isSilence = false
  /// Whether the daemon refused one request, and serves others on the connection.
  var isRefusal = false

  /// The work is done, or the reader of the output has closed it.
  static let done = Stop(nil, 0)

  /// The outcome of a check, which was printed.
  static func checked(_ verdict: StreamCheck.Verdict) -> Stop { Stop(nil, verdict.rawValue) }

  /// The program was ended by a signal; the exit code is the shell's for that signal.
  static func signal(_ number: CInt) -> Stop { Stop(nil, 128 + number) }

  /// EX_USAGE: invalid command line.
  /// - Parameter meant: what the user may have meant; nil: nothing is similar.
  static func usage(_ message: String, meant: String? = nil) -> Stop {
    Stop("\(message); \(meant.map { "did you mean \"\($0)\"?" } ?? "see streamctl --help")", 64)
  }

  /// EX_NOPERM, as the daemon's own answer: there is no such stream.
  static func noStream(_ name: String, meant: String?) -> Stop {
    Stop("no stream named \"\(name)\"" + (meant.map { "; did you mean \"\($0)\"?" } ?? ""), 77)
  }

  /// EX_PROTOCOL: unexpected reply from the daemon.
  static func badAnswer(_ message: String) -> Stop { Stop(message, 76) }

  /// EX_OSERR: the system has no descriptor or thread left.
  static func system(_ error: SystemError) -> Stop { Stop(error.description, 71) }

  /// A write that failed: EX_IOERR, unless the reader has closed the output.
  static func output(_ error: SystemError) -> Stop {
    [EPIPE, ECONNRESET].contains(error.code) ? .done : Stop(error.description, 74)
  }

  /// EX_IOERR: a read that failed.
  static func input(_ error: SystemError) -> Stop { Stop(error.description, 74) }

  /// EX_DATAERR: a line that exceeds the largest request.
  static func lineTooLong(_ number: Int, limit: Int) -> Stop {
    Stop("line \(number) has more than \(limit) bytes", 65)
  }

  /// EX_TEMPFAIL: the command succeeded, but the subscription has lost events.
  static let lost = Stop(nil, 75)

  /// EX_UNAVAILABLE: no event arrived in time.
  static func silence(of name: String, _ timeout: Duration) -> Stop {
    Stop("no event of \"\(name)\" for \(timeout)", 69, isSilence: true)
  }

  /// EX_UNAVAILABLE.
  static func unavailable(_ message: String) -> Stop { Stop(message, 69) }

  /// EX_NOPERM for a signal that may not be sent, EX_UNAVAILABLE without such a process.
  static func refused(_ error: SystemError) -> Stop { Stop(error.description, error.code == EPERM ? 77 : 69) }

  /// EX_NOPERM: there is no stream that the user may read.
  static func noStream(_ message: String) -> Stop { Stop(message, 77) }

  /// EX_CONFIG: the daemon's files have errors.
  static func configuration(_ message: String) -> Stop { Stop("configuration not reloaded: \(message)", 78) }

  /// EX_UNAVAILABLE: the connection or the wait ended after a reload was requested. A signal keeps its code.
  static func unknownOutcome(_ end: Stop) -> Stop {
    guard let message = end.message else { return end }
    return .unavailable("a reload was requested, but its outcome is unknown: \(message)")
  }

  /// EX_UNAVAILABLE: the daemon is not available at present.
  var isUnavailability: Bool { exitCode == 69 }

  /// Writes one line to standard error, escaped: parts of the message are untrusted.
  static func say(_ message: String) {
    let line = Array("streamctl: \(message.escapedForReading)\n".utf8)
    _ = unsafe write(STDERR_FILENO, line, line.count)
  }

  private init(_ message: String?, _ exitCode: CInt, isSilence: Bool = false) {
    self.isSilence = isSilence
    self.message = message
    self.exitCode = exitCode
  }

  /// EX_NOPERM for a refusal, EX_UNAVAILABLE without a daemon, EX_DATAERR for invalid options or values, EX_TEMPFAIL
  /// for a subscription that fell behind, EX_SOFTWARE for a stream that failed.
  init(_ error: StreamError) {
    let code: CInt =
      switch error {
      case .cannotConnect(let system): [EACCES, EPERM].contains(system.code) ? 77 : 69
      case .disconnected where error.isRefusalOfToken: 77
      case .canceled(_, .removed?): 77  // as for a stream that does not exist
      case .canceled, .disconnected: 69
      case .rejected: 77
      case .invalid, .cutOff: 65
      case .lagged: 75
      case .failed: 70
      }
    self.init(error.description + Self.hint(on: error), code)
    if case .rejected = error { isRefusal = true }
    if case .invalid = error { isRefusal = true }
  }

  private static func isHostAndPort(_ text: String) -> Bool {
    guard let colon = text.lastIndex(of: ":"), !text.contains("/") else { return false }
    let port = text[text.index(after: colon)...]
    return !port.isEmpty && port.allSatisfy(\.isNumber)
  }

  /// The end of a message: what a user can do about a failed connection.
  private static func hint(on error: StreamError) -> String {
    guard case .cannotConnect(let system) = error else { return "" }
    return switch system.code {
    case EACCES, EPERM: "; members of its group may connect: adduser NAME streamd, and log in again"
    case ENOENT where isHostAndPort(system.subject):
      "; this is read as a path, since an address of TCP is a host and a port from 1 to 65535, such as localhost:7878"
    case ENOENT,
      ECONNREFUSED where !isHostAndPort(system.subject):
      "; see systemctl status streamd.socket, or name another socket with --socket or STREAMD_SOCKET"
    case _: ""
    }
  }
}

extension StreamError {
  /// Whether the daemon refused the connection because of its token.
  var isRefusalOfToken: Bool { reason == .invalidToken }
}
