import Dispatch
import Glibc
import Reactive
import StreamClient
import StreamRuntime

/// One run of the program: a connection on its own loop, the signals that end it, and the main thread, which may block
/// on its output.
struct Session {
  let connection: StreamConnection
  let loop: EventLoop
  let inbox = EventInbox()
  /// The screen, if the output is drawn in place.
  let screen: Screen?

  /// How long a blocked output may delay the end after a signal.
  private static let grace = Duration.seconds(1)

  /// Prepares the run; sends no request yet.
  ///
  /// - Parameter watchesOutput: ends the program when the reader of its output has closed it.
  init(_ arguments: Arguments, screen: Screen? = nil, watchesOutput: Bool = true) throws(Stop) {
    self.screen = screen
    do throws(SystemError) {
      let loop = try EventLoop(name: "streamctl")
      self.loop = loop
      connection = try StreamConnection(
        socket: arguments.socket, loop: loop, maximumEventBytes: arguments.maximumEventBytes)
      let ends = screen == nil ? [SIGINT, SIGTERM, SIGHUP] : [SIGINT, SIGTERM, SIGHUP, SIGQUIT]
      _ = try Signals(ends + (screen == nil ? [] : Screen.signals), on: loop) { [inbox] number in
        guard ends.contains(number) else {
          screen?.received(signal: number)
          return inbox.wakeUp()
        }
        inbox.cancel()
        // After the CANCEL, which may be queued after a request-n.
        loop.execute { inbox.interrupt(.signal(number)) }
        _ = loop.schedule(after: Self.grace) {
          screen?.leave()
          _exit(Stop.signal(number).exitCode)
        }
      }
      if let screen { _ = Keyboard(on: loop, for: screen) { [inbox] in inbox.wakeUp() } }
      if watchesOutput { _ = OutputWatch(on: loop) { [inbox] in inbox.interrupt(.done) } }
      try loop.start()
    } catch {
      throw .system(error)
    }
  }

  /// The newest event of a stream, as soon as there is one.
  /// - Parameter timeout: `nil`: no limit.
  func value(of name: String, within timeout: Duration? = nil) throws(Stop) -> StreamEvent {
    connection.value(of: name).subscribe(inbox)
    inbox.request(1)
    StreamStateWatch(name, connection, inbox).start(on: loop, timeout)
    let deadline = Self.deadline(timeout)
    var value: StreamEvent?
    while true {
      let (events, end) = inbox.takeAll()
      for notice in inbox.takeNotices() { Stop.say(notice) }
      value = value ?? events.first
      if let end {
        guard let value, end == .done else { throw end }
        inbox.reuse(after: end)
        return value
      }
      if !inbox.wait(until: deadline), let timeout { throw .silence(of: name, timeout) }
    }
  }

  static func deadline(_ timeout: Duration?) -> DispatchTime {
    guard let timeout else { return .distantFuture }
    return .now() + .nanoseconds(timeout.wholeNanoseconds)
  }

  /// Prints a stream's events until it ends, or until the wanted number, or up to the newest. Requests more events only
  /// when half of the requested ones are written, so that a slow output costs no memory here and loses no event.
  /// - Throws: also when events were lost.
  func follow(_ name: String, _ wanted: Arguments.Subscription) throws(Stop) {
    var gaps = if case .after(let id) = wanted.options.from { GapReport(from: id) } else { GapReport() }
    var end = Stop.done
    do throws(Stop) {
      try follow(name, wanted, &gaps)
    } catch {
      end = error
    }
    for sentence in gaps.end() { Stop.say(sentence) }
    guard !gaps.isEmpty, end == .done || end.isSilence else {
      if end != .done { throw end }
      return
    }
    if let message = end.message { Stop.say(message) }
    throw .lost
  }

  private func follow(_ name: String, _ wanted: Arguments.Subscription, _ gaps: inout GapReport) throws(Stop) {
    var output = Output()
    let reconnect = wanted.reconnects ? ReconnectPolicy { [inbox] in inbox.post($0) } : nil
    connection.stream(name, options: wanted.options, reconnect: reconnect).subscribe(inbox)
    var unwritten = wanted.count ?? .max
    var granted = min(wanted.credit, unwritten)
    inbox.request(granted)
    StreamStateWatch(name, connection, inbox).start(on: loop, wanted.timeout)
    var deadline = Self.deadline(wanted.timeout)
    var previousID: UInt64?
    var isCurrent = false
    while unwritten > 0 {
      let (events, end) = inbox.takeAll()
      for notice in inbox.takeNotices() {  // after the events to which they belong
        Stop.say(notice)
        if notice == EventInbox.lossNotice { isCurrent = false }
      }
      for event in events {
        let isMarker = event.kind == .marker
        if let gap = event.gap {
          let next = isMarker ? event.id.map { $0 &+ 1 } : event.id  // the gap may include the event with a marker's id
          if let notice = gaps.add(gap, after: previousID, before: next, at: EventLoop.monotonicNow()) {
            Stop.say(notice)
          }
        }
        previousID = event.id
        granted -= 1
        if !isMarker {
          try wanted.format.append(event, to: &output)
          unwritten -= 1
        } else if wanted.showsMarkers {
          try show(event, isRepeated: isCurrent, wanted.format, &output)
        }
        isCurrent = isMarker
        if isMarker, !wanted.follows { return try output.flush() }
        guard granted <= wanted.credit / 2, granted < unwritten else { continue }
        try output.flush()
        let more = min(wanted.credit, unwritten) - granted
        inbox.request(more)
        granted += more
      }
      guard events.isEmpty else {
        if events.contains(where: { $0.kind == .event }) { deadline = Self.deadline(wanted.timeout) }
        continue
      }
      try output.flush()
      if let end { throw end }
      if !inbox.wait(until: deadline), let timeout = wanted.timeout { throw .silence(of: name, timeout) }
    }
    try output.flush()
  }

  /// Shows that all events are written: in the format that has a form for it, otherwise on standard error, where a
  /// repetition says nothing new.
  private func show(
    _ marker: StreamEvent, isRepeated: Bool, _ format: EventFormat, _ output: inout Output
  ) throws(Stop) {
    guard format != .json else { return try format.append(marker, to: &output) }
    try output.flush()
    if !isRepeated, let id = marker.id { Stop.say("caught up with event \(id)") }
  }
}
