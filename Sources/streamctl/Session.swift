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
  /// Of the main thread.
  let alarm: Alarm
  /// For one request, and for the program's end.
  let inbox: EventInbox
  /// Those of the streams that are followed.
  let followed = Followed()
  /// The screen, if the output is drawn in place.
  let screen: Screen?

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
}
