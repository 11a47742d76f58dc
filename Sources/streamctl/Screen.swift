import Glibc
import Reactive
import StreamRuntime

/// The terminal that standard output is, taken over from `enter` to `leave`: its second screen, without a cursor, and
/// keys that arrive as they are pressed.
final class Screen: Sendable {
  /// What came from outside since it was last asked.
  struct Input {
    var keys: [UInt8] = []
    var mustSuspend = false
  }

  private struct State {
    var input = Input()
    /// The keyboard's settings to go back to, while the screen is taken over.
    var settings: termios?
    var isEntered = false
  }

  private let state = Locked(State())

  /// Signals that are the screen's to handle.
  static let signals = [SIGWINCH, SIGTSTP]

  private static let enterSequence = "\u{1b}[?1049h\u{1b}[?25l\u{1b}[?7l"  // second screen, no cursor, no wrapping
  private static let leaveSequence = "\u{1b}[?7h\u{1b}[?25h\u{1b}[?1049l"

  /// - Returns: nil when standard output is no terminal, or one that cannot move its cursor.
  init?() {
    let kind = getenv("TERM").map { String(cString: $0) } ?? ""
    guard isatty(STDOUT_FILENO) == 1, !kind.isEmpty, kind != "dumb" else { return nil }
  }

  func enter() {
    var settings = termios()
    let hasKeyboard = isatty(STDIN_FILENO) == 1 && tcgetattr(STDIN_FILENO, &settings) == 0
    state.withLock { state in
      state.isEntered = true
      state.settings = hasKeyboard ? settings : nil
    }
    if hasKeyboard {
      settings.c_lflag &= ~tcflag_t(ICANON | ECHO)
      tcsetattr(STDIN_FILENO, TCSADRAIN, &settings)
    }
    Self.say(Self.enterSequence)
  }

  /// Gives the terminal back as it was. From any thread, also again and again.
  func leave() {
    let (isEntered, settings) = state.withLock { state in
      defer { (state.isEntered, state.settings) = (false, nil) }
      return (state.isEntered, state.settings)
    }
    if isEntered { Self.say(Self.leaveSequence) }
    if var settings { tcsetattr(STDIN_FILENO, TCSANOW, &settings) }
  }

  /// Stops the program as Ctrl-Z does, with the terminal given back meanwhile.
  func suspend() {
    leave()
    kill(getpid(), SIGSTOP)
    enter()
  }

  /// Columns and rows; 80 by 24 where the terminal does not know.
  var size: (width: Int, height: Int) {
    var size = winsize()
    guard ioctl(STDOUT_FILENO, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 0, size.ws_row > 0 else { return (80, 24) }
    return (Int(size.ws_col), Int(size.ws_row))
  }

  /// One picture, over the one before.
  /// - Parameter header: which of the lines is set off.
  static func picture(_ lines: [String], header: Int) -> String {
    let lines = lines.enumerated().map { index, line in
      (index == header ? "\u{1b}[7m\(line)\u{1b}[m" : line) + "\u{1b}[K"
    }
    return "\u{1b}[H" + lines.joined(separator: "\n") + "\u{1b}[J"
  }

  func takeInput() -> Input {
    state.withLock { state in
      defer { state.input = Input() }
      return state.input
    }
  }

  func received(signal: CInt) {
    if signal == SIGTSTP { state.withLock { $0.input.mustSuspend = true } }
  }

  fileprivate func received(keys: ArraySlice<UInt8>) {
    state.withLock { $0.input.keys += keys }
  }

  /// A terminal that does not take it is gone.
  private static func say(_ sequence: String) {
    let bytes = Array(sequence.utf8)
    _ = write(STDOUT_FILENO, bytes, bytes.count)
  }
}

/// Reads keys while somebody types; a standard input that is no terminal is left alone.
final class Keyboard: EventLoop.Handler {
  private let loop: EventLoop
  private let screen: Screen
  private let pressed: () -> Void
  private var registration: EventLoop.Registration?

  init(on loop: EventLoop, for screen: Screen, pressed: @escaping () -> Void) {
    self.loop = loop
    self.screen = screen
    self.pressed = pressed
    if isatty(STDIN_FILENO) == 1 { registration = try? loop.register(STDIN_FILENO, for: .readable, handler: self) }
  }

  func descriptorIsReady(_ readiness: EventLoop.Readiness) {
    var keys = [UInt8](repeating: 0, count: 256)
    let count = read(STDIN_FILENO, &keys, keys.count)
    guard count > 0 else {
      if count < 0, errno == EAGAIN || errno == EINTR { return }
      if let registration { loop.unregister(registration) }
      registration = nil
      return
    }
    screen.received(keys: keys[..<count])
    pressed()
  }
}
