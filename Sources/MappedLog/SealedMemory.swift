import CLinux
import Glibc
import StreamRuntime

/// Memory in a memfd of mode 0600 whose size never changes, so that no access to it can fault, in any process.
@safe package final class SealedMemory: @unchecked Sendable {  // its users order accesses
  /// Initially zero; valid as long as the object exists.
  package let bytes: UnsafeMutableRawBufferPointer
  /// The descriptor, for reading and writing.
  package let descriptor: OwnedDescriptor

  /// - Parameters:
  ///   - name: shown in `/proc/PID/maps`; not used for lookup.
  ///   - byteCount: a multiple of the page size. Pages that were never written take no memory.
  package convenience init(name: String, byteCount: Int) throws(SystemError) {
    let raw = unsafe memfd_create(String(name.prefix(200)), MFD_CLOEXEC | MFD_ALLOW_SEALING)
    guard raw >= 0 else { throw SystemError("memfd_create", name) }
    let descriptor = OwnedDescriptor(raw)
    // With the default mode, a process that gets a descriptor could open the memory for writing.
    guard fchmod(raw, 0o600) == 0 else { throw SystemError("fchmod", name) }
    guard ftruncate(raw, byteCount) == 0 else { throw SystemError("ftruncate", name) }
    guard seal_size(raw) == 0 else { throw SystemError("fcntl", name) }
    try self.init(mapping: descriptor, byteCount: byteCount)
  }

  /// Maps the memory that another process has created.
  package convenience init(adopting descriptor: consuming OwnedDescriptor) throws(SystemError) {
    var status = stat()
    guard unsafe fstat(descriptor.raw, &status) == 0 else { throw SystemError("fstat") }
    guard has_sealed_size(descriptor.raw) != 0, status.st_size > 0 else { throw SystemError("fcntl", code: EINVAL) }
    try self.init(mapping: descriptor, byteCount: Int(status.st_size))
  }

  private init(mapping descriptor: consuming OwnedDescriptor, byteCount: Int) throws(SystemError) {
    let mapped = unsafe mmap(nil, byteCount, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor.raw, 0)
    guard unsafe mapped != MAP_FAILED, let mapped = unsafe mapped else { throw SystemError("mmap") }
    self.descriptor = descriptor
    unsafe bytes = unsafe UnsafeMutableRawBufferPointer(start: mapped, count: byteCount)
  }

  deinit { unsafe munmap(bytes.baseAddress, bytes.count) }

  /// A descriptor of the same memory that cannot be used for writing.
  func readOnlyDescriptor() throws(SystemError) -> CInt {
    let path = "/proc/self/fd/\(descriptor.raw)"
    let raw = unsafe open(path, O_RDONLY | O_CLOEXEC)
    guard raw >= 0 else { throw SystemError("open", path) }
    return raw
  }
}
