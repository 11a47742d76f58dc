import CLinux
import Dispatch
import Glibc
import Synchronization

/// Completely mapped memory with a descriptor: a memfd, which can outlive the process in another process, or a file.
@safe public final class MappedRegion: @unchecked Sendable {  // the log's guard protects the content
  /// Initially zero. Valid as long as the region exists.
  let bytes: UnsafeMutableRawBufferPointer
  /// Owned by the region.
  let descriptor: CInt
  /// The marks of the state in a file, set before the first `syncSoon`.
  var marks: StateMarks?
  private let isSyncDue = Atomic(false)

  /// Maximum delay before appended events are written to the disk, without the disk's own time.
  private static let syncDelay = DispatchTimeInterval.seconds(1)
  /// Serial: a slow disk blocks at most one thread.
  private static let syncQueue = DispatchQueue(label: "streamd.sync")

  /// A memfd. Pages that were never written take no memory.
  ///
  /// - Parameter name: shown in `/proc/PID/maps`; not used for lookup.
  /// - Returns: nil, with `errno` set, when descriptors or address space are exhausted.
  convenience init?(name: String, byteCount: Int) {
    let descriptor = unsafe memfd_create(String(name.prefix(200)), MFD_CLOEXEC)
    guard descriptor >= 0 else { return nil }
    guard ftruncate(descriptor, byteCount) == 0 else {
      let code = errno
      close(descriptor)
      errno = code
      return nil
    }
    self.init(descriptor, byteCount: byteCount)
  }

  /// Maps the whole object behind a descriptor.
  ///
  /// - Parameter descriptor: owned by the region from here on, also on failure.
  /// - Returns: nil, with `errno` set, if it cannot be mapped.
  convenience init?(adopting descriptor: CInt) {
    var status = stat()
    guard unsafe fstat(descriptor, &status) == 0, status.st_mode & S_IFMT == S_IFREG, status.st_size > 0 else {
      close(descriptor)
      errno = EINVAL
      return nil
    }
    self.init(descriptor, byteCount: Int(status.st_size))
  }

  private init?(_ descriptor: CInt, byteCount: Int) {
    let mapped = unsafe mmap(nil, byteCount, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0)
    guard unsafe mapped != MAP_FAILED, let mapped = unsafe mapped else {
      let code = errno
      close(descriptor)
      errno = code
      return nil
    }
    self.descriptor = descriptor
    unsafe bytes = unsafe UnsafeMutableRawBufferPointer(start: mapped, count: byteCount)
  }

  deinit {
    unsafe munmap(bytes.baseAddress, bytes.count)
    close(descriptor)
  }

  /// Writes all changes to the disk; returns when they have arrived.
  /// - Returns: 0 or an errno.
  func sync() -> CInt {
    while fdatasync(descriptor) != 0 {
      if errno != EINTR { return errno }
    }
    return 0
  }

  /// As `sync`, after a delay and on another thread: once for all changes in the meantime.
  /// - Parameter completed: called with 0 or an errno.
  func syncSoon(completed: @escaping @Sendable (CInt) -> Void) {
    guard !isSyncDue.load(ordering: .relaxed), !isSyncDue.exchange(true, ordering: .relaxed) else { return }
    Self.syncQueue.asyncAfter(deadline: .now() + Self.syncDelay) { [self] in
      // This precedes the sync: a change after this point may miss it, and requests the next one.
      isSyncDue.store(false, ordering: .sequentiallyConsistent)
      let synced = marks?.willSync()
      let code = sync()
      if code == 0, let synced, marks?.didSync(synced) == true { syncSoon(completed: completed) }
      completed(code)
    }
  }
}
