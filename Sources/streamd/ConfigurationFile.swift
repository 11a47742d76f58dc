import Glibc

/// A file that cannot be read, in the system's words.
struct FileRefusal: Error {
  let reason: String
}

/// The bytes of the file at `path`.
///
/// - Throws: the system's reason, or that it has more than `limit` bytes (so that a device never fills the memory).
func readFile(at path: String, limit: Int) throws(FileRefusal) -> [UInt8] {
  let descriptor = open(path, O_RDONLY | O_CLOEXEC)
  guard descriptor >= 0 else { throw FileRefusal(reason: systemMessage(errno)) }
  defer { close(descriptor) }
  var bytes: [UInt8] = []
  var chunk = [UInt8](repeating: 0, count: 65536)
  while true {
    let count = read(descriptor, &chunk, chunk.count)
    let code = errno
    if count == 0 { return bytes }
    if count < 0 && code == EINTR { continue }
    guard count > 0 else { throw FileRefusal(reason: systemMessage(code)) }
    guard bytes.count + count <= limit else { throw FileRefusal(reason: "it is larger than \(limit) bytes") }
    bytes += chunk[..<count]
  }
}

/// What the system calls the error `code`.
private func systemMessage(_ code: CInt) -> String {
  String(cString: strerror(code))
}
