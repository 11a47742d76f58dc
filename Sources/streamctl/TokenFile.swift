import Glibc
import StreamRuntime

/// The file of `--token-file`. It is read for each connection, so that a new token is used after the loss of one.
enum TokenFile {
  /// Longer tokens are not valid.
  private static let limit = 4096

  /// Reads the file. Does not wait for a writer of a pipe.
  /// - Returns: its content without the end of the line.
  static func read(_ path: String) throws(SystemError) -> String {
    let file = OwnedDescriptor(unsafe open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK))
    guard file.raw >= 0 else { throw SystemError("open", path) }
    var bytes = [UInt8](repeating: 0, count: limit)
    let count = unsafe Glibc.read(file.raw, &bytes, limit)
    guard count >= 0 else { throw SystemError("read", path) }
    return String(decoding: bytes.prefix(count).prefix { !"\r\n".utf8.contains($0) }, as: UTF8.self)
  }
}
