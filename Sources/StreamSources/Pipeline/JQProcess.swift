import Events
import Glibc
import Reactive
import StreamRuntime
import Synchronization

/// The jq programs of a stream, which run in a child process. Streams of one template with the same programs share a
/// process. Confined to the source thread's loop.
final class JQPrograms: @unchecked Sendable {  // confined: checked by the loop
  /// Called on the loop, never from inside a call to the programs.
  protocol Owner: AnyObject {
    /// The events without an answer, in order. The first ones were sent, perhaps to a process that has ended since.
    var unanswered: EventBatch.SubSequence { get }
    /// The programs are compiled. Called once.
    /// - Parameter unconfined: the process could not drop its rights.
    func programsAreReady(_ unconfined: SourceReport?)
    /// The first unanswered event has this result.
    func programsAnswered(_ answer: JQAnswer)
    /// The first unanswered event has ended the process, for this reason. Another process continues after that event.
    func programsFailed(_ reason: String)
    /// There is no process, or the programs cannot be compiled. No call follows.
    func programsCannotRun(_ reason: String)
  }

  fileprivate private(set) weak var owner: (any Owner)?
  fileprivate let settings: JQProcess.Settings
  /// The values of the variables, as each event needs them; nil: there are none.
  fileprivate let values: [UInt8]?
  private let thread: SourceThread
  fileprivate var process: JQProcess?
  private var isReady = false

  /// Sends the unanswered events of the owner.
  ///
  /// - Parameters:
  ///   - executable: a program that calls `HelperProcess.runIfAsked` first.
  ///   - timePerEvent: processor time, at least a millisecond.
  ///   - name: the stream's name. Its template's, or this one, is in the process' environment, which other users cannot read.
  /// - Throws: the system call that failed.
  init(
    executable: String, timePerEvent: Duration, name: String, transform: JQTransform, on thread: SourceThread,
    owner: any Owner
  ) throws(SystemError) {
    (self.owner, self.thread) = (owner, thread)
    let names = transform.variables.keys.sorted()
    values =
      names.isEmpty ? nil : Array(names.map { transform.variables[$0] ?? "" }.joined(separator: "\n").utf8)
    settings = JQProcess.Settings(
      executable: executable, milliseconds: timePerEvent.wholeMilliseconds, name: transform.template ?? name,
      programs: transform.programs, variables: names)
    if transform.template == nil { try runAlone() } else { try share() }
  }

  private func share() throws(SystemError) {
    if let shared = thread.jqProcesses[settings] { return shared.join(self) }
    let shared = try JQProcess(settings, on: thread)
    thread.jqProcesses[settings] = shared
    shared.join(self)
  }

  private func runAlone() throws(SystemError) { try JQProcess(settings, on: thread).join(self) }

  /// Sends events to the process.
  func send(_ events: some Sequence<[UInt8]>) { process?.send(events, of: self) }

  /// Ends them in any state: their owner is not called any more.
  func end() {
    owner = nil
    process?.leave(self)
    process = nil
  }

  fileprivate func becomeReady(_ unconfined: SourceReport?) {
    guard !isReady else { return }
    isReady = true
    owner?.programsAreReady(unconfined)
  }

  fileprivate func cannotRun(_ reason: String) {
    process = nil
    owner?.programsCannotRun(reason)
  }

  /// The first unanswered event has ended the process, which others need not suffer again.
  fileprivate func continueAlone(after reason: String) {
    process = nil
    owner?.programsFailed(reason)
    guard owner != nil else { return }
    do throws(SystemError) { try runAlone() } catch { cannotRun("\(error)") }
  }
}

/// The daemon's side of a child process that runs the programs of one or several streams. The streams take turns by batches,
/// because each has one unanswered batch at most. A stream with an event that takes long keeps the process for itself, and
/// the others get a new one. Confined to the source thread's loop.
final class JQProcess: HelperChannel.Owner {
  /// The settings that all streams of a process share.
  struct Settings: Hashable {
    let executable: String
    let milliseconds: Int
    let name: String
    let programs: [String?]
    let variables: [String]
  }

  private let settings: Settings
  private let thread: SourceThread
  private var channel: HelperChannel?
  private var sharers: [ObjectIdentifier: JQPrograms] = [:]
  /// Whose the events without an answer are, in order; some may have left.
  private var asked = Fifo<JQPrograms>()
  /// Whether the programs are compiled.
  private var isReady = false
  /// The number of events that it has answered.
  private var answeredCount = 0
  private var patience: TimerID?

  /// The time after which an event takes long: elapsed, and at least half of it of a processor.
  private static let patienceTime = Duration.milliseconds(100)

  fileprivate init(_ settings: Settings, on thread: SourceThread) throws(SystemError) {
    (self.settings, self.thread) = (settings, thread)
    try start()
  }

  // MARK: Streams

  fileprivate func join(_ programs: JQPrograms) {
    sharers[ObjectIdentifier(programs)] = programs
    programs.process = self
    if isReady { thread.loop.execute { [weak programs] in programs?.becomeReady(nil) } }
    if let unanswered = programs.owner?.unanswered { send(unanswered, of: programs) }
  }

  fileprivate func send(_ events: some Sequence<[UInt8]>, of programs: JQPrograms) {
    // The next process gets all that is unanswered.
    guard let channel else { return }
    var bytes: [UInt8] = []
    for event in events {
      if let values = programs.values { bytes.appendMessage(values) }
      bytes.appendMessage(event)
      asked.append(programs)
    }
    channel.send(bytes)
    watch()
  }

  fileprivate func leave(_ programs: JQPrograms) {
    sharers[ObjectIdentifier(programs)] = nil
    if sharers.isEmpty { end() }
  }

  /// Kills the process in any state.
  private func end() {
    channel?.end()
    channel = nil
    patience.map(thread.loop.cancel)
    patience = nil
    stopSharing()
  }

  private func stopSharing() {
    if thread.jqProcesses[settings] === self { thread.jqProcesses[settings] = nil }
  }

  /// Looks after a while whether an event takes long, as long as others wait.
  private func watch() {
    guard patience == nil, sharers.count > 1, !asked.isEmpty, let channel else { return }
    let (count, used) = (answeredCount, channel.processorTime)
    patience = thread.loop.schedule(after: Self.patienceTime) { [weak self] in
      guard let self else { return }
      patience = nil
      if self.channel === channel, isReady, answeredCount == count,
        channel.processorTime - used >= Self.patienceTime / 2
      {
        split()
      }
      watch()
    }
  }

  /// The stream whose event takes long keeps the process. What it answers to the others counts no more.
  private func split() {
    guard let slow = asked.first, sharers.count > 1 else { return }
    var others = sharers
    others[ObjectIdentifier(slow)] = nil
    sharers = slow.process === self ? [ObjectIdentifier(slow): slow] : [:]
    stopSharing()
    do throws(SystemError) {
      let next = try JQProcess(settings, on: thread)
      thread.jqProcesses[settings] = next
      next.join(others, inOrderOf: asked)
    } catch {
      for programs in others.values { programs.cannotRun("\(error)") }
    }
    if sharers.isEmpty { end() }
  }

  /// - Parameter former: whose the events are that another process has not answered, in order.
  private func join(_ all: [ObjectIdentifier: JQPrograms], inOrderOf former: Fifo<JQPrograms>) {
    var (waiting, former) = (all, former)
    while let programs = former.popFirst() {
      if waiting.removeValue(forKey: ObjectIdentifier(programs)) != nil { join(programs) }
    }
    for programs in waiting.values { join(programs) }
  }

  private func cannotRun(_ reason: String) {
    let all = sharers.values
    sharers = [:]
    end()
    for programs in all { programs.cannotRun(reason) }
  }

  // MARK: The process

  private func start() throws(SystemError) {
    (isReady, answeredCount) = (false, 0)
    let channel = try HelperChannel(
      settings.executable, JQWorker.argument, ["\(settings.milliseconds)", settings.name],
      messageLimit: HelperMessageReader().limit, on: thread, owner: self)
    self.channel = channel
    var bytes: [UInt8] = []
    bytes.appendMessage(settings.variables.joined(separator: "\n").utf8)
    for program in settings.programs { bytes.appendMessage((program ?? "").utf8) }
    channel.send(bytes)
  }

  /// The kernel lacks a feature, so this is reported once, not for every process.
  private static let hasReportedRights = Atomic(false)

  /// The report of a process that could not drop its rights; nil: it could, or that was reported.
  /// - Parameter answer: its first one.
  private static func unconfinedReport(_ answer: JQAnswer) -> SourceReport? {
    guard let reason = answer.outputs.first?.event, !hasReportedRights.exchange(true, ordering: .relaxed) else {
      return nil
    }
    return .limited("jq runs unconfined: \(String(decoding: reason, as: UTF8.self))")
  }

  // MARK: - HelperChannel.Owner

  func helperSent(_ message: ArraySlice<UInt8>) -> Bool {
    guard let answer = JQAnswer(message) else { return false }
    guard isReady else {
      if let mistake = answer.failure {
        cannotRun(mistake)
        return true
      }
      isReady = true
      let unconfined = Self.unconfinedReport(answer)
      for programs in sharers.values { programs.becomeReady(unconfined) }
      return true
    }
    answeredCount += 1
    guard let programs = asked.popFirst() else { return false }
    if programs.process === self { programs.owner?.programsAnswered(answer) }
    return true
  }

  /// The first unanswered event caused the end of the process, unless earlier events have filled the memory: then a new
  /// process receives that event first.
  func helperEnded(status: CInt) {
    channel = nil
    let (reason, isForMemory) = reason(status)
    guard isReady else { return cannotRun(reason) }
    var former = asked
    asked = Fifo()
    if !(isForMemory && answeredCount > 0), let programs = former.popFirst(), programs.process === self {
      sharers[ObjectIdentifier(programs)] = nil
      programs.continueAlone(after: reason)
    }
    guard !sharers.isEmpty else { return end() }
    do throws(SystemError) { try start() } catch { return cannotRun("\(error)") }
    join(sharers, inOrderOf: former)
  }

  /// - Returns: why the process has ended, and whether because of its memory.
  private func reason(_ status: CInt) -> (reason: String, isForMemory: Bool) {
    let signal = status & 0x7f
    switch (signal, status >> 8 & 0xff) {
    case (SIGPROF, _):
      return ("no result within \(Duration.milliseconds(settings.milliseconds)) of processor time", false)
    case (0, JQWorker.outOfMemory): return ("more than \(JQWorker.memoryLimit >> 20) MiB of memory needed", true)
    case (0, let code): return ("jq exited with status \(code)", false)
    default: return unsafe ("jq was terminated by signal \(signal) (\(String(cString: strsignal(signal))))", false)
    }
  }
}
