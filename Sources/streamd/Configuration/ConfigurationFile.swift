import Glibc

/// A file that cannot be read, with the system's reason.
struct FileRefusal: Error {
  let reason: String
}

/// The bytes of the file at `path`.
///
/// - Throws: the system's reason, that it is not a regular file, or that it has more than `limit` bytes.
func readFile(at path: String, limit: Int) throws(FileRefusal) -> [UInt8] {
  // Without O_NONBLOCK, opening a FIFO would block.
  let descriptor = unsafe open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
  guard descriptor >= 0 else { throw FileRefusal(reason: systemMessage(errno)) }
  defer { close(descriptor) }
  var status = stat()
  guard unsafe fstat(descriptor, &status) == 0 else { throw FileRefusal(reason: systemMessage(errno)) }
  guard status.st_mode & S_IFMT != S_IFDIR else { throw FileRefusal(reason: systemMessage(EISDIR)) }
  guard status.st_mode & S_IFMT == S_IFREG else { throw FileRefusal(reason: "it is not a regular file") }
  var bytes: [UInt8] = []
  var chunk = [UInt8](repeating: 0, count: 65536)
  while true {
    let count = unsafe read(descriptor, &chunk, chunk.count)
    let code = errno
    if count == 0 { return bytes }
    if count < 0 && code == EINTR { continue }
    guard count > 0 else { throw FileRefusal(reason: systemMessage(code)) }
    guard bytes.count + count <= limit else { throw FileRefusal(reason: "it is larger than \(limit) bytes") }
    bytes += chunk[..<count]
  }
}

/// The system's message for the error `code`.
private func systemMessage(_ code: CInt) -> String {
  unsafe String(cString: strerror(code))
}
