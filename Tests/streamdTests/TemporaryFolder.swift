import Glibc

/// A folder that goes away with the value.
final class TemporaryFolder {
  let path: String
  private var files: [String] = []

  struct Failure: Error {
    let call: String
    let code: CInt
  }

  /// - Parameter files: their names and contents.
  init(_ files: [String: String] = [:]) throws {
    var template = Array("/tmp/streamd-tests-XXXXXX".utf8CString)
    guard let made = mkdtemp(&template) else { throw Failure(call: "mkdtemp", code: errno) }
    path = String(cString: made)
    for (name, content) in files { try write(Array(content.utf8), to: name) }
  }

  func write(_ content: [UInt8], to name: String) throws {
    guard let file = fopen("\(path)/\(name)", "w") else { throw Failure(call: "fopen", code: errno) }
    files.append(name)
    let written = fwrite(content, 1, content.count, file)
    guard fclose(file) == 0, written == content.count else { throw Failure(call: "fwrite", code: errno) }
  }

  deinit {
    for name in files { unlink("\(path)/\(name)") }
    rmdir(path)
  }
}
