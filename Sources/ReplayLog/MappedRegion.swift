import CLinux
import Dispatch
import Glibc
import Synchronization

/// Memory with a descriptor, mapped whole: a memfd, which can outlive the process in somebody else's keeping, or a file.
public final class MappedRegion: @unchecked Sendable {  // what it holds is guarded by whoever guards the log in it
  /// Zeroes at first. Valid as long as the region is.
  let bytes: UnsafeMutableRawBufferPointer
  /// Owned by the region.
  let descriptor: CInt
  private let isSyncDue = Atomic(false)

  /// What was appended reaches the disk at most this much later, and as long as the disk takes.
  private static let syncDelay = DispatchTimeInterval.seconds(1)
  /// Serial: one slow disk holds up no more than one thread.
  private static let syncQueue = DispatchQueue(label: "streamd.sync")

  /// A memfd. Pages that were never written take no memory.
  ///
  /// - Parameter name: shows in `/proc/PID/maps`; for whoever looks, not for finding it.
  /// - Returns: nil, with `errno` set, when there are no descriptors or no address space left.
  convenience init?(name: String, byteCount: Int) {
    let descriptor = memfd_create(String(name.prefix(200)), MFD_CLOEXEC)
    guard descriptor >= 0 else { return nil }
    guard ftruncate(descriptor, byteCount) == 0 else {
      let code = errno
      close(descriptor)
      errno = code
      return nil
    }
    self.init(descriptor, byteCount: byteCount)
  }

  /// What a descriptor is open on, whole.
  ///
  /// - Parameter descriptor: owned by the region from here on, also when there will be none.
  /// - Returns: nil, with `errno` set, for what cannot be mapped.
  convenience init?(adopting descriptor: CInt) {
    var status = stat()
    guard fstat(descriptor, &status) == 0, status.st_mode & S_IFMT == S_IFREG, status.st_size > 0 else {
      close(descriptor)
      errno = EINVAL
      return nil
    }
    self.init(descriptor, byteCount: Int(status.st_size))
  }

  private init?(_ descriptor: CInt, byteCount: Int) {
    let mapped = mmap(nil, byteCount, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0)
    guard mapped != MAP_FAILED, let mapped else {
      let code = errno
      close(descriptor)
      errno = code
      return nil
    }
    self.descriptor = descriptor
    bytes = UnsafeMutableRawBufferPointer(start: mapped, count: byteCount)
  }

  deinit {
    munmap(bytes.baseAddress, bytes.count)
    close(descriptor)
  }

  /// Brings what has changed to the disk; returns once it is there.
  /// - Returns: 0 or an errno.
  func sync() -> CInt {
    while fdatasync(descriptor) != 0 {
      if errno != EINTR { return errno }
    }
    return 0
  }

  /// As `sync`, soon and elsewhere: once for all that changes meanwhile.
  /// - Parameter failed: told the errno.
  func syncSoon(failed: @escaping @Sendable (CInt) -> Void) {
    guard !isSyncDue.load(ordering: .relaxed), !isSyncDue.exchange(true, ordering: .relaxed) else { return }
    Self.syncQueue.asyncAfter(deadline: .now() + Self.syncDelay) { [self] in
      // First: what changes from here on may miss this one, and asks for the next.
      isSyncDue.store(false, ordering: .sequentiallyConsistent)
      let code = sync()
      if code != 0 { failed(code) }
    }
  }
}
