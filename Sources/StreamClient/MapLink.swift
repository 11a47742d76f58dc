import MappedLog
import RSocket
import Reactive
import StreamProtocol
import StreamRuntime

/// The requests of a map: one for a region, first and whenever another one is needed, and one whose credit is the reader's
/// demand on the source. Confined to the transport's loop.
final class MapLink: @unchecked Sendable {
  fileprivate let transport: ClientTransport
  private let news: MapNews
  /// Holds the connection; nil at the end.
  private var request: RemoteRequest?
  private var ask: MapRequest?
  private var demand: MapRequest?
  /// The credit that the demand's request was granted, and `usedCount` at its position.
  private var granted: UInt64 = 0
  private var usedBefore: UInt64 = 0
  private var isUnlimited = false
  private var askedID: UInt64?
  private var isForSuccessor = false
  private var hasRegion = false
  /// Since when the daemon has had too many maps under way.
  private var refusedSince: Duration?
  private var lossCount = 0
  /// Whether the connection is lost, which was reported.
  private var isInterrupted = false
  private var timer: TimerID?

  /// The time for which a reader without a region waits for others to read their replies. With a region it waits for any time.
  private static let patience = Duration.seconds(10)

  private static let unlimited: UInt64 = 0x7fff_ffff

  init(_ request: RemoteRequest, _ news: MapNews) {
    (self.request, self.news, transport) = (request, news, request.connection.transport)
  }

  /// Runs `body` on the loop.
  func post(_ body: @escaping @Sendable (MapLink) -> Void) {
    if transport.loop.isCurrent { body(self) } else { transport.loop.execute { body(self) } }
  }

  // MARK: On the loop

  /// Requests a region after the last event.
  func open() {
    transport.loop.assertOnLoop()
    guard request != nil, ask == nil, timer == nil else { return }
    ask = MapRequest(self, isForRegion: true)
    ask?.schedule()
  }

  /// Grants what the reader's demand exceeds the grants by.
  func grant() {
    transport.loop.assertOnLoop()
    demand?.schedule()
  }

  func close() {
    transport.loop.assertOnLoop()
    if let timer { transport.loop.cancel(timer) }
    timer = nil
    request = nil
    leaveRequests()
  }

  private func leaveRequests() {
    let former = [ask, demand]
    (ask, demand) = (nil, nil)
    for request in former { request?.cancel() }
  }

  /// - Throws: if the request cannot be made.
  fileprivate func signal(of request: MapRequest) throws(StreamError) -> RequestSignal {
    guard var remote = self.request, request === ask || request === demand else { return .nothing }
    if request === ask {
      (askedID, isForSuccessor) = news.withLock { ($0.lastID, $0.needsSuccessor) }
      if let askedID { remote.options.from = .after(id: askedID) }
      return .open(.response, initialRequest: 1, try remote.payload())
    }
    let credit = takeCredit()
    guard credit > 0 else { return .nothing }
    if let id = request.id { return .grant(id, credit) }
    var options = SubscribeOptions()
    (options.map, options.position) = (true, request.position)
    remote.data = options.json
    return .open(.stream, initialRequest: credit, try remote.payload())
  }

  private func takeCredit() -> UInt32 {
    guard !isUnlimited else { return 0 }
    let (demand, used) = news.withLock { ($0.demand, $0.usedCount) }
    guard let wanted = demand.max else {
      isUnlimited = true
      return UInt32(Self.unlimited)
    }
    let outstanding = granted - min(granted, used - usedBefore)
    let most = Self.unlimited - 1
    guard wanted > outstanding, outstanding < most else { return 0 }
    let credit = min(UInt64(wanted), most) - outstanding
    granted += credit
    return UInt32(credit)
  }

  // MARK: From the server

  fileprivate func receive(_ payload: Payload, for request: MapRequest) {
    guard request === ask else { return }
    ask = nil
    let passed = transport.takePassed()
    do throws(StreamError) {
      guard let reply = MapReply(json: payload.data) else {
        throw .malformed("the reply to a request for a map is malformed")
      }
      adopt(try region(of: reply, passed), reply)
    } catch {
      refuse(error)
    }
  }

  private func region(of reply: MapReply, _ passed: ReceivedDescriptors?) throws(StreamError)
    -> RegionReader
  {
    guard let passed, let region = passed.raw.first else {
      throw .malformed(
        passed == nil
          ? "the reply to a request for a map has no descriptor"
          : "this process has no room for the descriptors of a region")
    }
    guard reply.version == UInt64(MapLayout.version) else {
      throw .malformed("the layout of the region has another version")
    }
    do throws(RegionReader.Damage) {
      let page = passed.raw.count > 1 ? passed.raw[1] : nil
      return try RegionReader(
        region: region, page: page, byteCount: reply.size, generation: reply.generation,
        maximumEventBytes: transport.limits.maximumRequestBytes)
    } catch {
      throw .malformed(error.sentence)
    }
  }

  private func adopt(_ region: RegionReader, _ reply: MapReply) {
    hasRegion = true
    (lossCount, refusedSince) = (0, nil)
    let opening = MapNews.Opening(region: region, reply: reply, askedID: askedID, isSuccessor: isForSuccessor)
    let wasInterrupted = isInterrupted
    isInterrupted = false
    usedBefore = news.withLock { news in
      news.opening = opening
      (news.refusal, news.end) = (nil, nil)
      if wasInterrupted { news.isRestored = true }
      // The events that the reader has read after the reply's position use credit of this request.
      guard news.epoch == region.epoch, let position = news.position, position > reply.position
      else {
        return news.usedCount
      }
      return news.usedCount - min(news.usedCount, position - reply.position)
    }
    (granted, isUnlimited) = (0, false)
    // The new request comes first: the source sees no pause.
    let former = demand.take()
    demand = MapRequest(self, isForRegion: false, position: reply.position)
    demand?.schedule()
    former?.cancel()
    news.announce()
  }

  fileprivate func ended(_ completion: Subscribers.Completion<StreamError>, for ended: MapRequest) {
    guard ended === ask || ended === demand else { return }
    let isForRegion = ended === ask
    if isForRegion { ask = nil } else { demand = nil }
    guard case .failure(let error) = completion else {
      if isForRegion { return refuse(.malformed("the reply to a request for a map is malformed")) }
      return tell { $0.end = .finished }
    }
    if retries(after: error, isForRegion: isForRegion) { return }
    // Without its connection, or a way to restore it, the map has no other region, either.
    if isForRegion || error.isLoss(wasConnected: true, isRefused: false) {
      refuse(error)
    } else {
      tell { $0.end = completion }
    }
  }

  private func refuse(_ error: StreamError) { tell { $0.refusal = error } }

  private func tell(_ change: (inout MapNews.State) -> Void) {
    news.withLock { change(&$0) }
    news.announce()
  }

  /// - Returns: true if a region is requested again later.
  private func retries(after error: StreamError, isForRegion: Bool) -> Bool {
    guard let request, !transport.isClosed else { return false }
    if isForRegion, error.isForTooManyMaps {
      let now = EventLoop.monotonicTime
      if refusedSince == nil { refusedSince = now }
      guard hasRegion || now - (refusedSince ?? now) < Self.patience else { return false }
      openLater(after: .milliseconds(Int64.random(in: 50...150)))
      return true
    }
    guard let policy = request.reconnect,
      policy.retries(after: error, wasConnected: hasRegion || isInterrupted, isRefused: transport.isRefused)
    else { return false }
    leaveRequests()
    lossCount += 1
    openLater(after: policy.delay(afterLosses: lossCount, fraction: Double.random(in: 0..<1)))
    if !isInterrupted { policy.report(.lost(error)) }
    isInterrupted = true
    return true
  }

  private func openLater(after delay: Duration) {
    guard timer == nil else { return }
    timer = transport.loop.schedule(after: delay) { [weak self] in
      self?.timer = nil
      self?.open()
    }
  }
}

/// One request of a map.
final class MapRequest: TransportRequest, @unchecked Sendable {  // confined to the loop
  /// Released at the end.
  private var link: MapLink?
  let takesDescriptors: Bool
  /// The position at which the demand begins.
  let position: UInt64
  private(set) var id: StreamID?
  private var isCancelled = false
  private var isScheduled = false
  private var hasEnded = false
  private let transport: ClientTransport

  init(_ link: MapLink, isForRegion: Bool, position: UInt64 = 0) {
    (self.link, takesDescriptors, self.position, transport) = (
      link, isForRegion, position, link.transport
    )
  }

  func schedule() {
    guard !isScheduled, !hasEnded else { return }
    isScheduled = true
    transport.schedule(self)
  }

  func cancel() {
    isCancelled = true
    link = nil
    if id != nil { schedule() }
  }

  func readInbox() {}

  func takeSignal() throws(StreamError) -> RequestSignal {
    isScheduled = false
    guard !hasEnded else { return .nothing }
    if isCancelled {
      hasEnded = true
      return id.map { .cancel($0) } ?? .nothing
    }
    guard !takesDescriptors || id == nil else { return .nothing }
    return try link?.signal(of: self) ?? .nothing
  }

  func opened(_ id: StreamID) { self.id = id }

  func receive(_ payload: Payload) { link?.receive(payload, for: self) }

  func end(_ completion: Subscribers.Completion<StreamError>) {
    hasEnded = true
    let link = link.take()
    link?.ended(completion, for: self)
  }
}

extension StreamError {
  /// The server, or what it has passed, is not streamd's.
  static func malformed(_ sentence: String) -> Self { .failed(.connectionError, sentence) }

  /// Whether others come first: at a start and after a restart all maps are requested at once, more than the daemon has on
  /// their way.
  fileprivate var isForTooManyMaps: Bool {
    if case .rejected(_, let reason) = self { reason?.retry == .later } else { false }
  }
}
