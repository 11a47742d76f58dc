/// What a derived stream has had of its bases, and what it may have next.
///
/// An event of a base is known by its bytes, which are the same in the derived stream. Each base's events come in the
/// base's order, once, and none that fits is left out while the base holds it. Where events that fit have left the base,
/// the ids of the derived stream have a hole.
struct DerivedHistory {
  private let bases: [Truth]
  private let name: String
  private let filter: Filter?
  /// Data bytes of the largest event that each log of the stream had room for.
  private var largestEvent: Int
  /// Whether the log of a base holds an event.
  private let isHeld: (_ base: String, _ id: UInt64) -> Bool
  /// The id of each base's event that came last.
  private var positions: [String: UInt64] = [:]
  /// The bases that had no event since ids were left out.
  private var basesBehindHole: Set<String> = []
  /// The bases whose events may come again, because the log may have lost the position.
  private var repeatable: Set<String> = []
  /// The bases of which events have come that nothing has seen, since the last one that was.
  private var basesWithUnseen: Set<String> = []

  init(
    of bases: [Truth], for name: String, where filter: Filter?, largestEvent: Int,
    isHeld: @escaping (_ base: String, _ id: UInt64) -> Bool
  ) {
    (self.bases, self.name, self.filter, self.isHeld) = (bases, name, filter, isHeld)
    self.largestEvent = largestEvent
  }

  mutating func limitEvents(to largestEvent: Int) { self.largestEvent = min(self.largestEvent, largestEvent) }

  /// The log may have lost its events and its position.
  /// - Parameter unseen: whether events have come that nothing has seen.
  mutating func forget(unseen: Bool) {
    repeatable = Set(bases.map(\.name))
    if unseen { basesWithUnseen = repeatable }
  }

  /// The log has another event.
  /// - Parameters:
  ///   - isNext: whether its id follows that of the event before it.
  ///   - isFound: whether a process has found it in a log that another one had.
  mutating func received(_ event: Truth.Event, _ id: UInt64, isNext: Bool, isFound: Bool) {
    Report.shared.count("derived streams: events")
    if !isNext { basesBehindHole = Set(bases.map(\.name)) }
    let maker = event.content?.maker
    guard let base = bases.first(where: { $0.name == maker }) ?? bases.first(where: \.isPublished) else {
      fail("derived streams", "\(name) has an event \(id) of \(maker ?? "nobody"), and none of its bases has that")
    }
    let known = base.ids(of: event.data)
    require(!known.isEmpty, "derived streams", "\(name) has an event \(id), which \(base.name) never had")
    require(
      fits(event) != false, "derived streams",
      "\(name) has event \(known) of \(base.name), which does not fit its filter")
    let last = positions[base.name]
    // A base whose log began anew may have an event twice.
    let following = known.filter { $0 > last ?? 0 }
    let next = following.count > 1 ? following.first { isHeld(base.name, $0) } ?? following[0] : following.first
    require(
      next != nil || known.count > 1 || repeatable.contains(base.name), "derived streams",
      "\(name) has event \(known) of \(base.name) after \(last ?? 0)")
    let position = next ?? known.first { isHeld(base.name, $0) } ?? known[known.count - 1]
    Report.shared.say("\(name) has event \(id), which is \(position) of \(base.name)\(isNext ? "" : ", after a hole")")
    if basesWithUnseen.remove(base.name) == nil {
      judge(base, from: next == nil ? nil : last, to: position, isFound: isFound)
    }
    positions[base.name] = position
    basesBehindHole.remove(base.name)
    if !isFound { repeatable.remove(base.name) }
  }

  /// The events between two of a base that the stream has had one after the other.
  /// - Parameter last: nil: there is none.
  private func judge(_ base: Truth, from last: UInt64?, to next: UInt64, isFound: Bool) {
    let missing = missed(of: base, after: last ?? 0, before: next)
    guard !missing.isEmpty else { return }
    let text = "\(name) has event \(next) of \(base.name) after \(last ?? 0), without \(missing)"
    if !isFound {
      let held = missing.filter { isHeld(base.name, $0) }
      require(held.isEmpty, "derived streams", "\(text), of which \(base.name) holds \(held)")
    }
    guard let last, !repeatable.contains(base.name), !base.begins(between: last, and: next) else { return }
    Report.shared.count("derived streams: losses that have to be reported")
    require(basesBehindHole.contains(base.name), "derived streams", "\(text), and without a hole in its ids")
  }

  /// The events of a base that fit, are small enough, and did not come.
  private func missed(of base: Truth, after id: UInt64, before end: UInt64) -> [UInt64] {
    base.events(after: id, before: end).filter { fits($0.event) == true && $0.event.data.count <= largestEvent }
      .map(\.id)
  }

  /// Whether an event fits the filter; nil: not known.
  private func fits(_ event: Truth.Event) -> Bool? {
    guard let filter else { return true }
    return event.content.map { filter.fits($0, of: name) }
  }

  /// Events fit that the bases hold, and that the stream has not had: the ids of each base.
  var unread: [String: [UInt64]] {
    var unread: [String: [UInt64]] = [:]
    for base in bases {
      let ids = missed(of: base, after: positions[base.name] ?? 0, before: .max).filter { isHeld(base.name, $0) }
      if !ids.isEmpty { unread[base.name] = ids }
    }
    return unread
  }
}
