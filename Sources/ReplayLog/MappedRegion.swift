import CLinux
import Glibc

/// Memory with a descriptor: a memfd mapped whole, so that it can outlive the process in somebody else's keeping. Pages
/// that were never written take no memory.
final class MappedRegion {
  /// Zeroes at first. Valid as long as the region is.
  let bytes: UnsafeMutableRawBufferPointer
  /// The memfd, owned by the region.
  let descriptor: CInt

  /// - Parameter name: shows in `/proc/PID/maps`; for whoever looks, not for finding it.
  /// - Returns: nil, with `errno` set, when there are no descriptors or no address space left.
  init?(name: String, byteCount: Int) {
    descriptor = memfd_create(String(name.prefix(200)), MFD_CLOEXEC)
    guard descriptor >= 0 else { return nil }
    let mapped =
      ftruncate(descriptor, byteCount) == 0
      ? mmap(nil, byteCount, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0) : MAP_FAILED
    guard mapped != MAP_FAILED, let mapped else {
      let code = errno
      close(descriptor)
      errno = code
      return nil
    }
    bytes = UnsafeMutableRawBufferPointer(start: mapped, count: byteCount)
  }

  deinit {
    munmap(bytes.baseAddress, bytes.count)
    close(descriptor)
  }
}
