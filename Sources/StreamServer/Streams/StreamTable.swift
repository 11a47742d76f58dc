import StreamRuntime
import Reactive

/// The streams by name. Thread-safe.
final class StreamTable: Sendable {
  private struct State {
    var streams: [String: ServedStream] = [:]
    /// By watcher.
    var arrivals: [ObjectIdentifier: Arrivals] = [:]
  }

  /// The streams that a watcher has not taken.
  private struct Arrivals {
    var streams: [ServedStream] = []
    let wake: @Sendable () -> Void
  }

  private let state = Locked(State())

  subscript(name: String) -> ServedStream? { state.withLock { $0.streams[name] } }

  var count: Int { state.withLock { $0.streams.count } }

  /// All streams, in no order. Event loops need the lock, so that nobody sorts under it.
  var unsorted: [ServedStream] { state.withLock { Array($0.streams.values) } }

  /// All streams, sorted by name.
  var all: [ServedStream] { unsorted.sorted { $0.name < $1.name } }

  /// The streams whose names have about this number of bytes; none if there are more streams than `limit`.
  func named(inAbout byteCount: Int, ofAtMost limit: Int) -> [ServedStream] {
    state.withLock { state in
      guard state.streams.count <= limit else { return [] }
      return state.streams.values.filter { abs($0.name.utf8.count - byteCount) <= 2 }
    }
  }

  /// - Returns: false when the name is taken.
  func insert(_ stream: ServedStream) -> Bool {
    let wakes = state.withLock { state -> [@Sendable () -> Void]? in
      guard state.streams[stream.name] == nil else { return nil }
      state.streams[stream.name] = stream
      var wakes: [@Sendable () -> Void] = []
      for watcher in state.arrivals.keys {
        if state.arrivals[watcher]?.streams.isEmpty == true, let wake = state.arrivals[watcher]?.wake {
          wakes.append(wake)
        }
        state.arrivals[watcher]?.streams.append(stream)
      }
      return wakes
    }
    guard let wakes else { return false }
    for wake in wakes { wake() }
    return true
  }

  /// - Returns: nil if no stream has the name.
  func remove(_ name: String) -> ServedStream? { state.withLock { $0.streams.removeValue(forKey: name) } }

  // MARK: Arrivals

  /// Lists streams that come from now on for a watcher.
  /// - Parameter wake: called on any thread for the first stream that the watcher has not taken.
  /// - Returns: the present streams, in no order.
  func watch(by watcher: AnyObject, wake: @escaping @Sendable () -> Void) -> [ServedStream] {
    state.withLock { state in
      if state.arrivals[ObjectIdentifier(watcher)] == nil {
        state.arrivals[ObjectIdentifier(watcher)] = Arrivals(wake: wake)
      }
      return Array(state.streams.values)
    }
  }

  func unwatch(by watcher: AnyObject) { state.withLock { $0.arrivals[ObjectIdentifier(watcher)] = nil } }

  /// Whether the watcher has not taken all streams. An event of a stream that is in the table and not listed here is later
  /// than the call.
  func hasArrivals(for watcher: AnyObject) -> Bool {
    state.withLock { $0.arrivals[ObjectIdentifier(watcher)]?.streams.isEmpty == false }
  }

  func takeArrivals(for watcher: AnyObject) -> [ServedStream] {
    state.withLock { state in
      let streams = state.arrivals[ObjectIdentifier(watcher)]?.streams ?? []
      state.arrivals[ObjectIdentifier(watcher)]?.streams = []
      return streams
    }
  }
}

extension [ServedStream] {
  /// Those that are not system streams, sorted by name.
  var userStreams: [ServedStream] { filter { !$0.name.hasPrefix("$") }.sorted { $0.name < $1.name } }
}
