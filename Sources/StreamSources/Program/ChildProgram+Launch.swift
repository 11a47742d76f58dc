import CLinux
import Glibc
import StreamRuntime

extension ChildProgram {
  /// A program that was just started, with the descriptors that control it.
  struct Launch: ~Copyable {
    /// The id of the program and of its process group.
    let id: pid_t
    /// Its standard output; non-blocking.
    let output: OwnedDescriptor
    /// Its standard error; non-blocking.
    let errorOutput: OwnedDescriptor
    /// Readable once the program has exited.
    let process: OwnedDescriptor

    /// Starts a program in its own process group, with no descriptor open except an empty standard input, output and
    /// error, and with default signal handling.
    ///
    /// - Parameters:
    ///   - command: as in `ProgramConfiguration`.
    ///   - environment: `NAME=value`.
    /// - Throws: the call that failed. Nothing runs then.
    init(_ command: [String], environment: [String]) throws(SystemError) {
      let output = try Pipe()
      let errorOutput = try Pipe()
      var program = Spawn(command)
      program.environment = environment
      program.descriptors = [.null, .copy(output.writing.raw), .copy(errorOutput.writing.raw)]
      program.leadsGroup = true
      let child = try program.start()
      let process = process_descriptor(child)
      guard process >= 0 else {
        let error = SystemError("pidfd_open")
        ChildProgram.endAtOnce(child)
        throw error
      }
      id = child
      self.output = output.nonBlockingReading()
      self.errorOutput = errorOutput.nonBlockingReading()
      self.process = OwnedDescriptor(process)
    }
  }

  /// Kills a program whose setup failed. It has hardly begun, so waiting for it is short.
  static func endAtOnce(_ id: pid_t) {
    kill(-id, SIGKILL)
    while waitpid(id, nil, 0) < 0, errno == EINTR {}
  }
}
