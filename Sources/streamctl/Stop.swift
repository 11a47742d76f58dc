import Glibc
import StreamClient
import StreamRuntime

/// Why the program ends: its exit code, as in sysexits.h, and one line for standard error unless all is well.
struct Stop: Error, Equatable {
  let message: String?
  let exitCode: CInt
  /// No event came in time.
  var isSilence = false

  /// The work is done, or whoever read the output has had enough.
  static let done = Stop(nil, 0)

  /// Ended from outside; the code is what a shell says then.
  static func signal(_ number: CInt) -> Stop { Stop(nil, 128 + number) }

  /// EX_USAGE: the command line makes no sense.
  static func usage(_ message: String) -> Stop { Stop("\(message); see streamctl --help", 64) }

  /// EX_PROTOCOL: an answer that cannot be read.
  static func badAnswer(_ message: String) -> Stop { Stop(message, 76) }

  /// EX_OSERR: the system has no descriptor or thread left.
  static func system(_ error: SystemError) -> Stop { Stop(error.description, 71) }

  /// A write that failed: EX_IOERR, unless the reader is gone.
  static func output(_ error: SystemError) -> Stop {
    [EPIPE, ECONNRESET].contains(error.code) ? .done : Stop(error.description, 74)
  }

  /// EX_IOERR: a read that failed.
  static func input(_ error: SystemError) -> Stop { Stop(error.description, 74) }

  /// EX_DATAERR: a line that no request can carry.
  static func lineTooLong(_ number: Int, limit: Int) -> Stop {
    Stop("line \(number) has more than \(limit) bytes", 65)
  }

  /// EX_TEMPFAIL: everything else went well, but the subscription has missed events.
  static let lost = Stop(nil, 75)

  /// EX_UNAVAILABLE: no event came in time.
  static func silence(of name: String, _ timeout: Duration) -> Stop {
    Stop("no event of \"\(name)\" for \(timeout)", 69, isSilence: true)
  }

  /// EX_UNAVAILABLE: no daemon, for the moment.
  var isUnavailability: Bool { exitCode == 69 }

  /// One line on standard error, whatever the message holds: parts of it come from outside.
  static func say(_ message: String) {
    let line = Array("streamctl: \(Columns.printable(message))\n".utf8)
    _ = write(STDERR_FILENO, line, line.count)
  }

  private init(_ message: String?, _ exitCode: CInt, isSilence: Bool = false) {
    self.isSilence = isSilence
    self.message = message
    self.exitCode = exitCode
  }

  /// EX_NOPERM for what is refused, EX_UNAVAILABLE without a daemon, EX_DATAERR for options or values it does not take,
  /// EX_TEMPFAIL for who fell behind, EX_SOFTWARE for a stream that failed.
  init(_ error: StreamError) {
    let code: CInt =
      switch error {
      case .cannotConnect(let system): [EACCES, EPERM].contains(system.code) ? 77 : 69
      case .canceled, .disconnected: 69
      case .rejected: 77
      case .invalid, .cutOff: 65
      case .lagged: 75
      case .failed: 70
      }
    self.init(error.description, code)
  }
}
