import Glibc
import StreamRuntime

/// State written by a version of the program, for later ones to read: a file in `Fixtures`, next to the test's source.
/// It is unchanged for as long as that version is supported.
public func fixture(_ name: String, beside source: String = #filePath) throws(SystemError) -> [UInt8] {
  let path = source.split(separator: "/").dropLast().reduce("") { "\($0)/\($1)" } + "/Fixtures/" + name
  let descriptor = open(path, O_RDONLY | O_CLOEXEC)
  guard descriptor >= 0 else { throw SystemError("open", path) }
  defer { close(descriptor) }
  var status = stat()
  fstat(descriptor, &status)
  var bytes = [UInt8](repeating: 0, count: Int(status.st_size))
  guard read(descriptor, &bytes, bytes.count) == bytes.count else { throw SystemError("read", path) }
  return bytes
}
