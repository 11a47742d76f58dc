import Dispatch
import FoundationEssentials
import Glibc
import StreamRuntime
import StreamSources

/// Small files in the state directory, besides the logs. Thread-safe.
struct StateFiles: Sendable {
  let folder: String
  /// The folder that is made first.
  private var parent: String?
  private let queue = DispatchQueue(label: "streamd.state")

  /// The largest file: a request of a client, with its body.
  private static let limit = 17 << 20

  /// - Parameter folder: the state directory; it is made when a file is written.
  init(in folder: String) { self.folder = folder }

  /// Files in a folder of the state directory.
  func folder(_ name: String) -> StateFiles {
    var files = StateFiles(in: "\(folder)/\(name)")
    files.parent = folder
    return files
  }

  /// Calls a function that waits for the disk, after all that was called before.
  func perform(_ work: @escaping @Sendable (StateFiles) -> Void) { queue.async { work(self) } }

  /// The names of all files, except for those that are half written.
  var names: [String] {
    let names = try? FileManager.default.contentsOfDirectory(atPath: folder)
    return (names ?? []).sorted().filter { !$0.hasSuffix(".new") }
  }

  /// Replaces a file, and waits until it survives a loss of power.
  /// - Returns: the reason if it does not.
  func writeNow(_ bytes: [UInt8], to name: String) -> String? { queue.sync { replace(name, with: bytes) } }

  /// The same, on the queue.
  func replace(_ name: String, with bytes: [UInt8]) -> String? {
    do throws(SystemError) {
      if let parent { _ = unsafe mkdir(parent, 0o700) }
      try StoredFile.replace(name, in: folder, with: bytes)
      return nil
    } catch {
      return error.description
    }
  }

  /// Removes files, which do not come back after a loss of power.
  func remove(_ names: [String]) {
    guard !names.isEmpty else { return }
    queue.async { [folder] in
      for name in names { _ = unsafe unlink("\(folder)/\(name)") }
      let descriptor = unsafe open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
      guard descriptor >= 0 else { return }
      fsync(descriptor)
      close(descriptor)
    }
  }

  /// The content of a file; nil: it cannot be read.
  func content(of name: String) -> [UInt8]? { try? readFile(at: "\(folder)/\(name)", limit: Self.limit) }

  /// Replaces a file, which only its user may read.
  /// - Parameter completed: called on the queue, when the file survives a loss of power; with the reason if it does not.
  func write(_ bytes: [UInt8], to name: String, completed: @escaping @Sendable (String?) -> Void = { _ in }) {
    queue.async { [self] in completed(replace(name, with: bytes)) }
  }

  /// Returns when all files are written.
  func flush() { queue.sync {} }

  /// The times before which upstreams want no request, in lines `MILLISECONDS NAME`.
  var pauses: PauseStore {
    PauseStore(load: {
      let lines = String(decoding: content(of: "pauses") ?? [], as: UTF8.self).split(separator: "\n").prefix(1 << 16)
      return lines.reduce(into: [:]) { pauses, line in
        let words = line.split(separator: " ", maxSplits: 1)
        if words.count == 2, let end = Int(words[0]) { pauses[String(words[1])] = end }
      }
    }) { pauses in
      write(Array(pauses.map { "\($0.value) \($0.key)\n" }.sorted().joined().utf8), to: "pauses")
    }
  }

  /// The refresh tokens that servers have replaced.
  var tokens: TokenStore {
    TokenStore(load: { content(of: $0) }, save: { write($1, to: $0, completed: $2) })
  }
}
