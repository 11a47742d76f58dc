import CSimulation
import StreamServer

/// A request for all streams that a pattern fits, and what it may bring: each event of each stream once and in order.
struct PatternReading {
  /// What a client knows that goes on after its connection was lost.
  struct Position {
    let peer: Peer
    let text: String
    let filter: Filter?
    let hasMarkers: Bool
    /// The time from which it resumes.
    let time: UInt64
    /// For each stream, the id of the last event that it has, or before which it wants none.
    let lasts: [String: UInt64]
    /// Streams of which events may be missing.
    let unsure: Set<String>
  }

  let text: String
  let filter: Filter?
  let hasMarkers: Bool
  let former: Position?
  var credit: Int
  /// The time from which it would resume; 0: none.
  private(set) var position: UInt64 = 0
  /// For each stream with an event, the part of the request that is for it.
  private(set) var parts: [String: Subscription] = [:]
  /// For each stream, an id before which nothing more is to come.
  private var floors: [String: UInt64] = [:]
  /// Streams of which events may be missing: they could not be read for some time, or it is not known where they began.
  private var unsure: Set<String> = []
  /// For each stream, the id after which each event has to come: the request was there before it, or was current once.
  private var settled: [String: UInt64] = [:]

  init(
    _ text: String, where filter: Filter?, hasMarkers: Bool, continuing former: Position?, credit: Int,
    by client: Client
  ) {
    (self.text, self.filter, self.hasMarkers, self.former) = (text, filter, hasMarkers, former)
    self.credit = credit
    if let former { (position, floors, unsure) = (former.time, former.lasts, former.unsure) }
    review(for: client)
  }

  /// Whether its only star, at its end or its beginning, leaves room for a name.
  func fits(_ name: String) -> Bool {
    guard name.first != "$" else { return false }
    return text.first == "*" ? name.hasSuffix(text.dropFirst()) : name.hasPrefix(text.dropLast())
  }

  mutating func grant(_ count: Int) {
    credit =
      credit >= Subscription.unlimited || count >= Subscription.unlimited ? Subscription.unlimited : credit + count
  }

  /// The rules of streams have changed. One that could not be read begins again where the log is then.
  private mutating func review(for client: Client) {
    for streams in [client.world.streams, client.world.reloading?.former ?? []] {
      for stream in streams where fits(stream.name) && !(stream.isServed && stream.admits(reader: client.peer)) {
        unsure.insert(stream.name)
        floors[stream.name] = nil
      }
    }
  }

  mutating func review(at place: Int, for client: Client) {
    review(for: client)
    for name in parts.keys { parts[name]?.review(at: place, for: client) }
  }

  /// For a client that continues on another connection; nil: it begins anew.
  func position(of peer: Peer) -> Position? {
    guard position > 0 else { return nil }
    return Position(
      peer: peer, text: text, filter: filter, hasMarkers: hasMarkers, time: position,
      lasts: floors.merging(parts.compactMapValues(\.last)) { $1 }, unsure: unsure)
  }

  // MARK: What comes

  /// An event begins.
  func begins(_ client: Client) {
    require(credit > 0, "credit", "the pattern \(text) of \(client.name) got more than its credit")
  }

  mutating func received(
    _ stamp: Stamp, of stream: String, at position: UInt64, _ data: [UInt8], from place: Int, _ client: Client
  ) {
    take(position, client)
    Report.shared.count("patterns: events")
    let details = "\(client.name) got event \(stamp.id) of \(stream) for \(text)"
    guard fits(stream), let truth = client.world.truths[stream] else {
      fail("patterns", details + ", which does not fit")
    }
    let last = parts[stream]?.last ?? floors[stream]
    // Another life of the stream, or another log.
    let isAnew =
      last.map { truth.isAnotherLife(stamp.id, than: $0) || truth.begins(between: $0, and: stamp.id) } ?? true
    parts[stream]?.begins(at: place, client)
    // One that could be read again goes on where its log was then.
    let isBack = unsure.contains(stream) && stamp.gap == nil && last.map { stamp.id > $0 + 1 } ?? false
    if isAnew || isBack, parts[stream]?.last != nil { parts[stream] = nil }
    if parts[stream]?.last == nil { judgeFirst(stamp, of: stream, after: last, isAnew: isAnew, truth, details, client) }
    if parts[stream] == nil {
      parts[stream] = Subscription(
        to: stream, gaps: true, ids: true, where: filter, credit: Subscription.unlimited, by: client)
    }
    parts[stream]?.received(stamp, data, from: place, client)
  }

  /// The first event of a stream, in this request or in its life: none is left out before it.
  private mutating func judgeFirst(
    _ stamp: Stamp, of stream: String, after last: UInt64?, isAnew: Bool, _ truth: Truth, _ details: String,
    _ client: Client
  ) {
    defer { floors[stream] = nil }
    guard !unsure.contains(stream), stamp.gap == nil else { return }
    guard let last, !isAnew else {
      // A stream that came later, of which this is the first event; or one that the client resumes by the time.
      let known = settled[stream].flatMap { $0 < stamp.id ? $0 : nil }
      let isResumed = known == nil
      guard !isResumed || former != nil, client.world.reloading == nil else { return }
      let missing = truth.fitting(filter, after: max(last ?? 0, known ?? 0), before: stamp.id).filter { id in
        !truth.isAnotherLife(stamp.id, than: id) && !truth.begins(between: id, and: stamp.id)
          && (!isResumed || (truth.events[id]?.time ?? 0) >= former?.time ?? 0 && !client.world.wasSetBack)
      }
      return require(missing.isEmpty, "patterns", details + " without \(missing), and without a gap")
    }
    // A client that resumes may get again what it has.
    guard stamp.id > last, !client.world.wasSetBack else { return }
    let missing = truth.fitting(filter, after: last, before: stamp.id)
    require(missing.isEmpty, "patterns", details + " after \(last), without \(missing), and without a gap")
  }

  mutating func receivedMarker(at position: UInt64, _ client: Client) {
    take(position, client)
    Report.shared.count("patterns: markers")
  }

  private mutating func take(_ position: UInt64, _ client: Client) {
    if settled.isEmpty {
      settle(client) { client.world.isOfTemplate($0) && client.world.machine.end(of: $0) == nil }
    }
    if credit < Subscription.unlimited { credit -= 1 }
    require(
      position == 0 || client.world.wasSetBack || position <= sim_wall(), "patterns",
      "\(client.name) got the position \(position) for \(text), which is later than any time")
    if position > 0 { self.position = position }
  }

  /// The request is there: it gets each event that comes from now on of these streams.
  private mutating func settle(_ client: Client, _ isIncluded: (String) -> Bool) {
    for name in client.world.streams.map(\.name) where fits(name) && settled[name] == nil && isIncluded(name) {
      settled[name] = client.world.truths[name]?.last ?? 0
    }
  }

  // MARK: When all is at rest

  /// The client has everything that there is.
  mutating func checkAtRest(_ client: Client) {
    guard credit > 0 else { return }
    let streams = client.world.streams.filter {
      fits($0.name) && $0.isServed && $0.admits(reader: client.peer) && client.world.machine.end(of: $0.name) != nil
    }
    for stream in streams {
      let (name, truth) = (stream.name, client.world.truth(of: stream.name))
      defer {
        if unsure.remove(name) != nil { parts[name] = nil }
        if parts[name]?.last == nil { floors[name] = (client.world.machine.end(of: name) ?? 1) - 1 }
      }
      guard settled[name] != nil || former != nil, !unsure.contains(name), !client.world.endedStreams.contains(name)
      else {
        continue
      }
      let last = max(parts[name]?.last ?? floors[name] ?? 0, settled[name] ?? 0)
      let missing = truth.fitting(filter, after: last).filter { id in
        client.world.machine.firstEvent(of: name, after: id - 1) == id
          && (settled[name] != nil || (truth.events[id]?.time ?? 0) >= former?.time ?? 0 && !client.world.wasSetBack)
      }
      require(
        missing.isEmpty, "patterns",
        "\(client.name) has events of \(name) up to \(last) for \(text), and \(missing) are there")
    }
    settle(client) { _ in true }
    Report.shared.count("patterns: at rest")
  }
}
