import CLinux
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
  var actions = posix_spawn_file_actions_t()
  posix_spawn_file_actions_init(&actions)
  defer { posix_spawn_file_actions_destroy(&actions) }
  posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO)
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0)
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO)
  posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1)
  var attributes = posix_spawnattr_t()
  posix_spawnattr_init(&attributes)
  defer { posix_spawnattr_destroy(&attributes) }
  // No signal blocked or ignored, and out of the terminal's reach: the daemon ends it.
  var none = sigset_t()
  var all = sigset_t()
  sigemptyset(&none)
  sigfillset(&all)
  posix_spawnattr_setsigmask(&attributes, &none)
  posix_spawnattr_setsigdefault(&attributes, &all)
  posix_spawnattr_setpgroup(&attributes, 0)
  posix_spawnattr_setflags(
    &attributes, Int16(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP))
  let words = (["streamd"] + arguments).map { strdup($0) }
  defer { words.forEach { free($0) } }
  var id = pid_t()
  let result = posix_spawn(&id, executable, &actions, &attributes, words + [nil], [nil])
  guard result == 0 else { throw SystemError("posix_spawn", executable, code: result) }
  return id
}
