import CSimulation
import FoundationEssentials
import StreamProtocol

/// What an event has beside its data.
struct Stamp {
  let id: UInt64
  /// nil where the event comes without it.
  let time: UInt64?
  /// Events missed before it, as the server reports; nil: it reports none.
  let gap: UInt64?
  /// Events that the filter has left out since the last payload; nil: it does not say.
  var leftOut: UInt64?
}

/// One request for events, by any protocol, and what it may bring.
struct Subscription {
  let stream: String
  /// Whether gaps are reported.
  let gaps: Bool
  /// Whether events have ids.
  let ids: Bool
  /// What happens when events are lost: `skip`, `latest` or `fail`.
  let onLag: String
  /// Whether it ends with its first event.
  let isOne: Bool
  let after: UInt64?
  /// The events that it is to bring; nil: all.
  let filter: Filter?
  /// Whether markers show that it has brought them.
  let hasMarkers: Bool
  private(set) var markerCount = 0
  /// When the last payload was read, or another process had continued.
  private var heardAt = sim_now()
  /// Whether it begins with the state of the keys, and has perhaps not had all of it yet; and what is known of that.
  private(set) var isReadingState: Bool
  private(set) var reading: StateReading?
  /// The id that the log gave next as a marker was the first payload, or ended the state: neither has anything to say of a hole
  /// before it.
  private var stateEnd: UInt64 = 0
  /// When it was requested.
  private let beginning: StateReading.Beginning?
  /// When it was requested: what may have lost the state since then.
  private let stateRisks: Int
  /// The deletions of a template's stream that were over when it was requested, and the changes of the configuration.
  private let (deletions, changes): (Int, Int)
  /// What has become of the events' bytes.
  let form: EventForm
  var credit: Int
  /// The id of the last event.
  private(set) var last: UInt64?
  /// The gap that the marker after it has reported.
  private var markedGap: UInt64?
  /// Events that begin here or later, counted in bytes of the connection, are of a stream that it may not read.
  private var forbiddenFrom: Int?
  /// The streams that the last event of a system stream showed.
  private(set) var shown: Set<String>?
  /// The streams that a system stream may show, from a byte of the connection on.
  private var visible: [(from: Int, streams: Set<String>)]

  init(
    to stream: String, gaps: Bool, ids: Bool, onLag: String = "skip", isOne: Bool = false, after: UInt64? = nil,
    where filter: Filter? = nil, hasMarkers: Bool = false, isFromState: Bool = false,
    continuing former: StateReading? = nil,
    hasIDs: Bool = true, as form: EventForm = .exact, credit: Int, by client: Client
  ) {
    (self.stream, self.gaps, self.ids, self.onLag) = (stream, gaps && ids, ids, onLag)
    (self.isOne, self.after, self.form, self.credit) = (isOne, after, form, credit)
    (self.filter, self.hasMarkers) = (filter, hasMarkers && ids)
    isReadingState = isFromState
    (deletions, changes) = (client.world.deletionsOver[stream] ?? 0, client.world.changes)
    stateRisks = client.world.truths[stream]?.stateRisks ?? 0
    beginning = isFromState && ids && hasIDs ? StateReading.Beginning(stream, client.world) : nil
    let continued = former?.isContinued(beginning) == true ? former : nil
    reading = after != nil ? continued : beginning.map { StateReading(of: stream, $0, where: filter) }
    visible = World.systemStreams.contains(stream) ? [(0, client.world.visible(to: client.peer))] : []
  }

  static let unlimited = 0x7fff_ffff

  mutating func grant(_ count: Int) {
    credit = credit >= Self.unlimited || count >= Self.unlimited ? Self.unlimited : credit + count
  }

  /// The rules of streams have changed: see `Client.review(at:)`.
  mutating func review(at place: Int, for client: Client) {
    let world = client.world
    if World.systemStreams.contains(stream) {
      visible.append((place, world.visible(to: client.peer)))
    } else if let specification = world.specification(of: stream) {
      if specification.isServed, specification.admits(reader: client.peer) {
        forbiddenFrom = nil
      } else if forbiddenFrom == nil {
        forbiddenFrom = place
      }
    }
  }

  /// An event begins at that byte of the connection.
  func begins(at place: Int, _ client: Client) {
    if let forbiddenFrom {
      require(place < forbiddenFrom, "access", "\(client.name) got an event of \(stream), which it may no longer read")
    }
    require(credit > 0, "credit", "a request of \(client.name) to \(stream) got more than its credit")
  }

  /// The whole event.
  /// - Parameters:
  ///   - stamp: nil where the request wants none.
  ///   - place: where it began.
  mutating func received(_ stamp: Stamp?, _ data: [UInt8], from place: Int, _ client: Client) {
    if credit < Self.unlimited { credit -= 1 }
    heardAt = sim_now()
    if World.systemStreams.contains(stream) { judgeCatalogue(data, from: place, client) }
    guard let stamp else {
      Report.shared.deliveries += 1
      return
    }
    if let filter {
      require(
        client.world.truths[stream]?.fits(filter, stamp.id) != false, "filters",
        "\(client.name) got event \(stamp.id) of \(stream), which does not fit \(filter)")
    }
    if isReadingState {
      judgeState(stamp, isMarker: false, client)
    } else if filter != nil {
      judgeFiltered(stamp, isMarker: false, client)
    } else {
      judgePlace(stamp.id, stamp.gap ?? (stamp.id == last.map { $0 + 1 } ? nil : markedGap), client)
    }
    (last, markedGap) = (stamp.id, nil)
    client.world.received(stamp.id, of: stream, by: client)
    // The server's own streams have views, each with ids of its own.
    client.world.truths[stream]?.delivered(stamp.id, stamp.time, data, as: form, to: client.name)
  }

  /// The request has ended with an error.
  func wasRemoved(_ message: String, _ client: Client) {
    guard client.world.isOfTemplate(stream), message.contains("no longer served") else { return }
    Report.shared.count("templates: subscriptions that ended with their stream")
    require(
      (client.world.deletionsSent[stream] ?? 0) > deletions || client.world.changes != changes, "streams in use stay",
      "\(client.name) is told: \(message)")
  }

  /// Where the event stands among the others of the request.
  private func judgePlace(_ event: UInt64, _ gap: UInt64?, _ client: Client) {
    let truth = client.world.truths[stream]
    guard let last else {
      if let after {
        require(
          event > after, "ids rise", "\(client.name) asked for what comes after \(after) of \(stream) and got \(event)")
        require(
          !gaps || event == after + 1 || gap != nil
            || truth?.isEmpty(between: after, and: event) == true && truth?.isAnotherLife(after, than: event) == false,
          "gaps are reported",
          "\(client.name) asked for what comes after \(after) of \(stream) and got \(event), without a gap")
        if event > after + 1, onLag != "latest", let held = client.world.machine.firstEvent(of: stream, after: after) {
          require(
            held >= event, "gaps are reported",
            "\(client.name) asked for what comes after \(after) of \(stream) and got \(event), but there is \(held)")
        }
      }
      return
    }
    require(event > last, "ids rise", "\(client.name) got event \(event) of \(stream) after \(last)")
    let isNext = event == last + 1
    let isAnew = truth?.begins(between: last, and: event)
    require(
      // A hole in the ids of a derived stream is not the subscriber's lag.
      isNext || onLag != "fail" || isAnew ?? true || truth?.isHole(between: last, and: event) == true,
      "gaps are reported",
      "\(client.name) asked to fail, and got event \(event) of \(stream) after \(last)")
    if gaps {
      require(
        // The first id of another view may be the next one.
        isNext == (gap == nil) || gap == nil && isAnew == true || gap == .max && truth == nil
          || gap == nil && event <= stateEnd && truth?.isHole(between: last, and: event) == true, "gaps are reported",
        "\(client.name) got event \(event) of \(stream) after \(last), with a gap of \(gap.map { "\($0)" } ?? "none")")
      if let gap, gap != .max {
        require(
          gap == event - last - 1 || isAnew ?? true, "gaps are reported",
          "\(client.name) got event \(event) of \(stream) after \(last), with a gap of \(gap)")
      }
    }
    guard let truth, client.world.specification(of: stream)?.blocks == true,
      truth.events[last + 1]?.losses == truth.losses
    else { return }
    require(
      isNext, "nothing is dropped",
      "\(client.name) got event \(event) of \(stream) after \(last), which drops nothing")
  }

  // MARK: Filters and markers

  /// A payload without data: the client has every event up to its id.
  mutating func receivedMarker(_ stamp: Stamp, _ client: Client) {
    Report.shared.count("markers")
    require(hasMarkers, "markers", "\(client.name) got a marker of \(stream), and wants none")
    if credit < Self.unlimited { credit -= 1 }
    (heardAt, markerCount) = (sim_now(), markerCount + 1)
    if last == nil { stateEnd = client.world.machine.end(of: stream) ?? .max }
    if isReadingState {
      judgeState(stamp, isMarker: true, client)
    } else {
      judgeFiltered(stamp, isMarker: true, client)
    }
    (last, markedGap) = (stamp.id, stamp.gap ?? (stamp.id == last ? markedGap : nil))
  }

  // MARK: The state of keys

  /// A payload while the client may not have all of the state.
  private mutating func judgeState(_ stamp: Stamp, isMarker: Bool, _ client: Client) {
    let end = isMarker ? stamp.id + 1 : stamp.id
    // A client that has connected again may get the whole state.
    let previous = stamp.gap != nil && last == nil ? nil : last ?? after
    require(
      previous.map { end > $0 } ?? true || isMarker && last == nil, "ids rise",
      "\(client.name) got \(isMarker ? "a marker" : "an event") \(stamp.id) of the state of \(stream) after \(previous ?? 0)"
    )
    var start = previous
    if stamp.gap != nil {
      // Later events are missing; or a client that has connected again gets the whole state.
      guard last == nil, let after else {
        (isReadingState, reading) = (false, nil)
        return
      }
      // If ids were skipped, a gap does not tell which. Nor does that of a client that may have been too slow.
      guard client.world.truths[stream]?.begins(between: after, and: end) != true, onLag == "fail" || end <= after + 1
      else {
        reading = nil
        return
      }
      reading = beginning.map { StateReading(of: stream, $0, where: filter) }
      start = nil
    }
    if isMarker {
      (isReadingState, stateEnd) = (false, client.world.machine.state(of: stream)?.end ?? 0)
    }
    guard let truth = client.world.truths[stream], var reading, reading.begins(client.world), reading.isKnown(truth)
    else {
      self.reading = nil
      return
    }
    let isOver = reading.received(
      end, isMarker: isMarker, after: start, leftOut: stamp.leftOut, isSure: gaps || onLag == "fail", truth, client)
    if isOver { isReadingState = false }
    self.reading = reading
  }

  /// For a client that continues on another connection after the last event that it has.
  func resumedReading(after id: UInt64) -> StateReading? {
    reading?.resumed(after: id, isComplete: !isReadingState)
  }

  /// The request was refused, or has ended, because of the state.
  func stateFailed(_ message: String, _ client: Client) {
    let isRefused = message.contains("the stream has no keys") || message.contains("the state is incomplete")
    guard isReadingState, let truth = client.world.truths[stream],
      let specification = client.world.specification(of: stream),
      isRefused || message.contains("the rest of the state of") || message.contains("has other keys now")
    else { return }
    Report.shared.count("state: \(isRefused ? "refused" : "lost")")
    require(
      truth.stateRisks != stateRisks || client.world.reloading != nil || specification.keys == nil
        || specification.isSmall
        || client.world.machine.state(of: stream)?.isComplete != true || client.world.profile.largeEvents > 10,
      "state", "\(client.name) was told of \(stream): \(message)")
  }

  /// Whether all that fits and lies between this payload and the one before it was reported as missed.
  private func judgeFiltered(_ stamp: Stamp, isMarker: Bool, _ client: Client) {
    let text = "\(client.name) got \(isMarker ? "a marker" : "event") \(stamp.id) of \(stream)"
    let end = isMarker ? stamp.id + 1 : stamp.id
    if let last { require(end > last, "ids rise", "\(text) after \(last)") }
    // The server's own streams have views, each with ids of its own.
    guard let truth = client.world.truths[stream] else { return }
    Report.shared.count("events left out", Int(stamp.leftOut ?? 0))
    guard let start = last ?? after else {
      guard gaps, let leftOut = stamp.leftOut, leftOut > 0, leftOut < end, stamp.gap == nil,
        !truth.begins(between: end - leftOut - 1, and: end)
      else { return }
      let fitting = truth.fitting(filter, after: end - leftOut - 1, before: end)
      return require(fitting.isEmpty, "filters", "\(text), with \(leftOut) left out, of which \(fitting) fit")
    }
    if last == nil, stamp.id <= start {
      return require(isMarker, "ids rise", "\(text), and asked for what comes after \(start)")
    }
    // A marker may stand immediately before the first event of another log.
    guard !truth.begins(between: start, and: end), stamp.gap != .max, !truth.hasHole(between: start, and: end) else {
      return
    }
    let count = end - start - 1
    let leftOut = stamp.leftOut ?? (filter == nil ? 0 : nil)
    let fitting = truth.fitting(filter, after: start, before: end)
    let missed = stamp.gap ?? (gaps || leftOut == nil ? 0 : count - min(count, leftOut!))
    let details =
      "\(text) after \(start), with \(leftOut.map { "\($0)" } ?? "unknown") left out, "
      + "a gap of \(stamp.gap.map { "\($0)" } ?? "none"), and \(fitting) between that fit \(filter.map { "\($0)" } ?? "")"
    require((leftOut ?? 0) + missed <= count, "gaps are reported", details)
    if gaps, last != nil, let leftOut { require(leftOut + missed == count, "gaps are reported", details) }
    if gaps || leftOut != nil {
      require(fitting.count <= missed, "filters", details)
      require(UInt64(fitting.count) + (leftOut ?? 0) <= count, "filters", details)
    }
    guard last != nil else { return }
    if onLag == "fail" { require(missed == 0, "gaps are reported", details + "; it asked to fail") }
    guard client.world.specification(of: stream)?.blocks == true, count > 0,
      truth.events[start + 1]?.losses == truth.losses
    else { return }
    require(missed == 0 && fitting.isEmpty, "nothing is dropped", details)
  }

  /// Another process continues with the connection.
  mutating func handedOver() { heardAt = sim_now() }

  /// All is at rest, and the client has read what was sent.
  func checkAtRest(_ client: Client) {
    guard credit > 0, !isOne else { return }
    if hasMarkers {
      let silence = (sim_now() - heardAt) / 1_000_000
      require(markerCount > 0, "markers", "\(client.name) has got all of \(stream), and no marker")
      require(silence <= 12_000, "markers", "\(client.name) has heard nothing of \(stream) for \(silence) ms")
    }
    if isReadingState {
      guard let reading, let truth = client.world.truths[stream], reading.isKnown(truth), gaps || onLag == "fail",
        reading.isKnown(client.world)
      else { return }
      return reading.judgeState(below: truth.last + 1, truth, "\(client.name) has got all of \(stream), and its state")
      {
        // A client that is too slow continues with the newest event, beyond those that the stream holds.
        onLag == "latest" || onLag != "fail" && client.world.machine.firstEvent(of: stream, after: $0 - 1) != $0
      }
    }
    guard ids, let truth = client.world.truths[stream], filter != nil || hasMarkers, onLag != "latest",
      let start = last ?? after
    else { return }
    let fitting = truth.fitting(filter, after: start)
    let held = fitting.filter { client.world.machine.firstEvent(of: stream, after: $0 - 1) == $0 }
    require(
      held.isEmpty, "filters", "\(client.name) has no events of \(stream) after \(start), and \(held) are there and fit"
    )
  }

  // MARK: System streams

  private struct Entry: Decodable {
    let name: String
  }
  private struct Statistics: Decodable {
    let byStream: [Entry]
    enum CodingKeys: String, CodingKey { case byStream = "by_stream" }
  }

  /// The streams that an event of a system stream shows; nil: it is none.
  static func entries(of stream: String, _ data: [UInt8]) -> [String]? {
    let decoder = JSONDecoder()
    return stream == "$streams"
      ? try? decoder.decode([CatalogueEntry].self, from: Data(data)).map(\.name)
      : try? decoder.decode(Statistics.self, from: Data(data)).byStream.map(\.name)
  }

  /// It shows streams that the client may read or write, and no others.
  private mutating func judgeCatalogue(_ data: [UInt8], from place: Int, _ client: Client) {
    guard let entries = Self.entries(of: stream, data) else {
      fail("system streams", "\(client.name) got no JSON of \(stream)")
    }
    // While rules change, an event may follow either.
    let index = visible.lastIndex { $0.from <= place } ?? 0
    let during = client.world.reloading == nil ? [] : client.world.visible(to: client.peer)
    let allowed = visible[index...].prefix(2).reduce(into: during) { $0.formUnion($1.streams) }
    let excess = Set(entries.map(World.shown)).subtracting(allowed)
    require(
      excess.isEmpty, "system streams",
      "\(stream) shows \(client.name) \(excess.sorted()), and may show \(allowed.sorted())")
    shown = Set(entries)
    Report.shared.count("events of system streams")
  }
}
