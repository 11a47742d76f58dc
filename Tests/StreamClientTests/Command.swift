import Dispatch
import EventLoop
import Glibc

/// The built streamctl, running; its output and errors read as they come.
final class Command: Sendable {
  private let process: pid_t
  private let output: CInt
  private let errors: CInt

  /// - Parameter output: what standard output is to be; `nil`: a pipe for ``line()`` and ``rest()``.
  init(_ arguments: [String], output redirection: CInt? = nil) throws {
    let binary = try Self.binary()
    var outputEnds: [CInt] = [0, 0]
    var errorEnds: [CInt] = [0, 0]
    guard pipe(&outputEnds) == 0, pipe(&errorEnds) == 0 else { throw SystemError("pipe") }
    for end in outputEnds + errorEnds { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    posix_spawn_file_actions_adddup2(&actions, redirection ?? outputEnds[1], STDOUT_FILENO)
    posix_spawn_file_actions_adddup2(&actions, errorEnds[1], STDERR_FILENO)
    let words = ([binary] + arguments).map { strdup($0) }
    defer { words.forEach { free($0) } }
    var process = pid_t()
    let result = posix_spawn(&process, binary, &actions, nil, words + [nil], environ)
    close(outputEnds[1])
    close(errorEnds[1])
    guard result == 0 else { throw SystemError("posix_spawn", binary, code: result) }
    self.process = process
    output = outputEnds[0]
    errors = errorEnds[0]
  }

  /// Beside the tests, where the package manager puts every product.
  private static func binary() throws -> String {
    // Whoever runs the tests is the bundle itself or has been given its path.
    for candidate in CommandLine.arguments {
      guard let slash = candidate.lastIndex(of: "/") else { continue }
      let binary = candidate[..<slash] + "/streamctl"
      if access(String(binary), X_OK) == 0 { return String(binary) }
    }
    throw SystemError("find", "streamctl", code: ENOENT)
  }

  /// One line of the output, without its end; `nil` at the end.
  func line() async -> String? {
    await offTheTestsThreads { [output] in
      var line: [UInt8] = []
      var byte: UInt8 = 0
      while read(output, &byte, 1) == 1 {
        if byte == UInt8(ascii: "\n") { return String(decoding: line, as: UTF8.self) }
        line.append(byte)
      }
      return line.isEmpty ? nil : String(decoding: line, as: UTF8.self)
    }
  }

  /// What is left of the output, up to its end.
  func rest() async -> String { await Self.all(of: output) }

  func closeOutput() { close(output) }

  func interrupt() { kill(process, SIGINT) }

  /// Waits for the end. The code as a shell says it, and what was said on standard error.
  func end() async -> (code: CInt, errors: String) {
    let text = await Self.all(of: errors)
    let status = await offTheTestsThreads { [process] in
      var status: CInt = 0
      waitpid(process, &status, 0)
      return status
    }
    return (status & 0x7f == 0 ? status >> 8 & 0xff : 128 + status & 0x7f, text)
  }

  private static func all(of descriptor: CInt) async -> String {
    await offTheTestsThreads {
      var text: [UInt8] = []
      var buffer = [UInt8](repeating: 0, count: 65536)
      while true {
        let count = read(descriptor, &buffer, buffer.count)
        guard count > 0 else { return String(decoding: text, as: UTF8.self) }
        text += buffer.prefix(count)
      }
    }
  }
}

/// Runs what blocks where it holds up no other test.
private func offTheTestsThreads<R: Sendable>(_ body: @escaping @Sendable () -> R) async -> R {
  await withCheckedContinuation { continuation in
    DispatchQueue.global().async { continuation.resume(returning: body()) }
  }
}
