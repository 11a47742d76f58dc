import Glibc

/// A small file that is always whole, also after a kill and a loss of power.
package enum StoredFile {
  /// Replaces the file, which only its user may read. Returns when its content is on the disk.
  ///
  /// - Parameters:
  ///   - name: a file name. The one with `.new` behind it is used, too.
  ///   - folder: its descriptor.
  /// - Returns: 0 or an errno.
  package static func replace(_ name: String, in folder: CInt, with bytes: [UInt8]) -> CInt {
    guard folder >= 0 else { return ENOENT }
    let new = name + ".new"
    // What has the name may be half of a file, or anything else: to open a FIFO would wait.
    unsafe unlinkat(folder, new, 0)
    let descriptor = unsafe openat(folder, new, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0o600)
    guard descriptor >= 0 else { return errno }
    defer { close(descriptor) }
    let code = write(bytes, to: descriptor)
    guard code == 0, unsafe renameat(folder, new, folder, name) == 0 else {
      let code = code == 0 ? errno : code
      // Half of a file takes space, of which there may be none.
      unsafe unlinkat(folder, new, 0)
      return code
    }
    // The new name survives a loss of power only once the folder is on the disk.
    return fsync(folder) == 0 ? 0 : errno
  }

  /// - Returns: 0 or an errno.
  private static func write(_ bytes: [UInt8], to descriptor: CInt) -> CInt {
    var rest = bytes[...]
    while !rest.isEmpty {
      let count = unsafe rest.withUnsafeBytes { unsafe Glibc.write(descriptor, $0.baseAddress, $0.count) }
      guard count >= 0 || errno == EINTR else { return errno }
      rest = rest.dropFirst(max(0, count))
    }
    return fsync(descriptor) == 0 ? 0 : errno
  }

  private static func syncParent(of folder: CInt) {
    let parent = unsafe openat(folder, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    guard parent >= 0 else { return }
    fsync(parent)
    close(parent)
  }

  /// Replaces the file in a folder, which is made if it does not exist.
  /// - Throws: the reason.
  package static func replace(_ name: String, in path: String, with bytes: [UInt8]) throws(SystemError) {
    let isNew = unsafe mkdir(path, 0o700) == 0
    let folder = unsafe open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    guard folder >= 0 else { throw SystemError("open", path) }
    defer { close(folder) }
    // The name of a new folder survives a loss of power as its files do.
    if isNew { syncParent(of: folder) }
    let code = replace(name, in: folder, with: bytes)
    guard code == 0 else { throw SystemError("write", "\(path)/\(name)", code: code) }
  }
}
