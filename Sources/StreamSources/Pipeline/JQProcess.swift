import Glibc
import StreamRuntime
import Synchronization

/// The daemon's side of a child process that runs a stream's programs. Confined to the source thread's loop.
final class JQProcess: HelperChannel.Owner {
  /// Called on the loop, never from inside a call to the process.
  protocol Owner: AnyObject {
    /// The first answer is the programs' result; one for each event follows, in order.
    func processAnswered(_ answer: JQAnswer)
    /// The process has ended by itself, for this reason. No call follows.
    /// - Parameter isForMemory: its memory is exhausted, or would soon have been.
    func processEnded(_ reason: String, isForMemory: Bool)
  }

  private weak var owner: (any Owner)?
  private let timePerEvent: Duration
  private var channel: HelperChannel?

  /// - Parameters:
  ///   - executable: a program that calls `HelperProcess.runIfAsked` first.
  ///   - timePerEvent: processor time, at least a millisecond.
  ///   - name: the stream's name, in the process' environment, which other users cannot read.
  ///   - transform: the programs.
  /// - Throws: the system call that failed.
  init(
    executable: String, timePerEvent: Duration, name: String, transform: JQTransform, on thread: SourceThread,
    owner: any Owner
  ) throws(SystemError) {
    self.owner = owner
    self.timePerEvent = timePerEvent
    channel = try HelperChannel(
      executable, JQWorker.argument, ["\(timePerEvent.wholeMilliseconds)", name],
      messageLimit: HelperMessageReader().limit, on: thread, owner: self)
    let variables = transform.variables.map { "\($0.key) \($0.value)" }.joined(separator: "\n")
    send([Array(variables.utf8)] + transform.programs.map { [UInt8](($0 ?? "").utf8) })
  }

  /// Sends events to the process.
  func send(_ events: some Sequence<[UInt8]>) {
    var bytes: [UInt8] = []
    for event in events { bytes.appendMessage(event) }
    channel?.send(bytes)
  }

  /// Kills the process in any state; its owner is not called any more.
  func end() {
    owner = nil
    channel?.end()
  }

  /// The kernel lacks a feature, so this is reported once, not for every process.
  private static let hasReportedRights = Atomic(false)

  /// The report of a process that could not drop its rights; nil: it could, or that was reported.
  /// - Parameter answer: its first one.
  static func unconfinedReport(_ answer: JQAnswer) -> SourceReport? {
    guard let reason = answer.outputs.first?.event, !hasReportedRights.exchange(true, ordering: .relaxed) else {
      return nil
    }
    return .limited("jq runs unconfined: \(String(decoding: reason, as: UTF8.self))")
  }

  // MARK: - HelperChannel.Owner

  func helperSent(_ message: ArraySlice<UInt8>) -> Bool {
    guard let answer = JQAnswer(message) else { return false }
    owner?.processAnswered(answer)
    return true
  }

  func helperEnded(status: CInt) {
    let (reason, isForMemory) = reason(status)
    owner?.processEnded(reason, isForMemory: isForMemory)
  }

  /// - Returns: why the process has ended, and whether because of its memory.
  private func reason(_ status: CInt) -> (reason: String, isForMemory: Bool) {
    let signal = status & 0x7f
    switch (signal, status >> 8 & 0xff) {
    case (SIGPROF, _): return ("no result within \(timePerEvent) of processor time", false)
    case (0, JQWorker.outOfMemory): return ("more than \(JQWorker.memoryLimit >> 20) MiB of memory needed", true)
    case (0, let code): return ("jq exited with status \(code)", false)
    default: return unsafe ("jq was terminated by signal \(signal) (\(String(cString: strsignal(signal))))", false)
    }
  }
}
