import CLinux
import Glibc

/// The resources that this process uses, as the kernel counts them.
package struct ProcessUsage: Equatable, Sendable {
  /// Processor time of all threads since the process began, in microseconds.
  package var processorMicroseconds: UInt64
  /// Physical memory; nil if /proc cannot be read.
  package var residentBytes: UInt64?
  /// Open descriptors; nil if /proc cannot be read.
  package var openDescriptors: UInt64?

  /// The present values. Before Linux 6.2 the kernel does not count descriptors: this call then takes some milliseconds
  /// for tens of thousands, too long for an event loop.
  package static func current() -> ProcessUsage {
    var time = timespec()
    unsafe clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time)
    return ProcessUsage(
      processorMicroseconds: UInt64(time.tv_sec) * 1_000_000 + UInt64(time.tv_nsec) / 1000,
      residentBytes: residentBytes,
      openDescriptors: countDescriptors())
  }

  /// Physical memory: the second field of /proc/self/statm, which counts pages; nil if it cannot be read. Source: proc(5).
  package static var residentBytes: UInt64? {
    let raw = unsafe open("/proc/self/statm", O_RDONLY | O_CLOEXEC)
    guard raw >= 0 else { return nil }
    let file = OwnedDescriptor(raw)
    var bytes = [UInt8](repeating: 0, count: 256)
    let count = unsafe read(file.raw, &bytes, bytes.count)
    guard count > 0 else { return nil }
    let fields = String(decoding: bytes[..<count], as: UTF8.self).split(separator: " ")
    return fields.count > 1 ? UInt64(fields[1]).map { $0 * UInt64(sysconf(CInt(_SC_PAGESIZE))) } : nil
  }

  private static func countDescriptors() -> UInt64? {
    var status = stat()
    guard unsafe stat("/proc/self/fd", &status) == 0 else { return nil }
    if status.st_size > 0 { return UInt64(status.st_size) }
    guard let folder = unsafe opendir("/proc/self/fd") else { return nil }
    defer { unsafe closedir(folder) }
    var count: UInt64 = 0
    while unsafe readdir(folder) != nil { count += 1 }
    return count - min(count, 3)  // `.`, `..` and the folder's own
  }
}
