import CLinux
import Glibc

/// A program to start, with no descriptors open except those listed here, no signal blocked and none ignored.
public struct Spawn {
  /// The target of one of the program's descriptors.
  public enum Descriptor {
    /// `/dev/null`, for reading and writing.
    case null
    /// A copy of one of this process' descriptors, which the caller still owns.
    case copy(CInt)
    /// A file that is truncated, or created with mode 0600, and appended to.
    case file(String)
  }

  /// A path, or a name without a slash, which is searched on this process' PATH.
  public var program: String
  /// Its arguments, beginning with argv[0].
  public var arguments: [String]
  /// `NAME=value`; nil: this process' environment.
  public var environment: [String]? = []
  /// The program's descriptors from 0 on.
  public var descriptors: [Descriptor] = [.null, .null, .null]
  /// Whether it leads its own process group, so that signals to this process' group, such as from a terminal, do not
  /// reach it.
  public var leadsGroup = false

  /// - Parameter command: the program and its arguments; not empty.
  public init(_ command: [String]) {
    precondition(!command.isEmpty, "a command without a program")
    program = command[0]
    arguments = command
  }

  /// Starts the program.
  ///
  /// - Returns: its process id, a child of this process, and with `leadsGroup` also the id of its group.
  /// - Throws: the call that failed. Nothing runs then.
  public func start() throws(SystemError) -> pid_t {
    var actions = unsafe posix_spawn_file_actions_t()
    unsafe posix_spawn_file_actions_init(&actions)
    defer { unsafe posix_spawn_file_actions_destroy(&actions) }
    var moved: [CInt] = []
    defer { moved.forEach { close($0) } }
    for (index, descriptor) in descriptors.enumerated() {
      switch descriptor {
      case .null: unsafe posix_spawn_file_actions_addopen(&actions, CInt(index), "/dev/null", O_RDWR, 0)
      case .copy(var source):
        if source < descriptors.count {  // avoids the target descriptors
          source = fcntl(source, F_DUPFD_CLOEXEC, CInt(descriptors.count))
          guard source >= 0 else { throw SystemError("fcntl") }
          moved.append(source)
        }
        unsafe posix_spawn_file_actions_adddup2(&actions, source, CInt(index))
      case .file(let path):
        let flags = O_WRONLY | O_CREAT | O_TRUNC | O_APPEND
        unsafe posix_spawn_file_actions_addopen(&actions, CInt(index), path, flags, 0o600)
      }
    }
    // Our descriptors are closed on exec; those that this process inherited may not be.
    unsafe posix_spawn_file_actions_addclosefrom_np(&actions, CInt(descriptors.count))

    var attributes = posix_spawnattr_t()
    unsafe posix_spawnattr_init(&attributes)
    defer { unsafe posix_spawnattr_destroy(&attributes) }
    var signals = sigset_t()
    unsafe sigemptyset(&signals)
    unsafe posix_spawnattr_setsigmask(&attributes, &signals)
    unsafe sigfillset(&signals)
    unsafe posix_spawnattr_setsigdefault(&attributes, &signals)
    unsafe posix_spawnattr_setpgroup(&attributes, 0)
    var flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF
    if leadsGroup { flags |= POSIX_SPAWN_SETPGROUP }
    unsafe posix_spawnattr_setflags(&attributes, Int16(flags))

    let words = unsafe arguments.map { unsafe strdup($0) }
    let assignments = unsafe (environment ?? []).map { unsafe strdup($0) }
    defer { unsafe (words + assignments).forEach { unsafe free($0) } }
    var child = pid_t()
    let code =
      unsafe environment == nil
      ? posix_spawnp(&child, program, &actions, &attributes, words + [nil], environ)
      : posix_spawnp(&child, program, &actions, &attributes, words + [nil], assignments + [nil])
    guard code == 0 else { throw SystemError("posix_spawn", code: code) }
    return child
  }
}

/// Reaps processes that this process has not started, on its first thread: as the first process of a container it is the
/// parent of orphans, and a group whose dead members are not reaped never ends. The kernel gives orphans to the first thread,
/// and a process that another thread has started stays that thread's child.
public func reapOrphans() {
  while waitpid(-1, nil, WNOHANG | __WNOTHREAD) > 0 {}
}
