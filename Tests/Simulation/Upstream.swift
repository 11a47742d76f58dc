import Events
import Reactive
import StreamServer

/// The upstream of a stream in one process: it sends what the world tells it to, within the demand that it has.
final class Upstream: Publisher {
  typealias Output = EventBatch
  typealias Failure = StreamFailure

  private(set) var demand = Subscribers.Demand.none
  private var link: Link?
  var isSubscribed: Bool { link != nil }

  func receive<S: Subscriber>(subscriber: S) where S.Input == EventBatch, S.Failure == StreamFailure {
    let link = Link(self, AnySubscriber(subscriber))
    self.link = link
    demand = .none
    subscriber.receive(subscription: link)
  }

  func send(_ batch: EventBatch) {
    demand -= 1
    let more = link?.subscriber.receive(batch) ?? .none
    demand += more
  }

  func finish(_ completion: Subscribers.Completion<StreamFailure>) {
    let ended = link
    link = nil
    demand = .none
    ended?.subscriber.receive(completion: completion)
  }

  private final class Link: RetractableSubscription {
    weak var upstream: Upstream?
    let subscriber: AnySubscriber<EventBatch, StreamFailure>
    init(_ upstream: Upstream, _ subscriber: AnySubscriber<EventBatch, StreamFailure>) {
      (self.upstream, self.subscriber) = (upstream, subscriber)
    }
    private var isCurrent: Bool { upstream?.link === self }
    func retract() { if isCurrent { upstream?.demand = .none } }
    func request(_ demand: Subscribers.Demand) { if isCurrent { upstream?.demand += demand } }
    func cancel() {
      guard isCurrent else { return }
      upstream?.demand = .none
      upstream?.link = nil
    }
  }
}
