import Glibc
import StreamSources

/// Searches programs with the rules of `posix_spawnp`.
enum ProgramSearch {
  /// Why the program cannot be run; `nil` when it can.
  ///
  /// - Parameters:
  ///   - name: a path if it contains a slash; else searched in each folder of `path`.
  ///   - path: by default the environment's PATH.
  static func failure(
    of name: String, path: String? = unsafe getenv("PATH").map { unsafe String(cString: $0) }
  ) -> String? {
    guard !name.contains("/") else { return failure(ofFile: name) }
    let folders = (path ?? "/bin:/usr/bin").split(separator: ":", omittingEmptySubsequences: false)
    let isFound = folders.contains { failure(ofFile: ($0.isEmpty ? "." : $0) + "/" + name) == nil }
    return isFound ? nil : "\"\(name)\", which is not in PATH"
  }

  private static func failure(ofFile path: String) -> String? {
    var file = stat()
    guard unsafe stat(path, &file) == 0 else {
      return unsafe "\"\(path)\": \(String(cString: strerror(errno)))" + HomeDirectories.hint(on: path)
    }
    guard file.st_mode & S_IFMT == S_IFREG else { return "\"\(path)\", which is not a regular file" }
    return unsafe access(path, X_OK) == 0 ? nil : "\"\(path)\", which is not executable"
  }
}
