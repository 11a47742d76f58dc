import Events
import Reactive
import StreamRuntime

/// What a poll of a page and one of a program have in common, besides their machine: the parts of the daemon that their
/// subscriptions ask and tell.
struct PollLinks: Sendable {
  /// nil: each subscription treats its first event as new.
  let resumption: SourceResumption?
  /// nil: demand is enough.
  let admission: FetchAdmission?
  /// nil: there is no other process.
  let handover: SourceHandover?
  let succeeded: @Sendable () -> Void
  let progress: @Sendable (SourceProgress) -> Void
}

extension SourceSubscription where Machine == PollMachine {
  /// Continues the schedule of another process.
  func continueSchedule(_ links: PollLinks) {
    guard let handover = links.handover else { return }
    machine?.resume(handover.former(), at: now)
    thread.note(self, rests: machine?.rests == true)
  }

  /// Performs an action; calls `fetch` once the fetch is admitted.
  func perform(_ action: PollMachine.Action, _ links: PollLinks, fetch: @escaping @Sendable (Validators?) -> Void) {
    switch action {
    case .rest: break
    case .wait(let due):
      links.progress(.scheduled(after: due - now))
      wait(until: due)
    case .fetch(let validators):
      guard let admission = links.admission else { return fetch(validators) }
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
  func conclude(_ answer: PollMachine.Answer, _ links: PollLinks, event: (Validators?, BodyDigest?) -> EventBatch) {
    let report = machine?.receive(answer, at: now)
    tell(report)
    if case .failing = report {} else { links.succeeded() }
    let asksForRest = if case .failed(let failure) = answer { failure.retryAfter != nil } else { false }
    thread.note(self, rests: asksForRest)
    if let handover = links.handover, let machine { handover.changed(machine.schedule) }
    if case .event(let validators, let digest) = answer { give(event(validators, digest)) }
    advance()
  }
}
