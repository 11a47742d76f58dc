import StreamProtocol

/// A filter as it is compiled once for a request, however many streams the request names. Confined to a loop, except for
/// `filter`.
final class RequestFilter {
  let filter: EventFilter
  private(set) lazy var matcher = EventMatcher(filter)
  /// An upper bound of the memory of its verdicts, without those on events of the log.
  private(set) lazy var byteCount = FilterVerdicts.byteCount(of: filter)

  init(_ filter: EventFilter) { self.filter = filter }
}

extension Worker {
  /// The filter of a request, or of a restored subscription: the last one again, if it is equal.
  func compiled(_ filter: EventFilter) -> RequestFilter {
    loop.assertOnLoop()
    if let lastFilter, lastFilter.filter == filter { return lastFilter }
    let compiled = RequestFilter(filter)
    lastFilter = compiled
    return compiled
  }
}
