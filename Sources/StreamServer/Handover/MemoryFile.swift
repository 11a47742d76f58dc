import CLinux
import Glibc
import StreamRuntime

/// Bytes in memory with a descriptor (memfd): saved state for the next process.
package enum MemoryFile {
  /// Maximum bytes of one file, 1 GiB.
  package static let byteLimit = 1 << 30

  /// - Returns: a descriptor, owned by the caller.
  /// - Throws: without memory or a free descriptor, or for more than 1 GiB.
  package static func make(_ bytes: [UInt8], name: String) throws(SystemError) -> CInt {
    guard bytes.count <= byteLimit else { throw SystemError("memfd_create", name, code: EFBIG) }
    let descriptor = unsafe memfd_create(name, MFD_CLOEXEC)
    guard descriptor >= 0 else { throw SystemError("memfd_create", name) }
    var offset = 0
    while offset < bytes.count {
      let count = unsafe bytes.withUnsafeBytes {
        unsafe write(descriptor, $0.baseAddress! + offset, bytes.count - offset)
      }
      guard count > 0 else {
        let error = SystemError("write", name)
        close(descriptor)
        throw error
      }
      offset += count
    }
    return descriptor
  }

  /// The content of a file; nil if it cannot be read, or has more than `limit` bytes.
  package static func bytes(of descriptor: CInt, limit: Int = byteLimit) -> [UInt8]? {
    var status = stat()
    guard unsafe fstat(descriptor, &status) == 0, status.st_size >= 0, status.st_size <= limit else { return nil }
    var bytes = [UInt8](repeating: 0, count: Int(status.st_size))
    var offset = 0
    while offset < bytes.count {
      let left = bytes.count - offset
      let count = unsafe bytes.withUnsafeMutableBytes {
        unsafe pread(descriptor, $0.baseAddress! + offset, left, off_t(offset))
      }
      guard count > 0 else { return nil }
      offset += count
    }
    return bytes
  }
}
