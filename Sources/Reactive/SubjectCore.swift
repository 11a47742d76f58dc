/// What the subjects have in common: a shared log that is fed from outside, and the upstreams that feed it.
///
/// A subject holds a value at least until all subscribers with demand have been given it, also when one of them sends
/// from inside `receive`: all see the same order. What accumulates is bounded by the demand of who is slow, which with
/// unlimited demand is no bound; that is what such a subscriber asked for.
@usableFromInline
struct SubjectCore<Storage: ReplayStorage, Failure: Error> {
  @usableFromInline let log: SharedLog<Storage, Failure>
  private let upstreams: Upstreams

  /// - Parameter waitsForDemand: Upstreams are asked for values once the first subscriber has asked, not at once.
  init(storage: Storage, waitsForDemand: Bool) {
    let upstreams = Upstreams(areWanted: !waitsForDemand)
    self.upstreams = upstreams
    log = SharedLog(
      storage: storage, start: .fromFirstSubscriber, demand: .exact, slack: .max, wantsMore: { upstreams.request() })
  }

  func finish(_ completion: Subscribers.Completion<Failure>) {
    log.finish(completion)
    upstreams.cancel()
  }

  func send(subscription: any Subscription) { upstreams.add(subscription) }

  /// For the end of the subject.
  func cancelUpstreams() { upstreams.cancel() }

  @inlinable
  func attach<S: Subscriber>(
    _ subscriber: S, replay: Int, description: String, onLag: (@Sendable (UInt64) -> Void)? = nil
  ) where S.Input == Storage.Element, S.Failure == Failure {
    LogCursor(log, subscriber, owner: nil, description: description, onLag: onLag).begin(replay: replay)
  }
}
