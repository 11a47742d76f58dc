import CLinux
import StreamRuntime

/// How a program came to its end.
enum ProgramEnding: Equatable {
  case exited(status: CInt)
  case signalled(CInt)
  /// It closed its output and did not exit within this, so it was ended.
  case closedOutput(Duration)
  /// What it wrote can no longer be read, so it was ended.
  case unreadable(SystemError)
  /// Somebody else in this process has taken the news of its end.
  case unknown

  /// - Parameter status: as from waitpid(2).
  init(status: CInt) {
    let signal = status & 0x7F
    self = signal == 0 ? .exited(status: status >> 8 & 0xFF) : .signalled(signal)
  }

  /// What was wrong with it, in a sentence after the program's name; nil when nothing was.
  var fault: String? {
    switch self {
    case .exited(status: 0): nil
    case .exited(let status): "exited with status \(status)"
    case .signalled(let signal):
      "was terminated by \(sigabbrev_np(signal).map { "SIG" + String(cString: $0) } ?? "signal \(signal)")"
    case .closedOutput(let grace): "closed its output and did not exit within \(grace.wholeMilliseconds) ms"
    case .unreadable(let error): "cannot be read: \(error)"
    case .unknown: "ended with an unknown status"
    }
  }
}
