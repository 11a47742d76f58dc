import Glibc
import StreamRuntime

/// A folder that is removed, with all its files, with the value.
public final class TemporaryFolder: Sendable {
  /// Short enough for a Unix socket in it.
  public let path: String

  /// - Parameter files: their names and contents.
  public init(_ files: [String: String] = [:]) throws(SystemError) {
    var template = Array("/tmp/streamd-test-XXXXXX".utf8CString)
    guard let made = mkdtemp(&template) else { throw SystemError("mkdtemp") }
    path = String(cString: made)
    for (name, content) in files { try write(Array(content.utf8), to: name) }
  }

  /// Where a file of that name is, or would be.
  public func path(_ name: String) -> String { "\(path)/\(name)" }

  /// Makes or replaces a file.
  public func write(_ content: [UInt8], to name: String) throws(SystemError) {
    guard let file = fopen(path(name), "w") else { throw SystemError("fopen", path(name)) }
    let written = fwrite(content, 1, content.count, file)
    guard fclose(file) == 0, written == content.count else { throw SystemError("fwrite", path(name)) }
  }

  deinit {
    if let folder = opendir(path) {
      while let entry = readdir(folder) {
        let name = withUnsafePointer(to: &entry.pointee.d_name) {
          $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
        }
        unlink(path(name))
      }
      closedir(folder)
    }
    rmdir(path)
  }
}
