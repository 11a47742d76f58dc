import Dispatch
import Glibc
import Reactive
import StreamRuntime
import TestSupport

/// A terminal for a program under test: the program's output, as screens.
package final class PseudoTerminal: Sendable {
  /// No further output arrived; the output until then.
  package struct Silence: Error {
    package let text: String
  }

  /// The program's end.
  package let program: CInt
  private let screen: CInt
  private let seen = Locked<[UInt8]>([])

  private static let setLock: UInt = 0x4004_5431  // TIOCSPTLCK
  private static let getNumber: UInt = 0x8004_5430  // TIOCGPTN

  package init(width: UInt16, height: UInt16) throws(SystemError) {
    // With system calls: the C library's functions leave the descriptor open in programs that are started meanwhile.
    screen = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC)
    var (locked, number) = (CInt(0), CUnsignedInt(0))
    guard screen >= 0, ioctl(screen, Self.setLock, &locked) == 0, ioctl(screen, Self.getNumber, &number) == 0 else {
      throw SystemError("open", "/dev/ptmx")
    }
    program = open("/dev/pts/\(number)", O_RDWR | O_NOCTTY | O_CLOEXEC)
    guard program >= 0 else { throw SystemError("open", "/dev/pts/\(number)") }
    resize(width: width, height: height)
  }

  deinit {
    close(program)
    close(screen)
  }

  /// The program is not notified; the test does that.
  package func resize(width: UInt16, height: UInt16) {
    var size = winsize(ws_row: height, ws_col: width, ws_xpixel: 0, ws_ypixel: 0)
    _ = ioctl(screen, UInt(TIOCSWINSZ), &size)
  }

  package func type(_ keys: String) {
    _ = write(screen, keys, keys.utf8.count)
  }

  /// Whether a line is edited before the program gets it, as in a shell.
  package var editsLines: Bool {
    var settings = termios()
    tcgetattr(program, &settings)
    return settings.c_lflag & tcflag_t(ICANON) != 0
  }

  /// All output so far.
  package var text: String { String(decoding: seen.withLock { $0 }, as: UTF8.self) }

  /// Waits until the last picture is one that a test looks for. The test's time limit is the guard.
  package func picture(where isWanted: ([String]) -> Bool) async throws -> [String] {
    while true {
      if let picture = lastPicture, isWanted(picture) { return picture }
      try await read()
    }
  }

  /// Waits for any output.
  package func drawn(_ sequence: String) async throws {
    while !text.hasSuffix(sequence) { try await read() }
  }

  /// The lines between the last "cursor home" and the next "erase to the end", without control sequences.
  private var lastPicture: [String]? {
    guard let end = text.range(ofLast: "\u{1b}[J"), let start = text[..<end.lowerBound].range(ofLast: "\u{1b}[H") else {
      return nil
    }
    return text[start.upperBound..<end.lowerBound].split(separator: "\r\n", omittingEmptySubsequences: false).map {
      String($0).replacing("\u{1b}[K", with: "").replacing("\u{1b}[7m", with: "").replacing("\u{1b}[m", with: "")
    }
  }

  /// - Throws: `Silence` after `hangTime`.
  private func read() async throws {
    try await withCheckedThrowingContinuation { (continuation: CheckedContinuation<Void, any Error>) in
      DispatchQueue.global().async { [self] in
        var ready = pollfd(fd: screen, events: Int16(POLLIN), revents: 0)
        guard poll(&ready, 1, CInt(hangTime.wholeMilliseconds)) == 1 else {
          return continuation.resume(throwing: Silence(text: text))
        }
        var buffer = [UInt8](repeating: 0, count: 65536)
        let count = Glibc.read(screen, &buffer, buffer.count)
        if count > 0 { seen.withLock { $0 += buffer.prefix(count) } }
        continuation.resume()
      }
    }
  }
}

extension StringProtocol {
  package func range(ofLast text: String) -> Range<Index>? { ranges(of: text).last }
}
