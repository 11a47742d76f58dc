import Glibc
import StreamRuntime

/// The daemon's own program once more, for what must not be done in its process.
public enum HelperProcess {
  /// Becomes such a process if the arguments say so, and returns otherwise. To be called before anything else.
  public static func runIfAsked() {
    switch CommandLine.arguments.dropFirst().first {
    case JQWorker.argument: JQWorker.run()
    case ProgramGuard.argument: ProgramGuard.run()
    default: break
    }
  }
}

/// Starts this program, or what stands in for it, once more for one of its own tasks: in a process group of its own, with no
/// signal blocked or ignored, an empty environment, and nothing open but standard input.
///
/// - Parameters:
///   - arguments: what the process does.
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
