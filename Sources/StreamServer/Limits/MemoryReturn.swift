import CLinux
import Dispatch
import StreamRuntime
import Synchronization

/// Returns to the system the memory that connections have released. The allocator caches it, and would never return the
/// memory of a burst of partial requests.
package final class MemoryReturn: Sendable {
  /// Bytes released since the last trim.
  private let released = Atomic(0)
  private let isDue = Atomic(false)

  /// Bytes that the allocator may cache.
  private static let threshold = 16 << 20
  /// The delay after a large release, and the minimum time between trims, which hold the allocator's locks for some
  /// milliseconds.
  private static let delay = DispatchTimeInterval.seconds(2)

  func note(released bytes: Int) {
    guard bytes > 0, released.add(bytes, ordering: .relaxed).newValue >= Self.threshold,
      !isDue.exchange(true, ordering: .relaxed)
    else { return }
    DispatchQueue.global(qos: .utility).asyncAfter(deadline: .now() + Self.delay) { [self] in
      released.store(0, ordering: .relaxed)
      isDue.store(false, ordering: .relaxed)
      malloc_trim(0)
    }
  }

  /// Returns all free memory that the allocator keeps, if it is more than this number of bytes.
  package static func trim(above bytes: Int) {
    guard mallinfo2().fordblks > bytes else { return }
    DispatchQueue.global(qos: .utility).async { malloc_trim(0) }
  }
}
