import CLinux
import StreamRuntime

/// How a program ended.
enum ProgramEnding: Equatable {
  case exited(status: CInt)
  case signalled(CInt)
  /// It closed its output and did not exit within this time, so it was ended.
  case closedOutput(Duration)
  /// Its output could not be read any more, so it was ended.
  case unreadable(SystemError)
  /// Other code in this process has reaped it.
  case unknown

  /// - Parameter status: from waitpid(2).
  init(status: CInt) {
    let signal = status & 0x7F
    self = signal == 0 ? .exited(status: status >> 8 & 0xFF) : .signalled(signal)
  }

  /// The failure, as a sentence that follows the program's name; nil for a success.
  var fault: String? {
    switch self {
    case .exited(status: 0): nil
    case .exited(let status): "exited with status \(status)"
    case .signalled(let signal):
      unsafe "was terminated by \(sigabbrev_np(signal).map { unsafe "SIG" + String(cString: $0) } ?? "signal \(signal)")"
    case .closedOutput(let grace): "closed its output and did not exit within \(grace.inWords)"
    case .unreadable(let error): "cannot be read: \(error)"
    case .unknown: "ended with an unknown status"
    }
  }
}
