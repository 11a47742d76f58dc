import CLinux
import Glibc

/// A pipe. Both ends block, and are closed on exec.
package struct Pipe: ~Copyable {
  /// The reading end.
  package let reading: OwnedDescriptor
  /// The writing end.
  package let writing: OwnedDescriptor

  /// - Throws: `pipe2`, when the process has no free descriptor.
  package init() throws(SystemError) {
    var ends: [CInt] = [0, 0]
    guard unsafe pipe2(&ends, O_CLOEXEC) == 0 else { throw SystemError("pipe2") }
    reading = OwnedDescriptor(ends[0])
    writing = OwnedDescriptor(ends[1])
  }

  /// Closes the writing end and returns the reading end, made non-blocking.
  package consuming func nonBlockingReading() -> OwnedDescriptor {
    _ = fcntl(reading.raw, F_SETFL, O_NONBLOCK)
    return reading
  }

  /// Closes the reading end and returns the writing end, made non-blocking.
  package consuming func nonBlockingWriting() -> OwnedDescriptor {
    _ = fcntl(writing.raw, F_SETFL, O_NONBLOCK)
    return writing
  }
}
