import Glibc
import StreamRuntime

/// A program that runs, and the process group that it leads. Belongs to the source thread, which keeps it.
///
/// Its output is read while `isRead`, its standard error always. When it exits, or is told to end, the rest of its group
/// is told to, and killed if it does not. It is over when nothing of the group runs and what is in its pipes by then was
/// read, also when somebody who has left the group still holds their other ends. It is reaped as soon as it exits.
final class ChildProgram: KeptProcess, EventLoop.Handler {
  /// Who runs it. Kept until the last call; each is made on the loop.
  protocol Handler: AnyObject {
    /// The next piece of its output. None after `end`.
    func programWrote(_ bytes: UnsafeRawBufferPointer)
    /// A line of its standard error.
    func programSaid(_ line: String)
    /// It is over. The last call.
    func programEnded(_ ending: ProgramEnding)
  }

  private enum Phase {
    case running  // can become: ending, leaderless
    case ending  // told to; can become: leaderless
    case leaderless  // it has exited, others of its group have not; can become: over
    case over  // its output may still have to be read
  }

  /// Read in one turn: what a pipe holds, unless somebody has made it larger. Source: pipe(7).
  private static let outputBytes = 64 << 10
  /// As above, of standard error: each line costs a look at the journal's flood limit, and other sources wait meanwhile.
  private static let errorBytes = 4 << 10
  /// How often is looked whether the rest of a group has ended, of which the system tells nobody.
  private static let lookPause = Duration.milliseconds(20)
  /// How long somebody else may take to reap a killed orphan. Most often it is gone by the next look.
  private static let reapTime = Duration.seconds(1)

  private let id: pid_t
  private let grace: Duration
  private let output: ProgramPipe
  private let errors: ProgramPipe
  private let process: OwnedDescriptor
  private let thread: SourceThread
  private var handler: (any Handler)?
  private var phase = Phase.running
  private var ending: ProgramEnding?
  private var errorLines = ErrorLines()
  private var isDiscarding = false
  private var registration: EventLoop.Registration?
  /// Runs out when it must be ended, or killed.
  private var killTimer: TimerID?
  private var killDue = UInt64.max
  private var wasKilled = false

  /// Starts it.
  /// - Throws: the call that failed. Nothing runs then.
  init(_ configuration: ProgramConfiguration, on thread: SourceThread, handler: any Handler) throws(SystemError) {
    let launch = try Launch(
      configuration.command,
      environment: ProgramEnvironment.assignments(
        inherited: ProgramEnvironment.inherited, more: configuration.environment))
    id = launch.id
    grace = configuration.grace
    output = ProgramPipe(launch.output, pieceBytes: Self.outputBytes, on: thread.loop)
    errors = ProgramPipe(launch.errors, pieceBytes: Self.errorBytes, on: thread.loop)
    process = launch.process
    self.thread = thread
    self.handler = handler
    output.receive = { [weak self] bytes in
      if let self, !isDiscarding { self.handler?.programWrote(bytes) }
    }
    output.ended = { [weak self] in self?.outputEnded() }
    errors.receive = { [weak self] bytes in
      if let self { errorLines.feed(bytes).forEach(say) }
    }
    do throws(SystemError) {
      try thread.programGuard?.watch(id)
      registration = try thread.loop.register(process.raw, for: .readable, handler: self)
      try errors.watch()
    } catch {
      if let registration { thread.loop.unregister(registration) }
      Self.endAtOnce(id)
      thread.programGuard?.forget(id)
      throw error
    }
    thread.keep(self)
  }

  /// Whether its output is read. While it is not, it can write what its pipe holds, and then waits.
  var isRead = false {
    didSet { watchOutput() }
  }

  /// Ends it and the rest of its group, with SIGTERM, and with SIGKILL what has not ended after `grace`. What it writes
  /// meanwhile is thrown away, lest it wait for a reader. May be called again, with less grace.
  /// - Parameter grace: nil: that of its configuration.
  func end(within grace: Duration? = nil) {
    thread.loop.assertOnLoop()
    isDiscarding = true
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
      if phase == .over { finish() } else { terminate(within: grace) }
    }
  }

  private func outputEnded() {
    switch phase {
    case .running:
      // Most often on its way out. Nothing can come of it any more, so it is not left to run.
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

  /// Unless that is to happen sooner.
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
    kill(-id, SIGCONT)  // what is stopped hears nothing else
  }

  /// It has exited.
  func descriptorIsReady(_ readiness: EventLoop.Readiness) {
    // Not reaped yet, so that its number and its group's are nobody else's.
    if phase == .running { askGroupToEnd() }
    var status: CInt = 0
    let reaped = waitpid(id, &status, WNOHANG)
    guard reaped != 0 else { return }
    if let registration { thread.loop.unregister(registration) }
    registration = nil
    if ending == nil { ending = reaped == id ? ProgramEnding(status: status) : .unknown }
    phase = .leaderless
    if wasKilled { leaveDeadGroup() } else { killGroup(after: grace) }
    lookAtGroup()
  }

  /// The rest of it are not our children: the system tells only whether there are any. A number that is free again is
  /// given away once all others were, which takes longer than from one look to the next.
  private func lookAtGroup() {
    guard phase == .leaderless else { return }
    guard kill(-id, 0) == 0 else { return groupEnded() }
    _ = thread.loop.schedule(after: Self.lookPause) { [weak self] in self?.lookAtGroup() }
  }

  /// The killed are gone at once, but stay in the group for as long as whoever has to reap them does not.
  private func leaveDeadGroup() {
    setKillTimer(Self.reapTime) { $0.groupEnded() }
  }

  private func groupEnded() {
    thread.programGuard?.forget(id)
    if let killTimer { thread.loop.cancel(killTimer) }
    killTimer = nil
    errors.readWhatIsThere()
    errorLines.end().forEach(say)
    output.limitToWhatIsThere()
    phase = .over
    if output.isAtEnd { finish() } else { watchOutput() }
  }

  private func finish() {
    thread.loop.assertOnLoop()
    output.rest()
    let handler = handler
    self.handler = nil
    handler?.programEnded(ending ?? .unknown)
    thread.forget(self)
  }
}
