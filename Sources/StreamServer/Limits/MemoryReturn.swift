import CLinux
import Dispatch
import StreamRuntime
import Synchronization

/// Gives memory back to the system that connections have released: the allocator keeps it for later use, and a
/// burst of half-sent requests would stay for good.
final class MemoryReturn: Sendable {
  /// Bytes released since the last time.
  private let released = Atomic(0)
  private let isDue = Atomic(false)

  /// What the allocator may keep.
  private static let threshold = 16 << 20
  /// After a large release, and so often at most: it holds the allocator's locks for some milliseconds.
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
}
