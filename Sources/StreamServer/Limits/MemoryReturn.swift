import CLinux
import Dispatch
import StreamRuntime
import Synchronization

/// Returns memory that connections have released to the system: the allocator caches it, so that the memory of a
/// burst of partial requests would never be returned.
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

  /// Returns the free memory that the allocator keeps, whoever has released it, if it is more than so many bytes.
  package static func trim(above bytes: Int) {
    guard mallinfo2().fordblks > bytes else { return }
    DispatchQueue.global(qos: .utility).async { malloc_trim(0) }
  }
}
