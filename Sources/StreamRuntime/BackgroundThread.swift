import CLinux
import Glibc

/// A thread for work that blocks, which no event loop may do.
package enum BackgroundThread {
  private final class Work {
    let name: String
    let body: @Sendable () -> Void

    init(_ name: String, _ body: @escaping @Sendable () -> Void) {
      (self.name, self.body) = (name, body)
    }
  }

  /// Runs `body` on a thread that ends with it.
  ///
  /// - Parameter name: for debuggers; the kernel keeps 15 bytes.
  /// - Throws: `pthread_create`, when the process may have no more threads.
  package static func start(name: String, _ body: @escaping @Sendable () -> Void)
    throws(SystemError)
  {
    let box = unsafe Unmanaged.passRetained(Work(name, body))
    var thread = pthread_t()
    let result = unsafe pthread_create(
      &thread, nil,
      { argument in
        guard let argument = unsafe argument else { return nil }
        let work = unsafe Unmanaged<Work>.fromOpaque(argument).takeRetainedValue()
        unsafe pthread_setname_np(pthread_self(), String(work.name.prefix(15)))
        work.body()
        return nil
      }, unsafe box.toOpaque())
    guard result == 0 else {
      unsafe box.release()
      throw SystemError("pthread_create", code: result)
    }
    pthread_detach(thread)
  }
}
