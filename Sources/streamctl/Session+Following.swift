import Dispatch
import Glibc
import StreamClient
import StreamProtocol
import StreamRuntime

/// The streams of `sub`: names, and patterns of names, in which `*` fits any characters.
struct StreamSelection: Equatable {
  let names: [String]
  let patterns: [String]

  /// - Parameter words: a word with `*` is a pattern, because no name has this character.
  init(_ words: [String]) {
    names = words.filter { NamePattern($0) == nil }
    patterns = words.filter { NamePattern($0) != nil }
  }

  /// Whether each event is to be shown with the name of its stream.
  var isSeveral: Bool { !patterns.isEmpty || names.count > 1 }

  /// Whether the name is among the words, or a pattern fits it.
  func includes(_ name: String) -> Bool { names.contains(name) || fits(name) }

  /// Whether a pattern fits the name. System streams have to be named.
  func fits(_ name: String) -> Bool {
    !names.contains(name) && patterns.contains { NamePattern($0)?.fits(name) == true }
  }

  /// The streams for a sentence, to be put in quotes.
  var text: String { (names + patterns).joined(separator: "\", \"") }
}

/// One stream that is followed, or the streams that a pattern fits.
private struct Following {
  let name: String
  let inbox: EventInbox
  let startID: UInt64?
  /// By the names of streams.
  var gaps: [String: GapReport] = [:]
  var previousIDs: [String: UInt64] = [:]
  /// Events that were requested and have not arrived.
  var granted = 0
  var isCurrent = false
}

/// The inboxes of the followed streams, for the signal that ends them.
final class Followed: Sendable {
  private let inboxes = Locked<[EventInbox]>([])

  func add(_ inbox: EventInbox) { inboxes.withLock { $0.append(inbox) } }
  func remove(_ inbox: EventInbox) { inboxes.withLock { $0.removeAll { $0 === inbox } } }
  func cancel() { for inbox in inboxes.withLock({ $0 }) { inbox.cancel() } }
}

/// The result of one pass over a stream.
private struct Pass {
  var isIdle: Bool
  var hasEvents = false
  var isLast = false
}

extension Session {
  /// Prints the events of streams until all of them end, or until the wanted number, or up to the newest. Requests more
  /// events of a stream only when half of the requested ones are written, so that a slow output costs no memory here and
  /// loses no event.
  /// - Throws: also when events were lost.
  func follow(_ wanted: Arguments.Subscription) throws(Stop) {
    var run = FollowingRun(self, wanted)
    var end = Stop.done
    do throws(Stop) { try run.follow() } catch { end = error }
    let hasGaps = run.reportGaps()
    guard hasGaps, end == .done || end.isSilence else {
      if end != .done { throw end }
      return
    }
    if let message = end.message { Stop.say(message) }
    throw .lost
  }
}

/// What the main thread does for `sub`.
private struct FollowingRun {
  let session: Session
  let wanted: Arguments.Subscription
  private var output = Output()
  private var streams: [Following] = []
  /// Whether streams that are no longer followed had gaps.
  private var hadGaps = false
  private var unwritten: Int
  /// The messages of the present pass: each stream of a connection reports the connection's loss.
  private var said: Set<String> = []

  init(_ session: Session, _ wanted: Arguments.Subscription) {
    (self.session, self.wanted) = (session, wanted)
    unwritten = wanted.count ?? .max
  }

  mutating func follow() throws(Stop) {
    for name in wanted.streams.names + wanted.streams.patterns { start(name) }
    try lookForStreams()
    var deadline = Session.deadline(wanted.timeout)
    while unwritten > 0 {
      if let end = session.inbox.takeAll().end { throw end }
      said = []
      var isIdle = true
      for index in streams.indices.reversed() where unwritten > 0 {
        let pass = try printEvents(of: index)
        if pass.hasEvents { deadline = Session.deadline(wanted.timeout) }
        isIdle = isIdle && pass.isIdle
        if pass.isLast { drop(index) }
      }
      guard isIdle else { continue }
      try output.flush()
      if streams.isEmpty { return }
      if !session.alarm.wait(until: deadline), let timeout = wanted.timeout {
        throw .silence(of: wanted.streams.text, timeout)
      }
    }
    try output.flush()
  }

  /// Reports the missing events of the streams.
  /// - Returns: whether any are missing.
  mutating func reportGaps() -> Bool {
    for index in streams.indices { reportGaps(of: index) }
    return hadGaps
  }

  private mutating func reportGaps(of index: Int) {
    for name in streams[index].gaps.keys.sorted() {
      for sentence in streams[index].gaps[name]?.end() ?? [] { say(sentence, of: name) }
      hadGaps = true
    }
  }

  private func say(_ notice: String, of name: String) {
    Stop.say(wanted.streams.isSeveral ? "\(name): \(notice)" : notice)
  }

  private func subscribe(to name: String, _ options: SubscribeOptions) -> EventInbox {
    let inbox = EventInbox(session.alarm)
    session.followed.add(inbox)
    let reconnect = wanted.reconnects ? inbox.reconnectPolicy() : nil
    session.connection.stream(name, options: options, reconnect: reconnect).subscribe(inbox)
    return inbox
  }

  private mutating func start(_ name: String) {
    let startID: UInt64? = if case .after(let id) = wanted.options.from { id } else { nil }
    var stream = Following(name: name, inbox: subscribe(to: name, wanted.options), startID: startID)
    stream.granted = min(wanted.credit, unwritten)
    stream.inbox.request(stream.granted)
    if wanted.streams.names.contains(name) {
      StreamStateWatch(name, session.connection, stream.inbox).start(on: session.loop, wanted.timeout)
    }
    streams.append(stream)
  }

  private mutating func drop(_ index: Int) {
    reportGaps(of: index)
    let stream = streams.remove(at: index)
    session.followed.remove(stream.inbox)
  }

  /// Says, or fails, if patterns alone are followed and fit no stream.
  private func lookForStreams() throws(Stop) {
    guard wanted.streams.names.isEmpty else { return }
    let rows = try StreamListing(json: session.value(of: "$streams").data).rows
    guard !rows.contains(where: { wanted.streams.fits($0.name) }) else { return }
    let sentence = "no stream fits \"\(wanted.streams.text)\""
    guard wanted.follows else { throw .noStream(sentence) }
    Stop.say("\(sentence) yet; waiting for one")
  }

  @discardableResult private mutating func sayNotices(of inbox: EventInbox) -> Bool {
    var isLost = false
    for notice in inbox.takeNotices() {
      if said.insert(notice).inserted { Stop.say(notice) }
      isLost = isLost || notice.hasPrefix(EventInbox.lossNotice)
    }
    return isLost
  }

  private mutating func printEvents(of index: Int) throws(Stop) -> Pass {
    let (word, inbox) = (streams[index].name, streams[index].inbox)
    let (events, end) = inbox.takeAll()
    if sayNotices(of: inbox) { streams[index].isCurrent = false }  // after the events to which they belong
    var pass = Pass(isIdle: events.isEmpty)
    for event in events where unwritten > 0 {
      let isMarker = event.kind == .marker
      let name = event.stream.flatMap { $0.isEmpty ? nil : $0 } ?? word
      if let gap = event.gap {
        let next = isMarker ? event.id.map { $0 &+ 1 } : event.id  // the gap may include the event with a marker's id
        let (startID, previous) = (streams[index].startID, streams[index].previousIDs[name])
        if let notice = streams[index].gaps[name, default: GapReport(from: startID)].add(
          gap, after: previous, before: next, at: EventLoop.monotonicNow())
        {
          say(notice, of: name)
        }
      }
      streams[index].previousIDs[name] = event.id
      streams[index].granted -= 1
      if !isMarker {
        try wanted.format.append(event, of: wanted.streams.isSeveral ? name : nil, to: &output)
        (pass.hasEvents, unwritten) = (true, unwritten - 1)
      } else if wanted.showsMarkers {
        try show(event, of: index)
      }
      streams[index].isCurrent = isMarker
      if isMarker, !wanted.follows {
        inbox.cancel()
        pass.isLast = true
        return pass
      }
      let granted = streams[index].granted
      guard granted <= wanted.credit / 2, granted < unwritten else { continue }
      try output.flush()
      let more = min(wanted.credit, unwritten) - granted
      inbox.request(more)
      streams[index].granted += more
    }
    guard events.isEmpty, let end else { return pass }
    guard end == .done else {
      try output.flush()
      throw end
    }
    pass.isLast = true
    return pass
  }

  /// Shows that all events are written, in the format if it has a form for that. Otherwise a sentence on standard error
  /// shows it once, since a repetition adds nothing.
  private mutating func show(_ marker: StreamEvent, of index: Int) throws(Stop) {
    let name = streams[index].name
    guard wanted.format != .json else {
      return try wanted.format.append(marker, of: wanted.streams.isSeveral ? name : nil, to: &output)
    }
    try output.flush()
    if !streams[index].isCurrent, let id = marker.id { say("caught up with event \(id)", of: name) }
  }
}
