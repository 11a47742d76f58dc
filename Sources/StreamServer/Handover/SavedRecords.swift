import Events
import RSocket
import Reactive
import ReplayLog
import TaggedFields
import StreamProtocol

// The fields of saved connections. The meaning of a tag never changes; a field that a later version adds has a new tag,
// with its highest bit set if a reader must not skip it. `docs/STATE.md`, "Fields", lists them all.

extension SavedConnections: TaggedRecord {
  /// The end of a stream's ids.
  private struct NamedEnd: TaggedRecord {
    var name = ""
    var end = StreamEnd(position: 0)

    package mutating func visit(_ fields: inout RecordFields) throws(Malformed) {
      try fields.field(1, &name)
      try fields.field(2, &end.position)
      try fields.field(3, &end.countedFrom)
      var freshness = end.freshness.map { [$0] } ?? []
      try fields.field(4, &freshness)
      end.freshness = freshness.last
      try fields.field(5, &end.mapGeneration)
      try fields.field(6, &end.maker)
    }
  }

  package init() { self.init([]) }

  package mutating func visit(_ fields: inout RecordFields) throws(Malformed) {
    var ends = ends.sorted { $0.key < $1.key }.map { NamedEnd(name: $0.key, end: $0.value) }
    try fields.field(1, &waiting)
    try fields.field(2, &ends)
    try fields.field(3, &connections)
    try fields.field(4, &left)
    try fields.field(5, &templates)
    try fields.field(6, &tickets)
    self.ends = Dictionary(ends.map { ($0.name, $0.end) }) { $1 }
  }
}

extension ClientTickets.Open: TaggedRecord {
  package mutating func visit(_ fields: inout RecordFields) throws(Malformed) {
    try fields.field(1, &digest)
    try fields.field(2, &token.name)
    try fields.field(3, &token.version)
    try fields.field(4, &end)
  }
}

extension FreshnessMachine.Saved: TaggedRecord {
  package init() { self.init(provedAt: 0, demandedSince: 0, isStale: false) }

  package mutating func visit(_ fields: inout RecordFields) throws(Malformed) {
    try fields.field(1, &provedAt)
    try fields.field(2, &demandedSince)
    try fields.field(3, &isStale)
  }
}

extension EventLoss {
  /// As one number, which is not 0.
  fileprivate var number: UInt64 {
    switch self {
    case .known: min(count, .max - 2)
    case .unknown: .max
    case .possible: .max - 1
    }
  }

  fileprivate init?(number: UInt64) {
    switch number {
    case 0: return nil
    case .max: self = .unknown
    case .max - 1: self = .possible
    default: self = .known(number)
    }
  }
}

extension SavedConnections.Waiting: TaggedRecord {
  /// One event.
  private struct Event: TaggedRecord {
    var bytes: [UInt8] = []

    package mutating func visit(_ fields: inout RecordFields) throws(Malformed) { try fields.field(1, &bytes) }
  }

  package init() { self.init(stream: "", events: EventBatch()) }

  package mutating func visit(_ fields: inout RecordFields) throws(Malformed) {
    var list = events.map { Event(bytes: $0) }
    var checkpoints = events.checkpoint.map { [Event(bytes: $0.bytes)] } ?? []
    try fields.field(1, &stream)
    try fields.field(2, &list)
    try fields.field(3, &checkpoints)
    var (keys, definition) = (events.keys?.encoded ?? [], events.keys?.definition ?? 0)
    try fields.field(4, &keys)
    try fields.field(5, &definition)
    var lost = events.loss?.number ?? 0
    try fields.field(6, &lost)
    guard fields.isReading else { return }
    events = EventBatch(list.map(\.bytes))
    events.checkpoint = checkpoints.last.flatMap { Checkpoint($0.bytes) }
    events.setKeys(EventKeys(encoded: keys, count: events.count, definition: definition))
    events.loss = EventLoss(number: lost)
  }
}

extension SavedConnection: TaggedRecord {
  package mutating func visit(_ fields: inout RecordFields) throws(Malformed) {
    try fields.field(1, &number)
    try fields.field(2, &machine)
    try fields.field(3, &silence)
    try fields.field(4, &input)
    try fields.field(5, &unsent)
    try fields.field(6, &subscriptions)
    try fields.field(7, &channels)
    var token = token ?? .init()
    try fields.field(8, &token.name)
    try fields.field(9, &token.version)
    self.token = token.name.isEmpty ? nil : token
    var (http, webSocket) = (http.map { [$0] } ?? [], webSocket.map { [$0] } ?? [])
    try fields.field(RecordFields.mandatoryBit | 1, &http)
    try fields.field(RecordFields.mandatoryBit | 2, &webSocket)
    (self.http, self.webSocket) = (http.last, webSocket.last)
    try fields.field(RecordFields.mandatoryBit | 3, &patterns)
    // A record without a number is refused at once, so that a list of byte counts alone costs no more than its bytes.
    guard !fields.isReading || hasNumber else { throw Malformed(reason: "no server had its connection \(number)") }
    if fields.isReading, !isPossible { self = .invalid(number: number) }
  }
}

extension SavedConnection.Pattern: TaggedRecord {
  package mutating func visit(_ fields: inout RecordFields) throws(Malformed) {
    var (id, credit) = (id.rawValue, UInt64(credit.max ?? .max))
    try fields.field(1, &id)
    try fields.field(2, &text)
    try fields.field(3, &options)
    try fields.field(4, &credit)
    try fields.field(5, &encoding)
    try fields.field(6, &isFinite)
    try fields.field(7, &start)
    try fields.field(8, &isMarked)
    guard fields.isReading else { return }
    (self.id, self.credit) = (StreamID(id), credit >= Int.max ? .unlimited : .max(Int(credit)))
  }
}

extension SavedConnection.Subscription: TaggedRecord {
  package mutating func visit(_ fields: inout RecordFields) throws(Malformed) {
    var (id, ids, completes, onLag) = (id.rawValue, format.ids, format.completes, onLag.rawValue)
    var (position, sentBytes) = (cursor.position, UInt64(cursor.sentBytes))
    var credit = UInt64(credit.max ?? .max)
    var gap = gap?.count
    var encoding = format.savedEncoding
    var (json, filterNumber, markers) = (filter?.json ?? [], 0 as UInt64, self.markers.rawValue)
    if !json.isEmpty, !fields.isReading { filterNumber = fields.repeated.number(of: json) }
    if filterNumber > 0 { json = [] }
    try fields.field(1, &stream)
    try fields.field(2, &id)
    try fields.field(3, &ids)
    try fields.field(4, &completes)
    try fields.field(5, &onLag)
    try fields.field(6, &position)
    try fields.field(7, &sentBytes)
    try fields.field(8, &credit)
    try fields.field(9, &gap)
    try fields.field(10, &encoding)
    try fields.field(11, &leftOut)
    try fields.field(RecordFields.mandatoryBit | 1, &json)
    try fields.field(RecordFields.mandatoryBit | 2, &markers)
    var states = state.map { [$0] } ?? []
    try fields.field(RecordFields.mandatoryBit | 3, &states)
    state = states.last
    try fields.field(RecordFields.mandatoryBit | 4, &filterNumber)
    try fields.field(RecordFields.mandatoryBit | 5, &awaitedID)
    guard fields.isReading else { return }
    try fields.require(id)
    guard awaitedID <= EventLog.stampedIDLimit else { throw Malformed(reason: "no event can have the id \(awaitedID)") }
    if !json.isEmpty {
      let first: EventFilter
      do throws(SubscribeOptions.Malformed) {
        first = try EventFilter(json: json)
      } catch {
        throw Malformed(reason: error.sentence)
      }
      fields.repeated.append(first)
      filter = first
    } else if filterNumber > 0 {
      guard let known = fields.repeated.value(filterNumber, as: EventFilter.self) else {
        throw Malformed(reason: "there is no filter \(filterNumber) before it")
      }
      filter = known
    }
    guard let markers = SavedConnection.Markers(rawValue: markers), ids || markers == .none else {
      throw Malformed(reason: "there are no markers \(markers)")
    }
    self.markers = markers
    guard
      let format = EventFormat(
        savedEncoding: encoding, ids: ids, completes: completes, counts: filter != nil, hasKind: markers != .none)
    else { throw Malformed(reason: "there is no encoding \(encoding)") }
    guard let policy = LagPolicy(rawValue: onLag) else { throw Malformed(reason: "there is no on_lag \"\(onLag)\"") }
    (self.id, self.format, self.onLag) = (StreamID(id), format, policy)
    cursor = Cursor(position: position, sentBytes: Int(clamping: sentBytes))
    self.credit = credit >= Int.max ? .unlimited : .max(Int(credit))
    self.gap = gap.map { Gap(count: $0) }
  }
}

extension SavedConnection.State: TaggedRecord {
  package mutating func visit(_ fields: inout RecordFields) throws(Malformed) {
    try fields.field(1, &end)
    try fields.field(2, &origin.keyDigest)
    try fields.field(3, &begin)
    try fields.field(4, &origin.begin)
  }
}

extension SavedConnection.Channel: TaggedRecord {
  package mutating func visit(_ fields: inout RecordFields) throws(Malformed) {
    var (id, credit) = (id.rawValue, UInt64(credit))
    var named = named.map { [$0] } ?? []
    var held = held.map { [$0] } ?? []
    try fields.field(1, &id)
    try fields.field(2, &stream)
    try fields.field(3, &credit)
    try fields.field(4, &named)
    try fields.field(0x8001, &held)
    try fields.require(id)
    self.id = StreamID(id)
    self.credit = Int(clamping: credit)
    self.named = named.last
    self.held = held.last
  }
}

extension SavedConnection.HeldValues: TaggedRecord {
  package mutating func visit(_ fields: inout RecordFields) throws(Malformed) {
    var values = values.map { SavedHTTP.Item($0) }
    try fields.field(1, &values)
    try unsettled.visit(&fields, 2, 3)
    try fields.field(4, &isComplete)
    self.values = values.map(\.bytes)
  }
}

extension UnsettledValues {
  /// Two fields of a record.
  mutating func visit(_ fields: inout RecordFields, _ countTag: UInt16, _ byteTag: UInt16) throws(Malformed) {
    var (count, byteCount) = (UInt64(count), UInt64(byteCount))
    try fields.field(countTag, &count)
    try fields.field(byteTag, &byteCount)
    self = UnsettledValues(count: Int(clamping: count), byteCount: Int(clamping: byteCount))
  }
}

extension ChannelNumbering: TaggedRecord {
  init() { self.init(name: [], next: 0, demand: 0, confirmed: 0) }

  package mutating func visit(_ fields: inout RecordFields) throws(Malformed) {
    try fields.field(1, &name)
    try fields.field(2, &next)
    try fields.field(3, &demand)
    try fields.field(4, &confirmed)
  }
}

extension ConnectionMachine.Saved: TaggedRecord {
  package mutating func visit(_ fields: inout RecordFields) throws(Malformed) {
    try fields.field(1, &isOpen)
    try fields.field(2, &metadataFormat)
    try fields.field(3, &usesLeases)
    try fields.field(4, &keepaliveMilliseconds)
    try fields.field(5, &lifetimeMilliseconds)
    try fields.field(6, &leaseCount)
    try fields.field(7, &tail)
    try fields.field(8, &output)
    try fields.field(9, &requests)
    try fields.field(10, &knowsReasons)
  }
}

extension ConnectionMachine.Saved.Request: TaggedRecord {
  package mutating func visit(_ fields: inout RecordFields) throws(Malformed) {
    var id = id.rawValue
    var assemblies = assembly.map { [$0] } ?? []
    try fields.field(1, &id)
    try fields.field(2, &kind)
    try fields.field(3, &state)
    try fields.field(4, &inboundCredit)
    try fields.field(5, &assemblies)
    try fields.require(id)
    self.id = StreamID(id)
    assembly = assemblies.last
  }
}

extension ConnectionMachine.Saved.Assembly: TaggedRecord {
  package mutating func visit(_ fields: inout RecordFields) throws(Malformed) {
    var number = kind?.rawValue
    var hasMetadata = payload.metadata != nil
    var metadata = payload.metadata ?? []
    try fields.field(1, &number)
    try fields.field(2, &initialRequest)
    try fields.field(3, &isComplete)
    try fields.field(4, &hasMetadata)
    try fields.field(5, &metadata)
    try fields.field(6, &payload.data)
    kind = try number.map { number throws(Malformed) in
      guard let kind = RequestKind(rawValue: number) else {
        throw Malformed(reason: "there is no request kind \(number)")
      }
      return kind
    }
    payload.metadata = hasMetadata ? metadata : nil
  }
}

extension RecordFields {
  /// Refuses a record without a request at once, so that a list of byte counts alone costs no more than its bytes.
  fileprivate func require(_ id: UInt32) throws(Malformed) {
    guard id > 0 || !isReading else { throw Malformed(reason: "a record has no request") }
  }
}
