import Events
import Reactive
import StreamRuntime

/// The common part of polls of pages and of programs.
extension SourceSubscription where Machine == PollMachine {
  /// Continues the schedule of the last subscription, or of another process.
  func continueSchedule() {
    let stored = context.handover == nil && machine?.rests == false ? storedRest : nil
    if let stored { report(machine?.waits(stored.sentence)) }
    if let former = context.handover?.former() ?? stored.map({ SourceSchedule(rest: now + $0.duration) }) {
      machine?.resume(former, at: now)
    }
    thread.note(self, rests: machine?.rests == true)
  }

  /// Performs an action; calls `fetch` once the fetch is admitted.
  func perform(_ action: PollMachine.Action, fetch: @escaping @Sendable (Validators?) -> Void) {
    switch action {
    case .rest: break
    case .wait(let due):
      context.progress(.scheduled(after: due - now))
      wait(until: due)
    case .fetch(let validators):
      guard let admission = context.admission else { return fetch(validators) }
      admission { [weak self] isWanted in
        guard let self else { return }
        thread.loop.assertOnLoop()
        guard isLive else { return }
        if isWanted { return fetch(validators) }
        machine?.retract()
        machine?.withdraw(at: now)
        advance()
      }
    }
  }

  /// Takes the result of a fetch, and then gives its event.
  func conclude(
    _ answer: PollMachine.Answer, pause: RequestPause? = nil, event: (Validators?, BodyDigest?) -> EventBatch
  ) {
    let news = machine?.receive(answer, at: now, pauses: pause != nil)
    report(news)
    if let pause {
      report(machine?.pause(for: pause.duration, at: now, pause.sentence))
    }
    if case .failed = answer {} else { context.succeeded() }
    thread.note(self, rests: machine?.rests == true)
    if let machine { changed(machine.schedule) }
    if case .event(let validators, let digest, _) = answer { give(event(validators, digest)) }
    advance()
  }
}
