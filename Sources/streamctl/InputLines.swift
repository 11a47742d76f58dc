import Dispatch
import Glibc
import Reactive
import StreamClient
import StreamRuntime

/// Standard input as a subscription of a sink: each line is a value, read at the pace of the demand.
final class InputLines: Subscription, Sendable {
  private struct State {
    var demand = Subscribers.Demand.none
    var isCancelled = false
  }

  private let state = Locked(State())
  private let wake = DispatchSemaphore(value: 0)

  private static let readByteCount = 64 << 10
  /// RSocket's maximum frame, minus the rest of the frame. The daemon's `max_request` may be lower.
  private static let lineByteLimit = (16 << 20) - 1024

  func request(_ demand: Subscribers.Demand) {
    state.withLock { $0.demand += demand }
    wake.signal()
  }

  func cancel() {
    state.withLock { $0.isCancelled = true }
    wake.signal()
  }

  /// All of standard input, as one value.
  static func whole() throws(Stop) -> [UInt8] {
    var (chunk, whole) = ([UInt8](repeating: 0, count: readByteCount), [UInt8]())
    while true {
      let count = unsafe Glibc.read(STDIN_FILENO, &chunk, chunk.count)
      let code = errno
      if count < 0, code == EINTR { continue }
      guard count >= 0 else { throw .input(SystemError("read", "standard input", code: code)) }
      guard count > 0 else { break }
      whole += chunk[..<count]
      guard whole.count <= lineByteLimit else { throw .lineTooLong(1, limit: lineByteLimit) }
    }
    guard !whole.isEmpty else { throw .usage("request requires a body, and standard input is empty") }
    return whole
  }

  /// Reads to the end; blocks without input and without demand. An empty line is an empty value, and the last line
  /// needs no line end.
  /// - Returns: why reading ended before the end of the input; earlier values are published nevertheless.
  func read(into sink: RemoteSink) -> Stop? {
    sink.receive(subscription: self)
    defer { sink.receive(completion: .finished) }
    var chunk = [UInt8](repeating: 0, count: Self.readByteCount)
    var line: [UInt8] = []
    var lineNumber = 1
    while true {
      let count = unsafe Glibc.read(STDIN_FILENO, &chunk, chunk.count)
      let code = errno
      if count < 0, code == EINTR { continue }
      if count < 0, code == EAGAIN {  // another process made the shared terminal non-blocking
        var waiting = pollfd(fd: STDIN_FILENO, events: Int16(POLLIN), revents: 0)
        _ = unsafe poll(&waiting, 1, -1)
        continue
      }
      guard count >= 0 else { return .input(SystemError("read", "standard input", code: code)) }
      var rest = chunk[..<count]
      while let end = rest.firstIndex(of: UInt8(ascii: "\n")) {
        line += rest[..<end]
        guard line.count <= Self.lineByteLimit else { return .lineTooLong(lineNumber, limit: Self.lineByteLimit) }
        guard waitUntilWanted() else { return nil }
        _ = sink.receive(Self.value(of: line, lineNumber))
        line = []
        lineNumber += 1
        rest = rest[(end + 1)...]
      }
      line += rest
      guard line.count <= Self.lineByteLimit else { return .lineTooLong(lineNumber, limit: Self.lineByteLimit) }
      if count == 0 {
        if !line.isEmpty, waitUntilWanted() { _ = sink.receive(Self.value(of: line, lineNumber)) }
        return nil
      }
    }
  }

  /// A line without the CR of its end; the first line also without a byte order mark.
  private static func value(of line: [UInt8], _ number: Int) -> [UInt8] {
    let text = number == 1 && line.starts(with: [0xEF, 0xBB, 0xBF]) ? line[3...] : line[...]
    return Array(text.last == UInt8(ascii: "\r") ? text.dropLast() : text)
  }

  /// - Returns: false when no more values are needed.
  private func waitUntilWanted() -> Bool {
    while true {
      let answer: Bool? = state.withLock { state in
        guard !state.isCancelled else { return false }
        guard state.demand > .none else { return nil }
        state.demand -= 1
        return true
      }
      if let answer { return answer }
      wake.wait()
    }
  }
}
