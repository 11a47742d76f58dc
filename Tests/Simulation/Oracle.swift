import CSimulation
import Events
import Glibc
import Reactive
@testable import ReplayLog
import StreamServer

/// A rule that does not hold. Ends the run.
func fail(_ rule: String, _ details: @autoclosure () -> String) -> Never {
  Report.shared.end(failing: rule, details())
}

func require(_ condition: Bool, _ rule: String, _ details: @autoclosure () -> String) {
  if !condition { fail(rule, details()) }
}

/// What is true of one stream, whatever becomes of processes: the events that it has had.
final class Truth {
  struct Event {
    let data: [UInt8]
    let time: UInt64
    /// nil where nothing that keeps to the rules has made it.
    let content: Content?
    /// `Truth.losses` when it was appended.
    let losses: Int
    var wasDelivered = false
  }

  let name: String
  private let kind: StreamSpecification.Kind
  private(set) var events: [UInt64: Event] = [:]
  /// The ids of `events`, and of some that are forgotten; in order.
  private var ids: [UInt64] = []
  /// The highest id that was given.
  private(set) var last: UInt64 = 0
  /// What came last of each maker, and how many values in all.
  private var makers: [String: (last: Content, count: Int)] = [:]
  /// How often `makers` was forgotten.
  private(set) var forgets = 0
  /// The number of a maker's last value that the server has said to be there, and that no other will follow.
  private var finalNumbers: [String: UInt64] = [:]
  /// Whether the next process is to find all that was there.
  var isKept = true
  /// What the process has as the newest event; nil: none that it knows.
  private var held: UInt64?
  /// The id that it gives next.
  private var end: UInt64 = 0
  /// Ids from which on a log gave its ids that knew nothing of those before.
  private(set) var beginnings: [UInt64] = []
  /// Values of publishers may have been left out, as too large for a smaller log; their publishers were told.
  var mayLeaveOut = false
  /// Events that an upstream sent before this may have been left out on their way, as too large for a smaller log.
  var epoch = 0
  /// The highest ids of the earlier lives of a template's stream, in order.
  private(set) var lifeEnds: [UInt64] = []
  /// What has become of its last life: it goes on; it has ended, and a kill may undo that; nothing is left of it.
  private enum Life { case present, ending, past }
  private var life = Life.present
  /// Raised when subscribers may lose events that a stream which drops nothing would keep.
  var losses = 0

  /// What there was when the machine lost power, until the next process begins.
  private var formerEvents: [UInt64: Event]?
  private(set) var history = History()
  /// Events before this one may have come that nothing has seen but the state of the keys.
  private var unseenBefore: UInt64 = 0
  /// Raised when a state may be lost, or may be refused.
  var stateRisks = 0
  /// What the process has as the state; nil: none, or an incomplete one.
  private var state: (origin: KeyedState.Origin, keys: Int, bytes: Int)?

  /// Whether an unchanged page may be an event again: the log may have been empty.
  var mayRepeat = false

  /// What a derived stream has had of its bases; nil: it is none.
  private(set) var derived: DerivedHistory?
  var bases: [String] { kind.bases }
  var isPublished: Bool { kind == .clients }
  /// The ids of all events so far with the same bytes, by the hash of these; only for bases.
  private var idsByHash: [UInt64: [UInt64]]?

  init(_ name: String, _ kind: StreamSpecification.Kind) { (self.name, self.kind) = (name, kind) }

  /// Makes it that of a stream that is derived from others.
  func derive(from bases: [Truth], largestEvent: Int, isHeld: @escaping (_ base: String, _ id: UInt64) -> Bool) {
    for base in bases where base.idsByHash == nil { base.idsByHash = [:] }
    derived = DerivedHistory(of: bases, for: name, where: kind.filter, largestEvent: largestEvent, isHeld: isHeld)
  }

  /// A derived stream's log takes no larger event from now on.
  func limitEvents(to largestEvent: Int) { derived?.limitEvents(to: largestEvent) }

  /// The ids of all events so far with these bytes, in order.
  func ids(of data: [UInt8]) -> [UInt64] {
    (idsByHash?[hash(data)] ?? []).filter { events[$0].map { $0.data == data } ?? true }.sorted()
  }

  /// The events between two ids, without the first one and the last one.
  func events(after id: UInt64, before end: UInt64) -> [(id: UInt64, event: Event)] {
    ids[index(after: id)...].prefix { $0 < end }.compactMap { id in events[id].map { (id, $0) } }
  }

  /// The log has another event.
  /// - Parameter isFound: whether a process has found it in a log that another one had.
  func append(_ id: UInt64, _ time: UInt64, _ data: [UInt8], isFound: Bool = false) {
    require(id > last, "ids rise", "\(name) gave id \(id) after \(last)")
    let isNext = id == last + 1
    (last, held, end) = (id, id, id + 1)
    idsByHash?[hash(data), default: []].append(id)
    let content = Content(data).flatMap { $0.maker.first == "x" ? nil : $0 }
    events[id] = Event(data: data, time: time, content: content, losses: losses)
    ids.append(id)
    history.add(id, content)
    Report.shared.events += 1
    sim_trace_add(id ^ hash(data))
    derived?.received(events[id]!, id, isNext: isNext, isFound: isFound)
    guard let content else {
      // A hostile client may have made it.
      return require(kind.mayHaveAnything, "bytes", "\(name) has an event \(id) that nothing made")
    }
    guard bases.isEmpty else { return }
    let (former, count) = makers[content.maker].map { ($0.last, $0.count) } ?? (nil, 0)
    if let former {
      require(
        follows(former, content), "each value once and in order",
        "\(name): after \(content.maker) \(former.epoch).\(former.number) comes \(content.epoch).\(content.number)")
    }
    require(
      content.number <= finalNumbers[content.maker] ?? .max, "confirmations",
      "\(name): value \(content.number) of \(content.maker) comes after the server had said that it never will")
    makers[content.maker] = (content, count + 1)
  }

  /// Whether a value may come after another of its maker.
  private func follows(_ former: Content, _ content: Content) -> Bool {
    let isLater = content.epoch == former.epoch && content.number > former.number
    let isNext = isLater && content.number == former.number + 1
    switch kind {
    case .events: return isNext || isLater && mayLeaveOut
    case .page: return isLater || content.number == former.number && (mayRepeat || mayLeaveOut)
    case .world, .clients:
      return content.epoch > former.epoch || isNext || content.epoch < epoch
        || isLater && (mayLeaveOut || content.maker.hasPrefix("f"))
    case .derived, .mirror: return true
    }
  }

  /// The number of the last value of a maker; nil: not known.
  func newest(of maker: String) -> UInt64? { makers[maker]?.last.number }

  /// The server has said that the first `count` values of a maker, numbered from 1, are there.
  /// - Parameters:
  ///   - former: `forgets` when the request began.
  ///   - isFinal: whether no others will come.
  func confirm(_ count: UInt64, of maker: String, since former: Int, isFinal: Bool, to client: String) {
    if isFinal { finalNumbers[maker] = count }
    guard forgets == former else { return }
    let (newest, number) = makers[maker].map { ($0.last.number, $0.count) } ?? (0, 0)
    require(
      newest >= count && number >= count && (!isFinal || newest == count), "confirmations",
      "\(client) was told that \(count) values of \(maker) are in \(name), which has \(number), up to \(newest)")
  }

  /// Whether it has had no event between two others.
  func isEmpty(between id: UInt64, and other: UInt64) -> Bool {
    !ids.contains { $0 > id && $0 < other && events[$0] != nil }
  }

  /// Whether a derived stream gave no id between two others to an event.
  func isHole(between id: UInt64, and other: UInt64) -> Bool { derived != nil && isEmpty(between: id, and: other) }

  /// Whether a derived stream left out an id between two others.
  func hasHole(between id: UInt64, and other: UInt64) -> Bool {
    derived != nil && other > id && events(after: id, before: other).count < other - id - 1
  }

  /// The events after `id`, and before `end`, that surely fit a filter.
  func fitting(_ filter: Filter?, after id: UInt64, before end: UInt64 = .max) -> [UInt64] {
    ids[index(after: id)...].prefix { $0 < end }.filter { fits(filter, $0) == true }
  }

  /// Whether an event fits a filter; nil: not known, as of one of a hostile client.
  func fits(_ filter: Filter?, _ id: UInt64) -> Bool? {
    guard let event = events[id] else { return nil }
    guard let filter else { return true }
    return event.content.map { filter.fits($0, of: name) }
  }

  /// In `ids`, of the first one after another.
  private func index(after id: UInt64) -> Int {
    var (low, high) = (0, ids.count)
    while low < high {
      let middle = (low + high) / 2
      if ids[middle] <= id { low = middle + 1 } else { high = middle }
    }
    return low
  }

  /// The server has said that no values of a maker come after this one.
  func end(_ maker: String, at number: UInt64) { finalNumbers[maker] = number }

  /// The first event after another one that a client gets as these bytes.
  func id(after id: UInt64, of data: [UInt8], as form: EventForm) -> UInt64? {
    ids[index(after: id)...].first { events[$0].map { form.applied(to: $0.data) == data } ?? false }
  }

  /// The stream of a template is gone, with its events.
  func endLife() {
    life = .ending
    if lifeEnds.last != last { lifeEnds.append(last) }
    (held, isKept) = (nil, false)
    losses += 1
    stateRisks += 1
  }

  /// There is no such stream.
  func noteAbsence() { if life == .ending { life = .past } }

  /// Whether two ids are of different lives of a stream of a template.
  func isAnotherLife(_ id: UInt64, than other: UInt64) -> Bool {
    lifeEnds.contains { min(id, other) <= $0 && $0 < max(id, other) }
  }

  /// The log of a process that has just begun.
  func check(held id: UInt64, _ time: UInt64, _ data: [UInt8]) {
    // A process that was killed may have appended it without telling; or nobody got it before a loss of power.
    if id > last { return append(id, time, data, isFound: true) }
    let isKnown = events[id] != nil
    note(id, time, data)
    guard !isKnown else { return }
    ids = events.keys.sorted()
    history.add(id, events[id]?.content)
  }

  /// A client got it.
  /// - Parameter time: nil where it got none.
  func delivered(_ id: UInt64, _ time: UInt64?, _ data: [UInt8], as form: EventForm, to client: String) {
    guard let known = events[id] else {
      fail("same id, same bytes", "\(client) got event \(id) of \(name), which there never was")
    }
    require(
      form.applied(to: known.data) == data && known.time == time ?? known.time, "same id, same bytes",
      "\(client) got event \(id) of \(name) with other bytes (\(data.count) instead of \(known.data.count)) or another time"
    )
    events[id]?.wasDelivered = true
    Report.shared.deliveries += 1
  }

  /// A loss of power: what nobody has got is nobody's to miss, and what makers sent may come twice.
  func losePower() {
    // The disk may have the name of its file again.
    life = .present
    formerEvents = (formerEvents ?? [:]).merging(events) { $1 }
    events = events.filter { $0.value.wasDelivered }
    ids = events.keys.sorted()
    last = ids.last ?? 0
    forgetMakers()
    losses += 1
    isKept = false
  }

  /// A process begins, with a log whose newest event is this one, and whose next event gets that id.
  func begin(newest: UInt64?, end: UInt64, state: KeyedState?) {
    require(
      life != .past || newest == nil, "forgotten streams are gone",
      "\(name) was forgotten with its events, and is made again with event \(newest ?? 0)")
    life = .present
    // The events of a derived stream may all have expired that precede a hole. Its next id then follows the hole.
    let isBehindHole = derived != nil && mayRepeat && newest == nil && end > self.end
    require(
      !isKept || held == nil || newest == held || end == self.end || isBehindHole, "what is kept is there",
      "\(name) had events up to \(held ?? 0), and the next process finds them up to \(newest ?? 0)")
    // They have left the log, but the state may have them.
    if let kept = formerEvents?.filter({ $0.key <= newest ?? 0 && events[$0.key] == nil }), !kept.isEmpty {
      events.merge(kept) { known, _ in known }
      ids = events.keys.sorted()
    }
    let hasLost = formerEvents != nil || newest != held && end != self.end
    formerEvents = nil
    if hasLost {
      stateRisks += 1
      history.lose(after: newest ?? 0)
      // What the log had has left it by its age, or is lost; the state was made from some of it.
      if newest == nil, let state, state.count > 0 { findUnseen(in: state, below: end) }
    }
    if isKept, !hasLost, held != nil, let former = self.state, let state,
      former.origin.keyDigest == state.origin.keyDigest,
      state.maximumCount >= former.keys, state.maximumByteCount >= former.bytes
    {
      require(
        state.isComplete && state.origin.begin == former.origin.begin, "state",
        "\(name) had a state from \(former.origin.begin) on, and the next process has one from "
          + "\(state.origin.begin) on, \(state.incompleteness?.sentence ?? "complete")")
    }
    if newest == nil || newest != held || end != newest! + 1 { beginnings.append(end) }
    (held, self.end) = (newest, end)
    isKept = true
  }

  /// Events below `end` have left the log before anything saw them. Those that the state has may be delivered.
  fileprivate func findUnseen(in state: KeyedState?, below end: UInt64) {
    unseenBefore = end
    guard let state else { return }
    let walk = state.walk(asOf: state.end, begin: 0)
    _ = state.advance(walk, atMost: .max) { record, id in
      guard id < end else { return false }
      let record = record.whole
      // A tombstone that nothing reads.
      guard record.count > EventLog.stampBytes else { return true }
      let time = record.loadUnaligned(fromByteOffset: 8, as: UInt64.self).bigEndian
      note(id, time, Array(record.dropFirst(EventLog.stampBytes)))
      return true
    }
    state.finish(walk)
    ids = events.keys.sorted()
  }

  /// An event that has come at some time, if it is not known.
  private func note(_ id: UInt64, _ time: UInt64, _ data: [UInt8]) {
    if let known = events[id] {
      return require(
        known.data == data && known.time == time, "same id, same bytes",
        "\(name): event \(id) has other bytes or another time after a restart, or in the state")
    }
    let content = Content(data).flatMap { $0.maker.first == "x" ? nil : $0 }
    events[id] = Event(data: data, time: time, content: content, losses: losses)
  }

  /// The state of the keys is the newest event of each key.
  /// - Parameter isWhole: compares all of it, and not only the number of the keys.
  func check(_ state: KeyedState?, end: UInt64, isWhole: Bool) {
    if let state, isUnknown(stateFrom: state.origin.begin) { Report.shared.count("state: not known to the oracle") }
    guard let state, state.isComplete, !isUnknown(stateFrom: state.origin.begin),
      let keys = Keys.of(digest: state.origin.keyDigest)
    else {
      if state != nil { stateRisks += 1 }
      self.state = nil
      return
    }
    let begin = state.origin.begin
    self.state = (state.origin, state.maximumCount, state.maximumByteCount)
    let expected = history.state(of: keys, from: begin, below: end, since: history.losses)
    var found: [UInt64] = []
    if isWhole {
      let walk = state.walk(asOf: end)
      let progress = state.advance(walk, atMost: .max) { _, id in
        found.append(id)
        return true
      }
      state.finish(walk)
      require(progress == .finished, "state", "\(name) has a state of which a reader gets \(progress)")
    }
    Report.shared.count("state: checks of the log's")
    require(
      state.count == expected.count && (!isWhole || found == expected.values.sorted()), "state",
      "\(name), \(keys), has a state of \(state.count) keys \(found), and all events from \(begin) on make \(expected.values.sorted())"
    )
  }

  /// Whether an event is of a log that knows nothing of what came after another one.
  func begins(between last: UInt64, and event: UInt64) -> Bool { beginnings.contains { $0 > last && $0 <= event } }

  /// Whether a state was made from other events than those that are known.
  func isUnknown(stateFrom begin: UInt64) -> Bool { begin < unseenBefore }

  /// The makers' values may have been lost, or come twice.
  /// - Parameter unseen: whether values have come that nothing has seen.
  func forgetMakers(unseen: Bool = false) {
    makers = [:]
    forgets += 1
    derived?.forget(unseen: unseen)
  }
}

/// Reads each event of a log as it is appended.
final class Auditor: LogReader, @unchecked Sendable {
  private let truth: Truth
  private let log: SharedLog<EventLog, StreamFailure>
  /// The auditors of the bases of a derived stream, which read each event before it does.
  private let bases: [Auditor]
  private var next: UInt64

  init(_ truth: Truth, _ log: SharedLog<EventLog, StreamFailure>, bases: [Auditor] = []) {
    (self.truth, self.log, self.bases) = (truth, log, bases)
    next = log.read { storage, _ in
      var position = storage.firstPosition
      while position < storage.endPosition {
        let event = storage.element(at: position)
        truth.check(held: position, event.time, event.data)
        position = storage.skip(position + 1)
      }
      truth.begin(newest: storage.newestID, end: storage.endPosition, state: storage.state)
      truth.check(storage.state, end: storage.endPosition, isWhole: true)
      return storage.endPosition
    }
    log.attach(self)
  }

  /// The log holds it until then.
  func end() { log.detach(self) }

  func logDidChange() {
    guard sim_is_dead() == 0 else { return }
    for base in bases { base.logDidChange() }
    log.read { storage, _ in
      if next < storage.firstPosition {
        // One batch was larger than the log.
        truth.forgetMakers(unseen: true)
        truth.findUnseen(in: storage.state, below: storage.firstPosition)
        next = storage.firstPosition
      }
      next = storage.skip(next)
      while next < storage.endPosition {
        let event = storage.element(at: next)
        truth.append(next, event.time, event.data)
        next = storage.skip(next + 1)
      }
      if storage.state != nil { truth.check(storage.state, end: storage.endPosition, isWhole: next % 8 == 0) }
    }
  }
}
