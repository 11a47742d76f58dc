import Glibc
import Reactive
import StreamRuntime

/// The terminal of standard output, in full-screen mode from `enter` to `leave`: the alternate screen, without a
/// cursor, with unbuffered keys.
final class Screen: Sendable {
  /// The input since the last query.
  struct Input {
    var keys: [UInt8] = []
    var mustSuspend = false
  }

  private struct State {
    var input = Input()
    /// The keyboard's settings to restore, in full-screen mode.
    var settings: termios?
    var isEntered = false
  }

  private let state = Locked(State())

  /// The signals that the screen handles.
  static let signals = [SIGWINCH, SIGTSTP]

  private static let enterSequence = "\u{1b}[?1049h\u{1b}[?25l\u{1b}[?7l"  // alternate screen, no cursor, no wrapping
  private static let leaveSequence = "\u{1b}[?7h\u{1b}[?25h\u{1b}[?1049l"

  /// - Returns: nil unless standard output is a terminal that can move its cursor.
  init?() {
    let kind = unsafe getenv("TERM").map { unsafe String(cString: $0) } ?? ""
    guard Terminal.isOutput, !kind.isEmpty, kind != "dumb" else { return nil }
  }

  func enter() {
    var settings = termios()
    let hasKeyboard = unsafe isatty(STDIN_FILENO) == 1 && tcgetattr(STDIN_FILENO, &settings) == 0
    state.withLock { state in
      state.isEntered = true
      state.settings = hasKeyboard ? settings : nil
    }
    if hasKeyboard {
      settings.c_lflag &= ~tcflag_t(ICANON | ECHO)
      unsafe tcsetattr(STDIN_FILENO, TCSADRAIN, &settings)
    }
    Self.say(Self.enterSequence)
  }

  /// Restores the terminal. Thread-safe; may be called repeatedly.
  func leave() {
    let (isEntered, settings) = state.withLock { state in
      defer { (state.isEntered, state.settings) = (false, nil) }
      return (state.isEntered, state.settings)
    }
    if isEntered { Self.say(Self.leaveSequence) }
    if var settings { unsafe tcsetattr(STDIN_FILENO, TCSANOW, &settings) }
  }

  /// Stops the program as Ctrl-Z does, with the terminal restored meanwhile.
  func suspend() {
    leave()
    kill(getpid(), SIGSTOP)
    enter()
  }

  /// Columns and rows; 80 by 24 if unknown.
  var size: (width: Int, height: Int) {
    var size = winsize()
    guard unsafe ioctl(STDOUT_FILENO, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 0, size.ws_row > 0 else {
      return (80, 24)
    }
    return (Int(size.ws_col), Int(size.ws_row))
  }

  /// The text that draws one screen over the previous one.
  /// - Parameter header: the index of the highlighted line.
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

  /// Ignores errors: a terminal that rejects output is closed.
  private static func say(_ sequence: String) {
    let bytes = Array(sequence.utf8)
    _ = unsafe write(STDOUT_FILENO, bytes, bytes.count)
  }
}

/// A key of a terminal.
enum Key: Equatable {
  case letter(Character)
  case up, down, pageUp, pageDown, home, end

  /// Returns the keys for the bytes that a terminal sends. Unknown sequences are left out.
  static func keys(_ bytes: [UInt8]) -> [Key] {
    var keys: [Key] = []
    var rest = bytes[...]
    while let byte = rest.popFirst() {
      guard byte == 0x1B, let kind = rest.first, kind == UInt8(ascii: "[") || kind == UInt8(ascii: "O") else {
        keys.append(.letter(Character(UnicodeScalar(byte))))
        continue
      }
      rest.removeFirst()
      let parameters = rest.prefix { $0 < 0x40 }
      rest = rest.dropFirst(parameters.count)
      guard let final = rest.popFirst() else { break }
      switch (final, parameters.first) {
      case (UInt8(ascii: "A"), _): keys.append(.up)
      case (UInt8(ascii: "B"), _): keys.append(.down)
      case (UInt8(ascii: "H"), _), (UInt8(ascii: "~"), UInt8(ascii: "1")): keys.append(.home)
      case (UInt8(ascii: "F"), _), (UInt8(ascii: "~"), UInt8(ascii: "4")): keys.append(.end)
      case (UInt8(ascii: "~"), UInt8(ascii: "5")): keys.append(.pageUp)
      case (UInt8(ascii: "~"), UInt8(ascii: "6")): keys.append(.pageDown)
      default: break
      }
    }
    return keys
  }
}

/// Reads keys from a terminal; any other standard input is not read.
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
    let count = unsafe read(STDIN_FILENO, &keys, keys.count)
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
