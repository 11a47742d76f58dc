import CLinux
import Glibc

/// A file, a folder or a socket's file, whatever its name: what has a path now may be another one than before.
package struct FileIdentity: Equatable, Sendable {
  private let device: dev_t
  private let number: ino_t

  private init(_ status: stat) { (device, number) = (status.st_dev, status.st_ino) }

  /// - Returns: nil, with `errno` set, if it is not known.
  package init?(of descriptor: CInt) {
    var status = stat()
    guard unsafe fstat(descriptor, &status) == 0 else { return nil }
    self.init(status)
  }

  /// - Parameter followsLinks: whether a symbolic link stands for what it leads to.
  /// - Returns: nil, with `errno` set, if it is not known, or nothing has this path.
  package init?(at path: String, followsLinks: Bool = true) {
    var status = stat()
    guard unsafe followsLinks ? stat(path, &status) == 0 : lstat(path, &status) == 0 else { return nil }
    self.init(status)
  }

  /// A symbolic link stands for itself.
  /// - Returns: as above.
  package init?(of name: String, in folder: CInt) {
    var status = stat()
    guard unsafe fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) == 0 else { return nil }
    self.init(status)
  }
}
