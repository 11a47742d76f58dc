import Glibc
import StreamRuntime

/// The daemon's own executable, run again for a task that must not run in its process.
public enum HelperProcess {
  /// Runs the task, without returning, if the arguments name one. Must be called first in `main`.
  public static func runIfAsked() {
    switch CommandLine.arguments.dropFirst().first {
    case JQWorker.argument: JQWorker.run()
    case ProgramGuard.argument: ProgramGuard.run()
    case JournalWorker.argument: JournalWorker.run()
    default: break
    }
  }

  private static let variable = "STREAMD_HELPER_"

  /// The task's values as an environment: every user may read the arguments of a process, and only its user and root the
  /// environment.
  static func environment(_ values: [String]) -> [String] {
    values.enumerated().map { "\(variable)\($0.offset)=\($0.element)" }
  }

  /// Takes the task's values out of this process' environment.
  static func takeValues() -> [String] {
    var values: [String] = []
    while let value = unsafe getenv(variable + "\(values.count)") { values.append(unsafe String(cString: value)) }
    clearenv()
    return values
  }

  /// In the helper: sends bytes to the daemon, by standard input, which is a socket. Blocks; the process ends with it.
  static func send(_ bytes: [UInt8]) {
    var sent = 0
    while sent < bytes.count {
      let count = unsafe bytes.withUnsafeBytes {
        unsafe write(STDIN_FILENO, $0.baseAddress.map { unsafe $0 + sent }, bytes.count - sent)
      }
      guard count > 0 else { exit(0) }
      sent += count
    }
  }
}

/// Starts this executable, or a substitute, for one of its own tasks: in its own process group, with no signal blocked
/// or ignored, only `values` in its environment, and no descriptor open except standard input.
///
/// - Parameters:
///   - task: its argument.
///   - values: for `HelperProcess.takeValues`; without NUL.
///   - input: becomes its standard input.
/// - Throws: `posix_spawn`.
func spawnHelper(
  _ executable: String, _ task: String, _ values: [String] = [], input: CInt
) throws(SystemError) -> pid_t {
  var helper = Spawn([executable])
  helper.arguments = ["streamd", task]
  helper.environment = HelperProcess.environment(values)
  helper.descriptors[0] = .copy(input)
  helper.leadsGroup = true
  do throws(SystemError) {
    return try helper.start()
  } catch {
    throw SystemError(error.call, executable, code: error.code)
  }
}
