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
      var program = Spawn(command)
      program.environment = environment
      program.descriptors = [.null, .copy(output.writing.raw), .copy(errors.writing.raw)]
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
      self.errors = errors.nonBlockingReading()
      self.process = OwnedDescriptor(process)
    }
  }

  /// Ends a program that could not be taken hold of. It has hardly begun, and does not keep us waiting.
  static func endAtOnce(_ id: pid_t) {
    kill(-id, SIGKILL)
    while waitpid(id, nil, 0) < 0, errno == EINTR {}
  }
}
