import CLinux
import Glibc
import StreamRuntime

/// Ends programs that would outlive this process: a process of its own that is told of each program's group, and that ends
/// those which are left when its standard input does. A killed process tells nobody, but the kernel closes what it had.
///
/// Belongs to the source thread. Runs from the first program on. One that has come to harm is replaced with the next program.
final class ProgramGuard {
  private let executable: String
  private var groups: Set<pid_t> = []
  private var process: Running?

  /// - Parameter executable: a program that calls `ProgramGuard.run` when its first argument is `ProgramGuard.argument`.
  init(executable: String) { self.executable = executable }

  /// From now on the group, a program's, ends with this process at the latest.
  /// - Throws: what the system does not give; nothing has changed then.
  func watch(_ group: pid_t) throws(SystemError) {
    if process?.tell(group) != true {
      process = nil
      let new = try Running(executable)
      // Cannot fail for want of room: a pipe holds 16,384 numbers.
      for group in groups { _ = new.tell(group) }
      guard new.tell(group) else { throw SystemError("write") }
      process = new
    }
    groups.insert(group)
  }

  /// The group has ended, and its number may become another one's.
  func forget(_ group: pid_t) {
    guard groups.remove(group) != nil, process?.tell(-group) == false else { return }
    process = nil
  }

  /// The process, held by the pipe to it; ends when that is closed, and all groups with it that it has not been told the
  /// end of.
  private final class Running {
    private let id: pid_t
    private let pipe: OwnedDescriptor

    init(_ executable: String) throws(SystemError) {
      let pipe = try Pipe()
      id = try spawnHelper(executable, [ProgramGuard.argument], input: pipe.reading.raw)
      self.pipe = pipe.nonBlockingWriting()
    }

    deinit {
      kill(id, SIGKILL)
      while waitpid(id, nil, 0) < 0, errno == EINTR {}
    }

    func tell(_ number: pid_t) -> Bool {
      withUnsafeBytes(of: number) { write(pipe.raw, $0.baseAddress, $0.count) == $0.count }
    }
  }
}

extension ProgramGuard {
  /// The first argument of such a process.
  static let argument = "--guard"

  /// How long a group may take from SIGTERM to SIGKILL: as long as when the daemon stops.
  private static let grace = Duration.seconds(2)

  /// The process itself.
  static func run() -> Never {
    // Out of reach of whoever ends a whole service or terminal: it ends when there is nothing left for it to do.
    for signal in [SIGTERM, SIGINT, SIGHUP, SIGQUIT] { Glibc.signal(signal, SIG_IGN) }
    var groups: Set<pid_t> = []
    var number = pid_t()
    while true {
      let count = withUnsafeMutableBytes(of: &number) { read(STDIN_FILENO, $0.baseAddress, $0.count) }
      if count < 0, errno == EINTR { continue }
      guard count == MemoryLayout<pid_t>.size else { break }  // written in one piece, and so read in one
      // 0, 1 and -1 would be this process' own group, init's and everybody.
      if number > 1 { groups.insert(number) } else { groups.remove(0 &- number) }
    }
    for group in groups {
      kill(-group, SIGTERM)
      kill(-group, SIGCONT)
    }
    let deadline = EventLoop.monotonicNow() + UInt64(grace.wholeNanoseconds)
    while EventLoop.monotonicNow() < deadline {
      groups = groups.filter { kill(-$0, 0) == 0 }
      if groups.isEmpty { break }
      usleep(20_000)
    }
    for group in groups { kill(-group, SIGKILL) }
    exit(0)
  }
}
