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
///
/// The first stands by itself: most connections have no other, and need no table.
struct LiveRequests {
  private var first: LiveRequest?
  private var others: [LiveRequest] = []

  var count: Int { first == nil ? 0 : 1 + others.count }

  subscript(index: Int) -> LiveRequest {
    get { index == 0 ? first! : others[index - 1] }
    _modify { if index == 0 { yield &first! } else { yield &others[index - 1] } }
  }

  /// - Complexity: O(log count).
  func index(of id: StreamID) -> Int? {
    let index = insertionIndex(of: id)
    return index < count && self[index].id == id ? index : nil
  }

  /// The ID must not be there yet.
  mutating func insert(_ request: LiveRequest) {
    let index = insertionIndex(of: request.id)
    if index > 0 { return others.insert(request, at: index - 1) }
    if let first { others.insert(first, at: 0) }
    first = request
  }

  /// Frees the table with its last request.
  mutating func remove(at index: Int) {
    if index > 0 { others.remove(at: index - 1) } else { first = others.isEmpty ? nil : others.removeFirst() }
    if others.isEmpty { others = [] }
  }

  private func insertionIndex(of id: StreamID) -> Int {
    var low = 0
    var high = count
    while low < high {
      let middle = (low + high) / 2
      if self[middle].id < id { low = middle + 1 } else { high = middle }
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
