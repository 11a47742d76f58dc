import CLinux
import Glibc
import StreamRuntime

extension ChildProgram {
  /// A program that has just been started, and all by which this process holds it.
  struct Launch: ~Copyable {
    /// Of the program and of its process group.
    let id: pid_t
    /// Where it writes to; neither blocks.
    let output: OwnedDescriptor
    /// As above.
    let errors: OwnedDescriptor
    /// Readable once it has ended.
    let process: OwnedDescriptor

    /// Starts a program in a process group of its own, with nothing open but its standard input, which is empty, output
    /// and error, and with every signal as at a login.
    ///
    /// - Parameters:
    ///   - command: as in `ProgramConfiguration`.
    ///   - environment: `NAME=value`.
    /// - Throws: the call that failed. Nothing runs then.
    init(_ command: [String], environment: [String]) throws(SystemError) {
      let output = try Pipe()
      let errors = try Pipe()
      var actions = posix_spawn_file_actions_t()
      posix_spawn_file_actions_init(&actions)
      defer { posix_spawn_file_actions_destroy(&actions) }
      posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0)
      posix_spawn_file_actions_adddup2(&actions, output.writing.raw, STDOUT_FILENO)
      posix_spawn_file_actions_adddup2(&actions, errors.writing.raw, STDERR_FILENO)
      // Ours are closed on exec; what we were started with may not be.
      posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1)

      var attributes = posix_spawnattr_t()
      posix_spawnattr_init(&attributes)
      defer { posix_spawnattr_destroy(&attributes) }
      var signals = sigset_t()
      sigemptyset(&signals)
      posix_spawnattr_setsigmask(&attributes, &signals)
      sigfillset(&signals)
      posix_spawnattr_setsigdefault(&attributes, &signals)
      posix_spawnattr_setpgroup(&attributes, 0)
      let flags = POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF
      posix_spawnattr_setflags(&attributes, Int16(flags))

      let words = command.map { strdup($0) }
      let assignments = environment.map { strdup($0) }
      defer { (words + assignments).forEach { free($0) } }
      var child = pid_t()
      let code = posix_spawnp(&child, command[0], &actions, &attributes, words + [nil], assignments + [nil])
      guard code == 0 else { throw SystemError("posix_spawn", code: code) }
      let process = process_descriptor(child)
      guard process >= 0 else {
        let error = SystemError("pidfd_open")
        ChildProgram.endAtOnce(child)
        throw error
      }
      id = child
      self.output = output.reading
      self.errors = errors.reading
      self.process = OwnedDescriptor(process)
    }
  }

  /// Ends a program that could not be taken hold of. It has hardly begun, and does not keep us waiting.
  static func endAtOnce(_ id: pid_t) {
    kill(-id, SIGKILL)
    while waitpid(id, nil, 0) < 0, errno == EINTR {}
  }

  /// Both ends are closed on exec; reading does not block.
  private struct Pipe: ~Copyable {
    let reading: OwnedDescriptor
    let writing: OwnedDescriptor

    init() throws(SystemError) {
      var ends: [CInt] = [0, 0]
      guard pipe2(&ends, O_CLOEXEC) == 0 else { throw SystemError("pipe2") }
      reading = OwnedDescriptor(ends[0])
      writing = OwnedDescriptor(ends[1])
      _ = fcntl(ends[0], F_SETFL, O_NONBLOCK)
    }
  }
}
