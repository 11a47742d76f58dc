import Glibc
import StreamRuntime

/// A running program and the process group that it leads. Confined to the source thread, which retains it.
///
/// Its standard output is read while `isRead`, its standard error always. When the program exits, or must end, the rest
/// of its group gets SIGTERM, and SIGKILL after a grace period. It is over when no process of the group runs and the
/// pipes' content up to then was read, even if a process that left the group still holds their other ends. It is reaped
/// as soon as it exits.
final class ChildProgram: KeptProcess, EventLoop.Handler {
  /// Receives its output and its end. Retained until the last call; each call is on the loop.
  protocol Handler: AnyObject {
    /// The next piece of standard output. Not called after `end`.
    func programWrote(_ bytes: UnsafeRawBufferPointer)
    /// A line of standard error.
    func programSaid(_ line: String)
    /// The program is over. The last call.
    func programEnded(_ ending: ProgramEnding)
  }

  private enum Phase {
    case running  // can become: ending, leaderless
    case ending  // got SIGTERM; can become: leaderless
    case leaderless  // it has exited, others of its group have not; can become: over
    case over  // its output may still have to be read
  }

  /// Bytes of output read in one turn: the default capacity of a pipe. Source: pipe(7).
  private static let outputBytes = 64 << 10
  /// Bytes of standard error read in one turn: each line costs a check of the journal's flood limit, while other
  /// sources wait.
  private static let errorBytes = 4 << 10
  /// How often the rest of a group is checked: the system does not report its end.
  private static let lookPause = Duration.milliseconds(20)
  /// How long another process may take to reap a killed orphan. Most are gone at the next check.
  private static let reapTime = Duration.seconds(1)

  private let id: pid_t
  private let grace: Duration
  private let output: ProgramPipe
  private let errorOutput: ProgramPipe
  private let process: OwnedDescriptor
  private let thread: SourceThread
  private var handler: (any Handler)?
  private var phase = Phase.running
  private var ending: ProgramEnding?
  private var errorLines = ErrorLines()
  private var isDiscarding = false
  private var registration: EventLoop.Registration?
  /// Fires when the program must be terminated, or killed.
  private var killTimer: TimerID?
  private var killDue = UInt64.max
  private var wasKilled = false

  /// Starts the program.
  /// - Throws: the call that failed. Nothing runs then.
  init(_ configuration: ProgramConfiguration, on thread: SourceThread, handler: any Handler) throws(SystemError) {
    let launch = try Launch(
      configuration.command,
      environment: ProgramEnvironment.assignments(
        inherited: ProgramEnvironment.inherited, more: configuration.environment))
    id = launch.id
    grace = configuration.grace
    output = ProgramPipe(launch.output, pieceBytes: Self.outputBytes, on: thread.loop)
    errorOutput = ProgramPipe(
      launch.errorOutput, pieceBytes: Self.errorBytes, share: thread.errorShare, on: thread.loop)
    process = launch.process
    self.thread = thread
    self.handler = handler
    unsafe output.receive = { [weak self] bytes in
      if let self, !isDiscarding { unsafe self.handler?.programWrote(bytes) }
    }
    output.ended = { [weak self] in self?.outputEnded() }
    unsafe errorOutput.receive = { [weak self] bytes in
      if let self { unsafe errorLines.split(bytes).forEach(say) }
    }
    errorOutput.ended = { [weak self] in self?.errorOutputEnded() }
    do throws(SystemError) {
      try thread.programGuard?.watch(id)
      registration = try thread.loop.register(process.raw, for: .readable, handler: self)
      try errorOutput.watch()
    } catch {
      if let registration { thread.loop.unregister(registration) }
      Self.endAtOnce(id)
      thread.programGuard?.forget(id)
      throw error
    }
    thread.keep(self)
  }

  /// Whether its output is read. While it is not, the program can fill its pipe, and then blocks.
  var isRead = false {
    didSet { watchOutput() }
  }

  /// Ends the program and the rest of its group with SIGTERM, and with SIGKILL after `grace`. Output is then discarded,
  /// so that the program does not block on it. May be called again, with less grace.
  /// - Parameter grace: nil: the configuration's.
  func end(within grace: Duration? = nil) {
    thread.loop.assertOnLoop()
    isDiscarding = true
    if thread.isStopped { errorOutput.share = nil }
    terminate(within: grace ?? self.grace)
    watchOutput()
  }

  // MARK: Its output

  private func watchOutput() {
    thread.loop.assertOnLoop()
    guard isRead || isDiscarding else { return output.rest() }
    do throws(SystemError) {
      try output.watch()
    } catch {
      if ending == nil { ending = .unreadable(error) }
      if phase == .over { output.drop() } else { terminate(within: grace) }
    }
  }

  private func errorOutputEnded() {
    errorLines.end().forEach(say)
    finish()
  }

  private func outputEnded() {
    switch phase {
    case .running:
      // The program is most often about to exit. It can deliver nothing any more, so it must not keep running.
      setKillTimer(grace) { program in
        program.ending = .closedOutput(program.grace)
        program.terminate(within: program.grace)
      }
    case .over: finish()
    case .ending, .leaderless: break
    }
  }

  private func say(_ line: String) { handler?.programSaid(line) }

  // MARK: Its end

  private func terminate(within grace: Duration) {
    switch phase {
    case .running:
      phase = .ending
      askGroupToEnd()
    case .ending, .leaderless: break
    case .over: return
    }
    killGroup(after: grace)
  }

  /// Sets the kill timer, unless it fires sooner already.
  private func killGroup(after grace: Duration) {
    let due = EventLoop.monotonicNow() &+ UInt64(grace.wholeNanoseconds)
    guard due < killDue else { return }
    killDue = due
    setKillTimer(grace) { program in
      kill(-program.id, SIGKILL)
      program.wasKilled = true
      if program.phase == .leaderless { program.leaveDeadGroup() }
    }
  }

  private func setKillTimer(_ delay: Duration, _ action: @escaping (ChildProgram) -> Void) {
    if let killTimer { thread.loop.cancel(killTimer) }
    killTimer = thread.loop.schedule(after: delay) { [weak self] in
      guard let self else { return }
      killTimer = nil
      action(self)
    }
  }

  private func askGroupToEnd() {
    kill(-id, SIGTERM)
    kill(-id, SIGCONT)  // a stopped process does not act on SIGTERM
  }

  /// The program has exited.
  func descriptorIsReady(_ readiness: EventLoop.Readiness) {
    // Not reaped yet, so its process id and its group's cannot be reused.
    if phase == .running { askGroupToEnd() }
    var status: CInt = 0
    let reaped = unsafe waitpid(id, &status, WNOHANG)
    guard reaped != 0 else { return }
    if let registration { thread.loop.unregister(registration) }
    registration = nil
    if ending == nil { ending = reaped == id ? ProgramEnding(status: status) : .unknown }
    phase = .leaderless
    if wasKilled { leaveDeadGroup() } else { killGroup(after: grace) }
    lookAtGroup()
  }

  /// The group's other members are not our children: the system only tells whether any exist. The kernel reuses a free
  /// id only after all others, which takes longer than the time between two checks.
  private func lookAtGroup() {
    guard phase == .leaderless else { return }
    guard kill(-id, 0) == 0 else { return groupEnded() }
    _ = thread.loop.schedule(after: Self.lookPause) { [weak self] in self?.lookAtGroup() }
  }

  /// Killed members end at once, but stay in the group until they are reaped.
  private func leaveDeadGroup() {
    setKillTimer(Self.reapTime) { $0.groupEnded() }
  }

  private func groupEnded() {
    thread.programGuard?.forget(id)
    if let killTimer { thread.loop.cancel(killTimer) }
    killTimer = nil
    phase = .over
    errorOutput.limitToWhatIsThere()
    output.limitToWhatIsThere()
    if !output.isAtEnd { watchOutput() }
    finish()
  }

  /// Reports the end, once everything that the program has written was read.
  private func finish() {
    thread.loop.assertOnLoop()
    guard phase == .over, errorOutput.isAtEnd, output.isAtEnd, let handler else { return }
    self.handler = nil
    handler.programEnded(ending ?? .unknown)
    thread.forget(self)
  }
}
