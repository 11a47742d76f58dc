import ReplayLog

/// A request for the state of a stream's keys, until the client surely has all of it: which events may come, and which
/// must. The client is not told where the state ends and later events begin; a marker, an event without a key and a gap
/// come after it.
struct StateReading {
  /// What was true of the stream when a request was made.
  struct Beginning {
    let keys: Keys
    let origin: KeyedState.Origin
    /// The id that the log gave next: the state is that of the events before that, or before a later one.
    let end: UInt64
    /// The history's.
    let losses: Int

    /// - Returns: nil if the stream has no state, or is changed at this moment.
    init?(_ stream: String, _ world: World) {
      guard world.reloading == nil, let state = world.machine.state(of: stream), let truth = world.truths[stream],
        !truth.isUnknown(stateFrom: state.origin.begin), let keys = Keys.of(digest: state.origin.keyDigest)
      else { return nil }
      (self.keys, origin, end, losses) = (keys, state.origin, state.end, truth.history.losses)
    }
  }

  private let stream: String
  private var beginning: Beginning
  private let filter: Filter?
  /// The ids of the events that the client has.
  private var received: [UInt64] = []
  /// Events from here on may come whatever came after them: the client continues after the one before.
  private var first: UInt64
  /// The client has the state of the events before, beside what it received.
  private var completeEnd: UInt64 = 0
  private var hasBegun = false
  /// What the server read of the state so far was as of this id, or of an earlier one.
  private var latestEnd: UInt64 = 0
  /// `latestEnd` when the client connected again: what came before it may be missing until its key's later event comes.
  private var formerEnd: UInt64 = 0

  init(of stream: String, _ beginning: Beginning, where filter: Filter?) {
    (self.stream, self.beginning, self.filter, first) = (stream, beginning, filter, beginning.end)
  }

  /// For a client that continues after an event on another connection.
  /// - Parameter isComplete: it has the whole state, and everything since then.
  func resumed(after id: UInt64, isComplete: Bool) -> Self {
    var next = self
    (next.first, next.hasBegun, next.formerEnd) = (min(first, id + 1), true, latestEnd)
    if isComplete { (next.completeEnd, next.received) = (id + 1, []) }
    return next
  }

  /// Whether the state is still made of the same events by the same keys, as a client requests the rest.
  func isContinued(_ next: Beginning?) -> Bool { next?.origin == beginning.origin }

  /// Whether it is known which events the state was made from.
  func isKnown(_ truth: Truth) -> Bool { !truth.isUnknown(stateFrom: beginning.origin.begin) }

  /// Whether it is still known what the state was made from; as the first payload arrives.
  mutating func begins(_ world: World) -> Bool {
    if hasBegun { return true }
    hasBegun = true
    return world.machine.state(of: stream)?.origin == beginning.origin
  }

  /// Whether it is known what the client reads.
  func isKnown(_ world: World) -> Bool {
    hasBegun || world.machine.state(of: stream)?.origin == beginning.origin
  }

  /// Whether a key's event may be delivered, and whether it must; by what has come since.
  private func duty(of index: Int, in entries: [History.Entry]) -> (may: Bool, must: Bool) {
    let (entry, keys) = (entries[index], beginning.keys)
    guard let key = keys.key(of: entry.content) else { return (entry.id >= first, false) }
    let next = entries[(index + 1)...].first { keys.key(of: $0.content) == key }
    guard keys.isTombstone(entry.content) else { return (next.map { $0.id >= first } ?? true, next == nil) }
    return (entry.id >= first, next == nil && entry.lostAt == nil && hasKey(key, entries[..<index]))
  }

  /// Whether the client has an event of a key, and not its removal.
  private func hasKey(_ key: UInt64, _ entries: ArraySlice<History.Entry>) -> Bool {
    let newest = entries.last {
      beginning.keys.key(of: $0.content) == key
        && ($0.id < completeEnd && $0.id >= beginning.origin.begin || received.contains($0.id))
    }
    return newest.map { !beginning.keys.isTombstone($0.content) } ?? false
  }

  /// Judges a payload.
  ///
  /// - Parameters:
  ///   - id: of the event; of a marker, the id after its own.
  ///   - last: the payload before this one; nil: it is the first.
  ///   - leftOut: events that the filter left out since then, if the payload says.
  ///   - isSure: whether no event may be missing without a word.
  /// - Returns: whether the client has all of the state: every event from here on must come.
  mutating func received(
    _ id: UInt64, isMarker: Bool, after last: UInt64?, leftOut: UInt64?, isSure: Bool, _ truth: Truth, _ client: Client
  ) -> Bool {
    let entries = truth.history.entries(since: beginning.losses)
    let text =
      "\(client.name) reads the state of \(stream) as of \(beginning.end), \(beginning.keys), and got "
      + "\(isMarker ? "a marker of \(id - 1)" : "event \(id)") after \(last.map { "\($0)" } ?? "none")"
    latestEnd = truth.last + 1
    var isOver: Bool
    if isMarker {
      isOver = true
    } else if let index = entries.firstIndex(where: { $0.id == id }) {
      let (may, _) = duty(of: index, in: entries)
      require(may || id < beginning.origin.begin, "state", text + ", which is not in it")
      isOver = beginning.keys.key(of: entries[index].content) == nil && id >= beginning.origin.begin
    } else {
      isOver = true
    }
    isOver = isOver && id >= formerEnd
    let start = last.map { $0 + 1 } ?? beginning.origin.begin
    if isSure, start < id { judge(entries, start..<id, leftOut: leftOut, text) }
    if isOver, isSure { judgeState(below: id, truth, text) }
    if !isMarker { received.append(id) }
    Report.shared.count("state: events")
    if isOver { Report.shared.count("state: ends that are known") }
    return isOver
  }

  /// The events between two payloads: none is missing, and as many as it says were left out.
  private func judge(_ entries: [History.Entry], _ range: Range<UInt64>, leftOut: UInt64?, _ text: String) {
    var (least, most) = (0 as UInt64, 0 as UInt64)
    for index in entries.indices where range.contains(entries[index].id) {
      let (may, must) = duty(of: index, in: entries)
      let fits = filter.map { filter in entries[index].content.map { filter.fits($0, of: stream) } } ?? true
      if must, fits == true, entries[index].id >= beginning.origin.begin {
        fail("state", text + ", without event \(entries[index].id), which is its key's newest one or removes it")
      }
      if fits != true {
        if may { most += 1 }
        if must, fits == false, entries[index].id >= beginning.origin.begin { least += 1 }
      }
    }
    guard let leftOut else { return }
    require(
      least <= leftOut && leftOut <= most, "gaps are reported",
      text + ", with \(leftOut) events left out, instead of \(least) to \(most)")
  }

  /// The client has everything before `end`.
  /// - Parameter isLost: whether an event that came after the request may be lost, which the client is told with the next
  ///   payload.
  func judgeState(
    below end: UInt64, _ truth: Truth, _ text: @autoclosure () -> String, isLost: (UInt64) -> Bool = { _ in false }
  ) {
    let entries = truth.history.entries(since: beginning.losses)
    let state = truth.history.state(
      of: beginning.keys, from: beginning.origin.begin, below: end, since: beginning.losses)
    func mayBeMissing(_ id: UInt64) -> Bool { id >= beginning.end && isLost(id) }
    if let filter {
      let missing = state.values.filter {
        $0 >= completeEnd && truth.fits(filter, $0) == true && !received.contains($0) && !mayBeMissing($0)
      }
      return require(missing.isEmpty, "state", text() + ": of it are missing \(missing.sorted())")
    }
    var found = truth.history.state(
      of: beginning.keys, from: beginning.origin.begin, below: completeEnd, since: beginning.losses)
    let contents = Dictionary(uniqueKeysWithValues: entries.map { ($0.id, $0.content) })
    for id in received where id < end {
      guard let content = contents[id], let key = beginning.keys.key(of: content) else { continue }
      found[key] = beginning.keys.isTombstone(content) ? nil : id
    }
    var newest: Set<UInt64> = []
    for entry in entries.reversed() where entry.id < end {
      guard let key = beginning.keys.key(of: entry.content) else { continue }
      // What is wrong with a key may be that its newest event is lost.
      if found[key] != state[key], newest.insert(key).inserted, mayBeMissing(entry.id) { found[key] = state[key] }
    }
    require(
      found == state, "state",
      text() + ": it has \(found.values.sorted()) as the newest events of all keys, which are \(state.values.sorted())")
    Report.shared.count("state: compared with all events")
  }
}
