import CLinux
import Glibc

/// A pipe. Both ends block, and are closed on exec.
package struct Pipe: ~Copyable {
  /// Where the other end's bytes come out.
  package let reading: OwnedDescriptor
  /// Where bytes go in.
  package let writing: OwnedDescriptor

  /// - Throws: `pipe2`, when the process is out of descriptors.
  package init() throws(SystemError) {
    var ends: [CInt] = [0, 0]
    guard unsafe pipe2(&ends, O_CLOEXEC) == 0 else { throw SystemError("pipe2") }
    reading = OwnedDescriptor(ends[0])
    writing = OwnedDescriptor(ends[1])
  }

  /// Closes the writing end, and gives the other one away, which does not block from now on.
  package consuming func nonBlockingReading() -> OwnedDescriptor {
    _ = fcntl(reading.raw, F_SETFL, O_NONBLOCK)
    return reading
  }

  /// Closes the reading end, and gives the other one away, which does not block from now on.
  package consuming func nonBlockingWriting() -> OwnedDescriptor {
    _ = fcntl(writing.raw, F_SETFL, O_NONBLOCK)
    return writing
  }
}
