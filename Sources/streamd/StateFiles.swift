import Dispatch
import StreamRuntime
import StreamSources

/// Small files in the state directory, besides the logs. Thread-safe.
struct StateFiles: Sendable {
  let folder: String
  private let queue = DispatchQueue(label: "streamd.state")

  private static let limit = 1 << 20

  /// - Parameter folder: the state directory; it is made when a file is written.
  init(in folder: String) { self.folder = folder }

  /// The content of a file; nil: it cannot be read.
  func content(of name: String) -> [UInt8]? { try? readFile(at: "\(folder)/\(name)", limit: Self.limit) }

  /// Replaces a file, which only its user may read.
  /// - Parameter completed: called on the queue, when the file survives a loss of power; with the reason if it does not.
  func write(_ bytes: [UInt8], to name: String, completed: @escaping @Sendable (String?) -> Void = { _ in }) {
    queue.async { [folder] in
      do throws(SystemError) {
        try StoredFile.replace(name, in: folder, with: bytes)
        completed(nil)
      } catch {
        completed(error.description)
      }
    }
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
