import CLinux
import EventLoop
import Glibc
import RSocket

/// The limit to compare with: a process that accepts, reads once, writes a ready-made answer and closes, and does nothing
/// else. It is this program again, told so by its arguments.
final class BareServer {
  static let argument = "--bare-server"

  let path = "/tmp/streambench-bare-\(getpid())"
  private let child: pid_t

  init() throws {
    child = try spawn(["/proc/self/exe", Self.argument, path], environment: [])
    while access(path, F_OK) != 0 { usleep(1000) }
  }

  deinit {
    kill(child, SIGKILL)
    waitpid(child, nil, 0)
    unlink(path)
  }

  static func run(_ path: String) throws {
    let listener = try UnixSocket.listen(at: path, mode: 0o600)
    var answer: [UInt8] = []
    Frame.keepalive(respond: false, position: 0, data: []).encode(into: &answer)
    _ = fcntl(listener.raw, F_SETFL, 0)
    var input = [UInt8](repeating: 0, count: 4096)
    while true {
      let client = accept(listener.raw, nil, nil)
      guard client >= 0 else { continue }
      _ = recv(client, &input, input.count, 0)
      send(client, answer, answer.count, CInt(MSG_NOSIGNAL))
      close(client)
    }
  }
}

/// Starts a program with nothing but this environment; what it says goes nowhere.
func spawn(_ arguments: [String], environment: [String]) throws(SystemError) -> pid_t {
  var argv = arguments.map { strdup($0) } + [nil]
  var envp = environment.map { strdup($0) } + [nil]
  defer { (argv + envp).forEach { free($0) } }
  var actions = posix_spawn_file_actions_t()
  posix_spawn_file_actions_init(&actions)
  defer { posix_spawn_file_actions_destroy(&actions) }
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0)
  var child = pid_t()
  let result = posix_spawn(&child, arguments[0], &actions, nil, &argv, &envp)
  guard result == 0 else { throw SystemError("posix_spawn", arguments[0], code: result) }
  return child
}
