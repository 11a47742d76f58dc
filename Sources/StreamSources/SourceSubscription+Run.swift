import Reactive
import StreamRuntime

/// The common part of sources that begin a run again when it ends.
extension SourceMemory where Machine == RestartMachine {
  /// - Parameter run: what a run is, for reports.
  /// - Parameter isIdempotent: as in the machine.
  convenience init(retry: Backoff, run: String = "the response", isIdempotent: Bool = true) {
    self.init {
      RestartMachine(retry: retry, seed: UInt64.random(in: 0...UInt64.max), run: run, isIdempotent: isIdempotent)
    }
  }
}

extension SourceSubscription where Machine == RestartMachine {
  /// Continues the schedule of the last subscription, or of another process.
  func continueSchedule() {
    let stored = context.handover == nil && machine?.rests == false ? storedRest : nil
    if let stored { report(machine?.waits(stored.sentence)) }
    if let former = context.handover?.former() ?? stored.map({ SourceSchedule(rest: now + $0.duration) }) {
      machine?.resume(former, at: now)
    }
    thread.note(self, rests: machine?.rests == true)
  }

  /// Performs an action; `begin` begins a run.
  func perform(_ action: RestartMachine.Action, begin: () -> Void) {
    switch action {
    case .rest: break
    case .wait(let due): wait(until: due)
    case .begin: begin()
    }
  }

  /// Takes the end of a run.
  func conclude(_ failure: SourceFailure?) {
    report(machine?.ended(failure, at: now))
    thread.note(self, rests: failure?.retryAfter != nil || machine?.rests == true)
    if let machine { changed(machine.schedule) }
    advance()
  }
}
