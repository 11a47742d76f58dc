import CLinux
import Dispatch
import Glibc
import Reactive
import StreamRuntime
import Synchronization

/// A program that a test runs.
///
/// Not Foundation's `Process`: its descriptors can end up in a program that another test starts at the same moment, and
/// then neither end of file nor the program's end is detected before that one ends, too. An ended program is reaped at
/// once: the testing library's exit tests wait for any child, and do not find another one while
/// one is left.
public final class ChildProcess: Sendable {
  /// The target of standard output or standard error.
  public enum Sink: Sendable {
    /// Read with `line()`, `text()`.
    case pipe
    /// A descriptor that stays the caller's.
    case descriptor(CInt)
    /// Created or emptied.
    case file(String)
  }

  /// Its process id; may be reused once it has ended.
  public let id: pid_t
  /// The reading ends of pipes; closed with this value.
  public let output: CInt
  /// As above.
  public let errors: CInt
  private let input: CInt
  private let isOutputOpen = Atomic(true)
  private let ending = Ending()

  /// - Parameters:
  ///   - program: a path, or a name to be found on PATH.
  ///   - terminal: the program's standard input; a descriptor that stays the caller's.
  ///   - passed: become the program's descriptors from 3 on; they stay the caller's.
  ///   - holdsInput: the program's standard input is for ``write(_:)``, and ends with this value; otherwise it is
  ///     empty.
  public init(
    _ program: String, _ arguments: [String] = [], terminal: CInt? = nil, holdsInput: Bool = false,
    output: Sink = .pipe, errors: Sink = .pipe, passing passed: [CInt] = []
  ) throws(SystemError) {
    var command = Spawn([program] + arguments)
    command.environment = nil
    var ours: [CInt] = []
    var theirs: [CInt] = []
    defer { theirs.forEach { close($0) } }
    if let terminal {
      command.descriptors[0] = .copy(terminal)
      input = -1
    } else if holdsInput {
      // Not a pipe, so that writing to an ended program raises no signal.
      var ends: [CInt] = [0, 0]
      let type = CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue)
      guard socketpair(AF_UNIX, type, 0, &ends) == 0 else { throw SystemError("socketpair") }
      command.descriptors[0] = .copy(ends[0])
      theirs.append(ends[0])
      input = ends[1]
    } else {
      input = -1
    }
    for (sink, target) in [(output, 1), (errors, 2)] {
      switch sink {
      case .pipe:
        let ends = try Self.pipe()
        command.descriptors[target] = .copy(ends.write)
        theirs.append(ends.write)
        ours.append(ends.read)
      case .descriptor(let descriptor):
        command.descriptors[target] = .copy(descriptor)
        ours.append(-1)
      case .file(let path):
        command.descriptors[target] = .file(path)
        ours.append(-1)
      }
    }
    command.descriptors += passed.map { .copy($0) }
    (self.output, self.errors) = (ours[0], ours[1])
    let child: pid_t
    do throws(SystemError) {
      child = try command.start()
    } catch {
      throw SystemError(error.call, program, code: error.code)
    }
    id = child
    DispatchQueue(label: "reaper").async { [ending, child] in
      var status: CInt = 0
      while waitpid(child, &status, 0) < 0, errno == EINTR {}
      ending.set(status & 0x7f == 0 ? status >> 8 & 0xff : 128 + status & 0x7f)
    }
  }

  deinit {
    closeOutput()
    for descriptor in [input, errors] where descriptor >= 0 { close(descriptor) }
  }

  /// In the folder of the tests, where the package manager puts every product.
  public static func built(_ name: String) throws(SystemError) -> String {
    // The test runner is the bundle itself, or has its path as an argument.
    for candidate in CommandLine.arguments {
      guard let slash = candidate.lastIndex(of: "/") else { continue }
      let binary = candidate[..<slash] + "/" + name
      if access(String(binary), X_OK) == 0 { return String(binary) }
    }
    throw SystemError("find", name, code: ENOENT)
  }

  /// Closes the output, as `head` does.
  public func closeOutput() {
    if output >= 0, isOutputOpen.exchange(false, ordering: .relaxed) { close(output) }
  }

  /// Writes to the program's standard input; waits while the program does not read.
  /// - Returns: whether all was written: false when the program has ended.
  @discardableResult
  public func write(_ bytes: [UInt8]) async -> Bool {
    await offTheTestsThreads { [input] in
      var rest = bytes[...]
      while !rest.isEmpty {
        let count = rest.withUnsafeBytes { send(input, $0.baseAddress, $0.count, CInt(MSG_NOSIGNAL)) }
        guard count > 0 else { return false }
        rest = rest.dropFirst(count)
      }
      return true
    }
  }

  /// Closes the program's standard input.
  public func endInput() { shutdown(input, CInt(SHUT_WR)) }

  /// Sends a signal, if the program has not ended.
  public func signal(_ number: CInt) {
    if !ending.isKnown { kill(id, number) }
  }

  /// Waits for the end.
  /// - Returns: the exit code as in a shell: 128 and more for a signal.
  public func end() async -> CInt { await ending.code() }

  /// Waits until a signal has stopped the program, or it has ended.
  public func stopped() async {
    await offTheTestsThreads { [id] in
      var info = siginfo_t()
      while waitid(P_PID, id_t(id), &info, WSTOPPED | WEXITED | WNOWAIT) != 0, errno == EINTR {}
    }
  }

  /// One line of the output, without its end; nil at the end.
  public func line() async -> String? {
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

  /// The content of a pipe up to its end.
  public func text(of descriptor: CInt) async -> String {
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

  /// Both ends are closed in every other program, also in one that is started at this moment.
  private static func pipe() throws(SystemError) -> (read: CInt, write: CInt) {
    var ends: [CInt] = [0, 0]
    guard pipe2(&ends, O_CLOEXEC) == 0 else { throw SystemError("pipe2") }
    return (ends[0], ends[1])
  }
}

/// The exit code, once there is one.
private final class Ending: Sendable {
  private struct State {
    var code: CInt?
    var waiting: [CheckedContinuation<CInt, Never>] = []
  }

  private let state = Locked(State())

  func set(_ code: CInt) {
    let waiting = state.withLock { state in
      state.code = code
      return state.waiting
    }
    for continuation in waiting { continuation.resume(returning: code) }
  }

  var isKnown: Bool { state.withLock { $0.code != nil } }

  func code() async -> CInt {
    await withCheckedContinuation { continuation in
      let code = state.withLock { state in
        if state.code == nil { state.waiting.append(continuation) }
        return state.code
      }
      if let code { continuation.resume(returning: code) }
    }
  }
}

/// Whether a process, of any parent, runs; a zombie does not.
public func isRunning(_ id: pid_t) -> Bool {
  guard let file = fopen("/proc/\(id)/stat", "r") else { return false }
  defer { fclose(file) }
  var bytes = [UInt8](repeating: 0, count: 512)
  let count = fread(&bytes, 1, bytes.count, file)
  let text = String(decoding: bytes.prefix(count), as: UTF8.self)
  let state = text.split(separator: ")").last?.dropFirst().first  // after the name, which may contain anything
  return state.map { $0 != "Z" && $0 != "X" } ?? false
}

/// Runs blocking code without delaying other tests.
private func offTheTestsThreads<R: Sendable>(_ body: @escaping @Sendable () -> R) async -> R {
  await withCheckedContinuation { continuation in
    DispatchQueue.global().async { continuation.resume(returning: body()) }
  }
}
