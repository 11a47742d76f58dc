import CLinux
import Glibc
import StreamRuntime

/// Ends programs that would outlive this process. A separate process receives each program's group id, and ends the
/// remaining groups when its standard input ends: the kernel closes the descriptors of a killed process.
///
/// Confined to the source thread. Started with the first program; if it has ended, the next program starts a new one.
final class ProgramGuard {
  private let executable: String
  private var groups: Set<pid_t> = []
  private var process: Running?

  /// - Parameter executable: a program that calls `ProgramGuard.run` if its first argument is `ProgramGuard.argument`.
  init(executable: String) { self.executable = executable }

  /// Makes the program's group end with this process at the latest.
  /// - Throws: the system call that failed; nothing has changed then.
  func watch(_ group: pid_t) throws(SystemError) {
    if process?.tell(group) != true {
      process = nil
      let new = try Running(executable)
      // The pipe has room: it holds 16,384 numbers.
      for group in groups { _ = new.tell(group) }
      guard new.tell(group) else { throw SystemError("write") }
      process = new
    }
    groups.insert(group)
  }

  /// The group has ended; its id may be reused.
  func forget(_ group: pid_t) {
    guard groups.remove(group) != nil, process?.tell(-group) == false else { return }
    process = nil
  }

  /// The guard process. It ends when the pipe to it is closed, after ending every group that was not reported as ended.
  private final class Running {
    private let id: pid_t
    private let pipe: OwnedDescriptor

    init(_ executable: String) throws(SystemError) {
      let pipe = try Pipe()
      id = try spawnHelper(executable, ProgramGuard.argument, input: pipe.reading.raw)
      self.pipe = pipe.nonBlockingWriting()
    }

    deinit {
      kill(id, SIGKILL)
      while waitpid(id, nil, 0) < 0, errno == EINTR {}
    }

    func tell(_ number: pid_t) -> Bool {
      unsafe withUnsafeBytes(of: number) { unsafe write(pipe.raw, $0.baseAddress, $0.count) == $0.count }
    }
  }
}

extension ProgramGuard {
  /// The first argument of such a process.
  static let argument = "--guard"

  /// The time of a group between SIGTERM and SIGKILL: as when the daemon stops.
  private static let grace = Duration.seconds(2)

  /// Runs the guard process.
  static func run() -> Never {
    // Ignores signals that end a whole service or terminal: the guard ends when it has nothing left to do.
    for signal in [SIGTERM, SIGINT, SIGHUP, SIGQUIT] { Glibc.signal(signal, SIG_IGN) }
    var groups: Set<pid_t> = []
    var number = pid_t()
    while true {
      let count = unsafe withUnsafeMutableBytes(of: &number) { unsafe read(STDIN_FILENO, $0.baseAddress, $0.count) }
      if count < 0, errno == EINTR { continue }
      guard count == MemoryLayout<pid_t>.size else { break }  // written as one piece, so read as one
      // 0, 1 and -1 would mean this process' own group, init's and every process.
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
