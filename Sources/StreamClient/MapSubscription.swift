import Glibc
import MappedLog
import RSocket
import Reactive
import StreamProtocol
import StreamRuntime
import Synchronization

/// The function of the reader's thread.
private protocol MapReading: AnyObject, Sendable {
  func run()
}

/// The map of one subscriber: a thread that reads the region, and the requests of `MapLink`.
///
/// Members below "On the reader's thread" belong to that thread, which makes signals to the subscriber serial and delivers
/// them outside every lock. It begins with the first demand and ends with the subscription.
final class MapSubscription<Down: Subscriber>: Subscription, MapReading, @unchecked Sendable
where Down.Input == StreamEvent, Down.Failure == StreamError {
  private struct Beginning {
    /// The subscriber is still receiving its subscription: nothing may overtake that.
    var isStarting = true
    var hasBegun = false
  }

  private let news: MapNews
  private let link: MapLink
  private let beginning = Locked(Beginning())
  private let isCancelled = Atomic(false)

  // The reader's thread alone uses these.
  private var down: Down?
  private let onLag: LagPolicy
  private let policy: ReconnectPolicy?
  private var region: RegionReader?
  /// The next event's.
  private var position: UInt64 = 0
  /// The id of the newest event before it.
  private var lastID: UInt64?
  /// The events that were missed before it.
  private var gap: EventGap?
  /// Whether another region was requested.
  private var hasAsked = false

  init(_ request: RemoteRequest, _ down: Down) {
    let news = MapNews()
    (self.news, link) = (news, MapLink(request, news))
    (onLag, policy) = (request.options.onLag ?? .skip, request.reconnect)
    self.down = down
    guard case .after(let id) = request.options.from else { return }
    lastID = id
    news.withLock { $0.lastID = id }
  }

  // MARK: From any thread

  /// Sends the subscription to its subscriber.
  func start(_ subscriber: Down) {
    subscriber.receive(subscription: self)
    beginning.withLock { $0.isStarting = false }
    beginIfNeeded()
  }

  func request(_ more: Subscribers.Demand) {
    guard more > .none else { return }
    news.withLock { $0.demand += more }
    beginIfNeeded()
    news.announce(endsWaitForEvents: false)
    link.post { $0.grant() }
  }

  func cancel() {
    guard !isCancelled.exchange(true, ordering: .acquiringAndReleasing) else { return }
    news.announce()
    link.post { $0.close() }
    // The thread ends, and releases the subscriber; without one nothing uses it any more.
    if !beginning.withLock({ $0.hasBegun }) { down = nil }
  }

  private func beginIfNeeded() {
    let hasDemand = news.withLock { $0.demand > .none }
    let begins = beginning.withLock { state in
      guard hasDemand, !state.isStarting, !state.hasBegun, !isCancelled.load(ordering: .acquiring)
      else { return false }
      state.hasBegun = true
      return true
    }
    guard begins else { return }
    link.post { $0.open() }
    do throws(SystemError) {
      let reading: any MapReading = self  // `Down` need not be Sendable: the thread alone uses it
      try BackgroundThread.start(name: "map reader") { reading.run() }
    } catch {
      link.post { $0.close() }
      down.take()?.receive(completion: .failure(.cannotConnect(error)))
    }
  }

  // MARK: On the reader's thread

  private enum Step {
    case again
    /// Waits for the next event of the region, or for news.
    case rest
    case over(Subscribers.Completion<StreamError>)
  }

  func run() {
    while !isCancelled.load(ordering: .acquiring) {
      let number = news.number
      let step: Step
      do throws(RegionReader.Damage) {
        step = try self.step()
      } catch {
        step = .over(.failure(error.isTooLarge ? .invalid(error.sentence) : .malformed(error.sentence)))
      }
      switch step {
      case .again: break
      case .rest: rest(after: number)
      case .over(let completion):
        link.post { $0.close() }
        let ended = down.take()
        if !isCancelled.exchange(true, ordering: .acquiringAndReleasing) {
          ended?.receive(completion: completion)
        }
      }
    }
    (down, region) = (nil, nil)
  }

  private func rest(after number: UInt32) {
    guard news.withLock({ $0.demand > .none }), let region, region.state == .live else {
      return news.wait(after: number, milliseconds: 1000)
    }
    news.withLock { $0.waitsFor = region }
    // News between this line and the wait is noticed after the wait, which has a limit.
    if news.number == number { region.wait(at: position, milliseconds: hasAsked ? 20 : 1000) }
    news.withLock { $0.waitsFor = nil }
  }

  private func step() throws(RegionReader.Damage) -> Step {
    let (demand, opening, end) = news.withLock { ($0.demand, $0.opening, $0.end) }
    guard let region else {
      guard let opening else {
        return news.withLock { $0.refusal }.map { Step.over(.failure($0)) } ?? .rest
      }
      return use(
        opening, as: opening.reply.position,
        missed: opening.askedID == nil ? 0 : opening.reply.missed)
    }
    if let opening, opening.region.generation == region.generation {
      if opening.isSuccessor {
        return .over(
          .failure(.malformed("the daemon has passed a region again that it had replaced")))
      }
      // Another waiting page counts.
      return use(opening, as: position, missed: 0)
    }
    let state = region.state
    if demand > .none || region.end == position {
      switch try region.copy(from: position, atMost: max(1, demand.max ?? .max)) {
      case .events: return deliver(region, demand)
      case .again: return .again
      case .overtaken(let first, let end):
        return skip(to: onLag == .latest && end > first ? end - 1 : first)
      case .nothing: return follow(state, opening, end)
      }
    }
    return .rest
  }

  private func deliver(_ region: RegionReader, _ demand: Subscribers.Demand) -> Step {
    guard demand > .none, let down else { return .rest }
    if let policy, news.withLock({ $0.isRestored }) {
      news.withLock { $0.isRestored = false }
      policy.report(.resumed(missing: gap))
    }
    var more = Subscribers.Demand.none
    var count = 0
    while count < min(region.copiedCount, demand.max ?? .max),
      !isCancelled.load(ordering: .acquiring)
    {
      let (id, time, data) = region.copied(count)
      count += 1
      lastID = id
      more += down.receive(StreamEvent(id: id, time: time, data: data, gap: gap.take()))
    }
    position += UInt64(count)
    note(used: UInt64(count), delivered: count, more)
    if more > .none { link.post { $0.grant() } }
    return .again
  }

  private func note(used: UInt64, delivered: Int = 0, _ more: Subscribers.Demand = .none) {
    news.withLock { state in
      state.demand -= delivered
      state.demand += more
      state.usedCount += used
      (state.position, state.lastID) = (position, lastID)
    }
  }

  /// The reader was overtaken.
  private func skip(to first: UInt64) -> Step {
    let count = first - position
    if onLag == .fail { return .over(.failure(.lagged("lagged: \(count) events lost"))) }
    gap = gap.after(.events(count))
    position = first
    note(used: count)
    link.post { $0.grant() }
    return .again
  }

  /// There is nothing more in the region.
  private func follow(
    _ state: MapState?, _ opening: MapNews.Opening?, _ end: Subscribers.Completion<StreamError>?
  ) -> Step {
    guard let state, let region else { return .over(.failure(.malformed("the region is damaged"))) }
    if let opening { return change(to: opening, from: region) }
    if let refusal = news.withLock({ $0.refusal }) { return .over(.failure(refusal)) }
    if state != .replaced, let end { return .over(end) }
    if state == .replaced, !hasAsked {
      hasAsked = true
      news.withLock { $0.needsSuccessor = true }
      link.post { $0.open() }
    }
    return .rest
  }

  private func change(to opening: MapNews.Opening, from region: RegionReader) -> Step {
    let reply = opening.reply
    if opening.region.epoch == region.epoch {
      let missed = reply.position > position ? reply.position - position : 0
      return use(opening, as: max(position, reply.position), missed: missed)
    }
    guard lastID == nil || opening.askedID == lastID else {  // events were read after the request
      forget(opening)
      hasAsked = true
      link.post { $0.open() }
      return .again
    }
    return use(opening, as: reply.position, missed: opening.askedID == nil ? 0 : reply.missed)
  }

  /// Continues in another region.
  /// - Parameter missed: events before it; nil: unknown.
  private func use(_ opening: MapNews.Opening, as position: UInt64, missed: UInt64?) -> Step {
    if missed != 0 {
      if onLag == .fail, let missed {
        return .over(.failure(.lagged("lagged: \(missed) events lost")))
      }
      gap = gap.after(missed.map { .events($0) } ?? .unknown)
    }
    (region, self.position, hasAsked) = (opening.region, position, false)
    findID()
    forget(opening)
    news.withLock { ($0.epoch, $0.needsSuccessor) = (opening.region.epoch, false) }
    note(used: 0)
    return .again
  }

  private func forget(_ opening: MapNews.Opening) {
    news.withLock { if $0.opening?.region === opening.region { $0.opening = nil } }
  }

  /// Finds the id before the first event, so that another region continues there even if no event has come.
  private func findID() {
    guard lastID == nil, position > 0, let region,
      case .events? = try? region.copy(from: position - 1, atMost: 1)
    else { return }
    lastID = region.copied(0).id
  }
}

extension EventGap? {
  /// The sum of this one and another one after it.
  fileprivate func after(_ other: EventGap) -> EventGap {
    switch (self, other) {
    case (nil, _): other
    case (.events(let count)?, .events(let more)): .events(count &+ more)
    case (.unknown?, _), (_, .unknown): .unknown
    }
  }
}
