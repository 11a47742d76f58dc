import Glibc

/// A file that cannot be read, with the system's reason.
struct FileRefusal: Error {
  let reason: String
}

/// The bytes of the file at `path`.
///
/// - Parameter waits: whether a pipe is read to its end, too, which may take as long as its writers do. `-` is then
///   standard input.
/// - Throws: the system's reason, or that the file is neither regular nor such a pipe, or that it has more than `limit`
///   bytes.
func readFile(at path: String, limit: Int, waits: Bool = false) throws(FileRefusal) -> [UInt8] {
  let isInput = waits && path == "-"
  // Without O_NONBLOCK, opening a FIFO would block.
  let descriptor = unsafe isInput ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC | (waits ? 0 : O_NONBLOCK))
  guard descriptor >= 0 else { throw FileRefusal(reason: systemMessage(errno)) }
  defer { close(descriptor) }
  var status = stat()
  guard unsafe fstat(descriptor, &status) == 0 else { throw FileRefusal(reason: systemMessage(errno)) }
  let kind = status.st_mode & S_IFMT
  guard kind != S_IFDIR else { throw FileRefusal(reason: systemMessage(EISDIR)) }
  guard kind == S_IFREG || isInput || waits && kind == S_IFIFO else {
    throw FileRefusal(reason: "it is not a regular file" + (waits ? " or a pipe" : ""))
  }
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
