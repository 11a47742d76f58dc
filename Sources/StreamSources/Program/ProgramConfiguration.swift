/// Which program to run, and within which limits.
public struct ProgramConfiguration: Sendable, Equatable {
  /// The program and its arguments, each handed over as it is: no shell reads them. A name without a slash is looked for
  /// on this process' own PATH. At least one, none with a NUL in it.
  public var command: [String]
  /// What the program's environment has besides, or instead of, what it gets from this process. May hold secrets, and is
  /// never printed. Names without `=`, neither with a NUL.
  public var environment: [String: String]
  /// Bytes of one line of output, its end not counted.
  public var maximumLineBytes: Int
  /// After failures; the least pause also between a run that ended well and the next.
  public var retry: Backoff
  /// What the program may take to put its things away before it is killed, and to exit once it has closed its output.
  /// Whoever subscribes again waits for that, so it is short.
  var grace = Duration.seconds(5)

  /// Everything but the command has a default.
  public init(
    command: [String], environment: [String: String] = [:], maximumLineBytes: Int = 1 << 20, retry: Backoff = Backoff()
  ) {
    precondition(command.first?.isEmpty == false, "a command without a program: \(command)")
    self.command = command
    self.environment = environment
    self.maximumLineBytes = maximumLineBytes
    self.retry = retry
  }

  /// The program's file name, as an operator is told of it.
  var name: String {
    let path = command[0].split(separator: "/")
    return path.last.map(String.init) ?? command[0]
  }
}
