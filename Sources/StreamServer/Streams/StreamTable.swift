import StreamRuntime
import Reactive

/// The streams by name. Thread-safe.
final class StreamTable: Sendable {
  private let streams = Locked<[String: ServedStream]>([:])

  subscript(name: String) -> ServedStream? { streams.withLock { $0[name] } }

  var count: Int { streams.withLock { $0.count } }

  /// All streams, in no order. Event loops need the lock, so that nobody sorts under it.
  var unsorted: [ServedStream] { streams.withLock { Array($0.values) } }

  /// All streams, sorted by name.
  var all: [ServedStream] { unsorted.sorted { $0.name < $1.name } }

  /// The streams whose names have about this number of bytes; none if there are more streams than `limit`.
  func named(inAbout byteCount: Int, ofAtMost limit: Int) -> [ServedStream] {
    streams.withLock { streams in
      guard streams.count <= limit else { return [] }
      return streams.values.filter { abs($0.name.utf8.count - byteCount) <= 2 }
    }
  }

  /// - Returns: false when the name is taken.
  func insert(_ stream: ServedStream) -> Bool {
    streams.withLock { streams in
      guard streams[stream.name] == nil else { return false }
      streams[stream.name] = stream
      return true
    }
  }

  /// - Returns: nil if no stream has the name.
  func remove(_ name: String) -> ServedStream? { streams.withLock { $0.removeValue(forKey: name) } }
}

extension [ServedStream] {
  /// Those that are not system streams, sorted by name.
  var userStreams: [ServedStream] { filter { !$0.name.hasPrefix("$") }.sorted { $0.name < $1.name } }
}
