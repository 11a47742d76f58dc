import Dispatch
import Glibc
import Reactive
import StreamClient
import StreamProtocol
import StreamRuntime

/// One run of the program: a connection on its own loop, the signals that end it, and the main thread, which may block
/// on its output.
struct Session {
  let connection: StreamConnection
  let loop: EventLoop
  /// The alarm of the main thread.
  let alarm: Alarm
  /// The inbox of one request, and of the program's end.
  let inbox: EventInbox
  /// The inboxes of the followed streams.
  let followed = Followed()
  /// The screen, if the output is drawn in place.
  let screen: Screen?

  private static let commandTimeout = Duration.seconds(10)
  /// How long a blocked output may delay the end after a signal.
  private static let grace = Duration.seconds(1)

  /// Prepares the run; sends no request yet.
  ///
  /// - Parameter watchesOutput: ends the program when the reader of its output has closed it.
  init(_ arguments: Arguments, screen: Screen? = nil, watchesOutput: Bool = true) throws(Stop) {
    self.screen = screen
    let alarm = Alarm()
    (self.alarm, inbox) = (alarm, EventInbox(alarm))
    if let file = arguments.tokenFile {
      do throws(SystemError) { _ = try TokenFile.read(file) } catch { throw .input(error) }
    }
    do throws(SystemError) {
      let loop = try EventLoop(name: "streamctl")
      self.loop = loop
      let file = arguments.tokenFile
      connection = try StreamConnection(
        socket: arguments.socket, token: { file.flatMap { try? TokenFile.read($0) } }, loop: loop,
        maximumEventBytes: arguments.maximumEventBytes)
      let ends = screen == nil ? [SIGINT, SIGTERM, SIGHUP] : [SIGINT, SIGTERM, SIGHUP, SIGQUIT]
      _ = try Signals(ends + (screen == nil ? [] : Screen.signals), on: loop) { [inbox, followed] number in
        guard ends.contains(number) else {
          screen?.received(signal: number)
          return inbox.wakeUp()
        }
        inbox.cancel()
        followed.cancel()
        // This follows the CANCEL, which may be queued after a request-n.
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
  /// - Parameters:
  ///   - key: the key whose newest event is requested; `nil`: the newest event of the stream.
  ///   - timeout: `nil`: no limit.
  func value(of name: String, key: String? = nil, within timeout: Duration? = nil) throws(Stop) -> StreamEvent {
    connection.value(of: name, key: key).subscribe(inbox)
    StreamStateWatch(name, connection, inbox).start(on: loop, timeout)
    return try response(within: timeout) { .silence(of: name, $0) }
  }

  /// As `value(of:)`; nil if the daemon refuses the request. A daemon of an earlier version has fewer system streams.
  func optionalValue(of name: String) throws(Stop) -> StreamEvent? {
    do throws(Stop) {
      return try value(of: name)
    } catch {
      guard error.isRefusal, inbox.reuse(after: error) else { throw error }
      return nil
    }
  }

  /// Gives the daemon commands, one after the other, and returns when all have taken effect. A refusal keeps none of the
  /// later ones from being given.
  /// - Throws: the last refusal; messages tell the earlier ones.
  func perform(_ commands: [ControlCommand]) throws(Stop) {
    var refusal: Stop?
    for command in commands {
      do throws(Stop) {
        try perform(command)
      } catch {
        if let earlier = refusal?.message { Stop.say(earlier) }
        guard error.isRefusal, inbox.reuse(after: error) else { throw error }
        refusal = error
      }
    }
    if let refusal { throw refusal }
  }

  /// Asks an upstream.
  /// - Returns: the name of the stream that has the answer.
  func ask(_ name: String, _ body: [UInt8]) throws(Stop) -> StreamEvent {
    connection.ask(name, body).subscribe(inbox)
    return try response(within: nil) { .unavailable("no reply from the daemon for \($0)") }
  }

  private func perform(_ command: ControlCommand) throws(Stop) {
    connection.perform(command).subscribe(inbox)
    _ = try response(within: Self.commandTimeout) { .unavailable("no reply from the daemon for \($0)") }
  }

  /// - Parameter late: the error after the timeout.
  private func response(within timeout: Duration?, _ late: (Duration) -> Stop) throws(Stop) -> StreamEvent {
    inbox.request(1)
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
      if !inbox.wait(until: deadline), let timeout { throw late(timeout) }
    }
  }

  static func deadline(_ timeout: Duration?) -> DispatchTime {
    guard let timeout else { return .distantFuture }
    return .now() + .nanoseconds(timeout.wholeNanoseconds)
  }
}
