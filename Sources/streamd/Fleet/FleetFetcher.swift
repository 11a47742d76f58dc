import Events
import Reactive
import StreamRuntime
import StreamServer
import StreamSources

/// Fetches the batches of a stream that hosts share from its feed: on the leader from its source and pipeline, or from
/// the clients of this host that publish to it.
///
/// It requests one batch at a time, and passes it on. Confined to the source thread.
final class FleetFetcher: @unchecked Sendable {
  private let loop: EventLoop
  private let publisher: AnyPublisher<EventBatch, StreamFailure>
  private let stream: FleetMember.Stream
  /// Whether another batch may be requested.
  private let hasRoom: () -> Bool
  private let take: (EventBatch) -> Void
  private var link: Link?
  private var isOn = false
  /// Whether a batch is requested from the source.
  private(set) var isAsked = false
  private var timer: TimerID?
  /// Since when the stream is stale, on the monotonic and on the wall clock; nil: it is not. Both are computed once, so
  /// that they still agree when a clock was set.
  var stale: (since: UInt64, wallTime: UInt64)?
  /// Whether the journal says that other hosts have another definition.
  var isDefinedOtherwise = false
  /// The schedule of the source on this host.
  var schedule = SourceSchedule()
  /// Whether a published batch is not stored yet.
  var isUnsettled = false

  /// - Parameters:
  ///   - hasRoom: called on the source thread, like `take`.
  ///   - take: receives a batch.
  init(
    _ publisher: AnyPublisher<EventBatch, StreamFailure>, of stream: FleetMember.Stream, on loop: EventLoop,
    hasRoom: @escaping () -> Bool, take: @escaping (EventBatch) -> Void
  ) {
    (self.publisher, self.stream, self.loop) = (publisher, stream, loop)
    (self.hasRoom, self.take) = (hasRoom, take)
  }

  var publishSource: PublishSource? { stream.publishSource }
  var status: SourceStatus { stream.status }

  /// Begins to ask for batches.
  func begin() {
    loop.assertOnLoop()
    isOn = true
    if let timer { loop.cancel(timer) }
    timer = nil
    if link == nil {
      let link = Link(fetcher: self)
      self.link = link
      publisher.subscribe(link)
    }
    advance()
  }

  /// Asks for the next batch, if there is none under way and there is room.
  func advance() {
    loop.assertOnLoop()
    guard isOn, !isAsked, let link, link.subscription != nil, hasRoom() else { return }
    isAsked = true
    link.subscription?.request(.max(1))
  }

  /// The source may not fetch now: takes back its demand.
  func wasRefused() {
    loop.assertOnLoop()
    guard isAsked, let subscription = link?.subscription as? any RetractableSubscription else { return }
    subscription.retract()
    isAsked = false
  }

  /// No host wants the next event now: takes back the source's demand, and ends the source after `linger`.
  func rest() {
    loop.assertOnLoop()
    guard isOn else { return }
    isOn = false
    wasRefused()
    timer = loop.schedule(after: stream.linger) { [weak self] in
      self?.timer = nil
      self?.end()
    }
  }

  /// Ends the source. `begin` subscribes to it again.
  func end() {
    loop.assertOnLoop()
    if let timer { loop.cancel(timer) }
    (isOn, isAsked, timer) = (false, false, nil)
    let link = link
    self.link = nil
    link?.subscription?.cancel()
  }

  private func receive(_ batch: EventBatch, from link: Link) {
    loop.assertOnLoop()
    guard link === self.link else { return }
    isAsked = false
    take(batch)
    advance()
  }

  /// One subscription. Signals may come on any thread.
  private final class Link: Subscriber, @unchecked Sendable {
    private let loop: EventLoop
    private weak var fetcher: FleetFetcher?
    /// Confined to the loop.
    var subscription: (any Subscription)?

    init(fetcher: FleetFetcher) { (self.fetcher, loop) = (fetcher, fetcher.loop) }

    func receive(subscription: any Subscription) {
      let carried = Carried(value: subscription)
      onLoop { link in
        guard link.fetcher?.link === link else { return carried.value.cancel() }
        link.subscription = carried.value
        link.fetcher?.advance()
      }
    }

    func receive(_ batch: EventBatch) -> Subscribers.Demand {
      onLoop { $0.fetcher?.receive(batch, from: $0) }
      return .none
    }

    func receive(completion: Subscribers.Completion<StreamFailure>) {}

    private func onLoop(_ body: @escaping @Sendable (Link) -> Void) {
      if loop.isCurrent { body(self) } else { loop.execute { body(self) } }
    }
  }

  /// A subscription may be used on any thread.
  private struct Carried: @unchecked Sendable {
    let value: any Subscription
  }
}
