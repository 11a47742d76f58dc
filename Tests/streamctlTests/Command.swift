import Glibc
import StreamRuntime
import TestSupport

/// The built streamctl, running; its output and errors are read as they arrive.
final class Command: Sendable {
  private let process: ChildProcess

  /// - Parameter output: what standard output is to be; `nil`: a pipe for ``line()`` and ``rest()``.
  /// - Parameter holdsInput: standard input is for ``write(_:)`` and ``endInput()``; otherwise it is empty.
  init(_ arguments: [String], holdsInput: Bool = false, output: CInt? = nil) throws {
    process = try ChildProcess(
      ChildProcess.built("streamctl"), arguments, holdsInput: holdsInput,
      output: output.map { .descriptor($0) } ?? .pipe)
  }

  /// Writes the program's input; waits while the program does not read.
  func write(_ text: String) async { await process.write(Array(text.utf8)) }

  func endInput() { process.endInput() }

  /// One line of the output, without its end; `nil` at the end.
  func line() async -> String? { await process.line() }

  /// The rest of the output, up to its end.
  func rest() async -> String { await process.text(of: process.output) }

  func closeOutput() { process.closeOutput() }

  func interrupt() { process.signal(SIGINT) }

  /// Waits for the end. The exit code as in a shell, and the content of standard error.
  func end() async -> (code: CInt, errors: String) {
    let text = await process.text(of: process.errors)
    return (await process.end(), text)
  }
}
