/// One request under way, in as few bytes as it takes: a server holds one for each of its subscribers.
struct LiveRequest {
  /// The halves that are still open, and whether fragments are being gathered.
  struct State: OptionSet {
    let rawValue: UInt8
    /// The peer may send values.
    static let inbound = State(rawValue: 1)
    /// We may send values.
    static let outbound = State(rawValue: 2)
    /// The request itself is not whole yet: nobody but the machine knows of it.
    static let assemblingRequest = State(rawValue: 4)
    /// A value is not whole yet.
    static let assemblingValue = State(rawValue: 8)

    /// The peer's next frame may be a value of its own.
    var receivesWholeValues: Bool { intersection([.inbound, .assemblingRequest, .assemblingValue]) == .inbound }
  }

  let id: StreamID
  /// How many more values the peer may send.
  var inboundCredit: UInt32
  let kind: RequestKind
  var state: State
}

/// The requests under way, by ascending ID. IDs rise, so that a new one nearly always goes to the end.
struct LiveRequests {
  private var requests: [LiveRequest] = []

  var count: Int { requests.count }

  subscript(index: Int) -> LiveRequest {
    get { requests[index] }
    _modify { yield &requests[index] }
  }

  /// - Complexity: O(log count).
  func index(of id: StreamID) -> Int? {
    let index = insertionIndex(of: id)
    return index < requests.count && requests[index].id == id ? index : nil
  }

  /// The ID must not be there yet.
  mutating func insert(_ request: LiveRequest) { requests.insert(request, at: insertionIndex(of: request.id)) }

  /// Frees the table with its last request, so that an idle connection is small.
  mutating func remove(at index: Int) {
    requests.remove(at: index)
    if requests.isEmpty { requests = [] }
  }

  private func insertionIndex(of id: StreamID) -> Int {
    var low = 0
    var high = requests.count
    while low < high {
      let middle = (low + high) / 2
      if requests[middle].id < id { low = middle + 1 } else { high = middle }
    }
    return low
  }
}

/// A request or a value of which fragments are missing.
struct Assembly {
  /// What the first frame opened; `nil` for a value.
  let kind: RequestKind?
  /// With what REQUEST_N added since.
  var initialRequest: UInt32
  var payload: Payload
  var isComplete: Bool
}
