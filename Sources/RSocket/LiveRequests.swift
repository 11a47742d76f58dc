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
    /// Either.
    static let assembling: State = [.assemblingRequest, .assemblingValue]

    /// The peer's next frame may be a value of its own.
    var receivesWholeValues: Bool { intersection(Self.assembling.union(.inbound)) == .inbound }
  }

  let id: StreamID
  /// How many more values the peer may send.
  var inboundCredit: UInt32
  let kind: RequestKind
  var state: State
}

/// The requests under way, by ID.
///
/// One stands by itself: most connections have no other, and need no table.
struct LiveRequests {
  /// Where a request is found; valid until another one is inserted or removed.
  enum Index {
    case first
    case other(Dictionary<StreamID, LiveRequest>.Index)
  }

  private var first: LiveRequest?
  private var others: [StreamID: LiveRequest] = [:]

  var count: Int { (first == nil ? 0 : 1) + others.count }

  /// By ascending ID.
  var all: [LiveRequest] { ((first.map { [$0] } ?? []) + others.values).sorted { $0.id < $1.id } }

  subscript(index: Index) -> LiveRequest {
    get {
      switch index {
      case .first: first!
      case .other(let index): others.values[index]
      }
    }
    _modify {
      switch index {
      case .first: yield &first!
      case .other(let index): yield &others.values[index]
      }
    }
  }

  /// - Complexity: O(1), however many there are.
  func index(of id: StreamID) -> Index? {
    if first?.id == id { return .first }
    return others.index(forKey: id).map { .other($0) }
  }

  /// The ID must not be there yet.
  mutating func insert(_ request: LiveRequest) {
    if first == nil { first = request } else { others[request.id] = request }
  }

  /// Frees the table with its last request.
  mutating func remove(at index: Index) {
    switch index {
    case .first: first = nil
    case .other(let index):
      others.remove(at: index)
      if others.isEmpty { others = [:] }
    }
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
