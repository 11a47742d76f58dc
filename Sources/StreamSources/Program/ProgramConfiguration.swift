/// The program to run, and its limits.
public struct ProgramConfiguration: Sendable, Equatable {
  /// The program and its arguments, passed unchanged: no shell interprets them. A name without a slash is searched on
  /// this process' PATH. At least one element, none with a NUL.
  public var command: [String]
  /// Variables added to the inherited environment, or overriding it. May contain secrets; never printed. Names without
  /// `=`; no NUL in names or values.
  public var environment: [String: String]
  /// Maximum bytes of one line of output, without its line end.
  public var maximumLineBytes: Int
  /// How lines end, besides the end of the output.
  public var lineEnd = LineEnd.automatic
  /// The delay after failures; its minimum also applies between a successful run and the next.
  public var retry: Backoff
  /// The time to exit after SIGTERM before SIGKILL, and after the program closed its output. Short, because a new
  /// subscription waits for it.
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

  /// The program's file name, for messages.
  var name: String {
    let path = command[0].split(separator: "/")
    return path.last.map(String.init) ?? command[0]
  }
}
