import StreamRuntime

extension Worker {
  /// The pause between two searches, in nanoseconds, and the number of streams that one compares: searches then take a
  /// hundredth of the loop's time at most, however many names clients ask for.
  private static let searchPause: UInt64 = 100_000_000
  private static let searchedStreams = 500
  /// Any two shorter names are similar.
  private static let leastByteCount = 3

  /// The name of a visible stream that is similar to one that no stream has; nil: none is, or searches are too frequent.
  func stream(similarTo name: String, _ visibility: () -> Visibility) -> String? {
    loop.assertOnLoop()
    guard name.utf8.count >= Self.leastByteCount, loop.now >= nextSearch else { return nil }
    nextSearch = loop.now + Self.searchPause
    let found = streams.named(inAbout: name.utf8.count, ofAtMost: Self.searchedStreams)
    guard !found.isEmpty else { return nil }
    let visibility = visibility()
    return nearest(to: name, among: Set(found.filter { visibility.shows($0) }.map(\.name)))
  }
}
