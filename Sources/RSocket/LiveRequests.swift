/// One live request, in as few bytes as possible: a server holds one for each of its subscribers.
struct LiveRequest {
  /// The open halves, and whether fragments are being gathered.
  struct State: OptionSet {
    let rawValue: UInt8
    /// The peer may send values.
    static let inbound = State(rawValue: 1)
    /// This side may send values.
    static let outbound = State(rawValue: 2)
    /// The request itself is incomplete: it has not been reported to the owner.
    static let assemblingRequest = State(rawValue: 4)
    /// A value is incomplete.
    static let assemblingValue = State(rawValue: 8)
    /// A request or a value is incomplete.
    static let assembling: State = [.assemblingRequest, .assemblingValue]

    /// Whether the peer's next frame may be a whole value.
    var receivesWholeValues: Bool { intersection(Self.assembling.union(.inbound)) == .inbound }
  }

  let id: StreamID
  /// The number of further values that the peer may send.
  var inboundCredit: UInt32
  let kind: RequestKind
  var state: State
}

/// The live requests, by ID.
///
/// The first request is stored separately: most connections have no other, and need no table.
struct LiveRequests {
  /// The location of a request; valid until another one is inserted or removed.
  enum Index {
    case first
    case other(Dictionary<StreamID, LiveRequest>.Index)
  }

  private var others: [StreamID: LiveRequest] = [:]
  private var first: LiveRequest?

  var count: Int { (first == nil ? 0 : 1) + others.count }

  /// All requests in ascending order of ID.
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

  /// - Complexity: O(1).
  func index(of id: StreamID) -> Index? {
    if first?.id == id { return .first }
    return others.index(forKey: id).map { .other($0) }
  }

  /// - Precondition: the ID is not in use.
  mutating func insert(_ request: LiveRequest) {
    if first == nil { first = request } else { others[request.id] = request }
  }

  /// Removes a request, and frees the table with its last request.
  mutating func remove(at index: Index) {
    switch index {
    case .first: first = nil
    case .other(let index):
      others.remove(at: index)
      if others.isEmpty { others = [:] }
    }
  }
}

/// An incomplete request or value.
struct Assembly {
  /// The kind of the request that the first frame opened; `nil` for a value.
  let kind: RequestKind?
  /// The initial demand plus that of later REQUEST_N frames.
  var initialRequest: UInt32
  var payload: Payload
  var isComplete: Bool
}
