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
}

/// Starts this executable, or a substitute, for one of its own tasks: in its own process group, with no signal blocked
/// or ignored, an empty environment, and no descriptor open except standard input.
///
/// - Parameters:
///   - arguments: name the task.
///   - input: becomes its standard input.
/// - Throws: `posix_spawn`.
func spawnHelper(
  _ executable: String, _ arguments: [String], input: CInt
) throws(SystemError) -> pid_t {
  var helper = Spawn([executable])
  helper.arguments = ["streamd"] + arguments
  helper.descriptors[0] = .copy(input)
  helper.leadsGroup = true
  do throws(SystemError) {
    return try helper.start()
  } catch {
    throw SystemError(error.call, executable, code: error.code)
  }
}
