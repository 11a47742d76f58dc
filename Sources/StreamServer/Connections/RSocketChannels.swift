import StreamProtocol
import Events
import RSocket
import Reactive

/// The numbers of a named publisher's values, and its credit for confirmations.
struct ChannelNumbering: Sendable, Equatable {
  var name: [UInt8]
  /// The number of the next value.
  var next: UInt64
  /// The credit for confirmations.
  var demand: UInt32
  /// The last confirmed number.
  var confirmed: UInt64

  /// The same numbers, with additional credit for confirmations.
  func granted(_ count: UInt32) -> Self {
    var more = self
    more.demand = Credit.sum(demand, count)
    return more
  }
}

/// One REQUEST_CHANNEL: its received values, and its credit.
final class RSocketChannel: @unchecked Sendable {  // confined to its connection's loop
  let id: StreamID
  /// The publication, with the values of the current read.
  let publication: Publication
  private(set) var isComplete = false
  /// Its bytes that wait in the publish source, and the bytes by which they exceed its share.
  var heldBytes = 0
  var excessBytes = 0
  /// The number of values that it may still send.
  private(set) var credit = 0
  private var receivedCount = 0
  /// For a named publisher: its next number, and its credit for confirmations.
  private(set) var named: ChannelNumbering?
  /// The bytes of its largest value since the last grant, and before it. The latter number decays.
  private var largestBytes = 0
  private var formerLargestBytes = 0

  init(id: StreamID, _ publication: Publication, _ named: ChannelNumbering?) {
    (self.id, self.publication, self.named) = (id, publication, named)
    if named != nil { receivedCount = 1 }  // its request carries no value
  }

  var stream: ServedStream { publication.stream }

  /// Receives values, up to the first one that the stream refuses.
  /// - Returns: the reason why it refuses that value; nil: all were received.
  func arrive(_ values: some Sequence<UnsafeRawBufferPointer>) -> RequestFailure? {
    let (before, most) = (publication.arrived.count, numbersLeft)
    var refusal: RequestFailure?
    var iterator = values.makeIterator()
    while let value = unsafe iterator.next() {
      guard publication.arrived.count - before < most else {
        let sentence = "the numbers of a publisher's values are below \(PublisherEntry.numberLimit)"
        refusal = RequestFailure(.invalidRequest, sentence)
        break
      }
      refusal = unsafe stream.refusal(of: value.bindMemory(to: UInt8.self).span)
      guard refusal == nil else { break }
      largestBytes = max(largestBytes, value.count)
      unsafe publication.arrived.append(value)
    }
    count(publication.arrived.count - before)
    return refusal
  }

  /// How many values its publisher can still number.
  var numbersLeft: Int {
    named.map { Int(PublisherEntry.numberLimit - min($0.next, PublisherEntry.numberLimit)) } ?? .max
  }

  /// Receives values that were examined.
  func arrive(_ values: EventBatch) {
    largestBytes = max(largestBytes, values.largestByteCount)
    publication.arrived += values
    count(values.count)
  }

  private func count(_ count: Int) {
    credit -= receivedCount > 0 ? count : max(0, count - 1)  // the request carries the first value
    receivedCount += count
    named?.next += UInt64(count)
  }

  /// Why the next value is refused.
  func refusal(_ failure: RequestFailure) -> RequestFailure {
    receivedCount == 0 ? failure : RequestFailure(failure.reason, "value \(nextNumber): \(failure.sentence)")
  }

  /// The number of the value that was refused, or of the next one: in the numbers of a named publisher, or from the
  /// request on.
  var nextNumber: UInt64 { named?.next ?? UInt64(receivedCount + 1) }

  /// Adds a named publisher's credit for confirmations.
  func grant(_ count: UInt32) { named = named?.granted(count) }

  /// - Returns: the number to confirm now; nil: none.
  func takeConfirmation(_ standing: PublishSource.PublishStatus) -> UInt64? {
    guard let committed = standing.committedNumber, let named, named.demand > 0, committed > named.confirmed else {
      return nil
    }
    if named.demand != Credit.unlimited { self.named?.demand -= 1 }
    self.named?.confirmed = committed
    return committed
  }

  /// The publisher has sent COMPLETE.
  func complete() { isComplete = true }

  /// Restores the credit and the numbering of a channel from another process.
  func restore(credit: Int, _ named: ChannelNumbering?) {
    (self.credit, self.named) = (credit, named)
    receivedCount = max(receivedCount, PublishWindow.firstValues)
  }

  /// Passes on the values of the current read.
  func passOn() -> PublishSource.PublishStatus { publication.passOn(isComplete: isComplete) }

  /// The grant due now: none, or at least half of the window, so that a fast publisher continues with the other half
  /// while the grant is in flight.
  func takeGrant(_ standing: PublishSource.PublishStatus) -> Int {
    let most = receivedCount < PublishWindow.firstValues / 2 ? PublishWindow.firstValues : PublishWindow.mostValues
    let window = min(most, standing.window.valueCount(largestBytes: max(largestBytes, formerLargestBytes)))
    let free = window - standing.heldCount - credit
    guard free > 0, free * 2 >= window else { return 0 }
    formerLargestBytes = max(largestBytes, formerLargestBytes / 2)
    largestBytes = 0
    credit += free
    return free
  }
}

/// The publishing requests of one connection.
///
/// The values of one read are gathered, and passed to each publish source as one batch.
final class RSocketChannels: @unchecked Sendable {  // confined to its connection's loop
  /// The speaker that owns this value.
  private let speaker: RSocketSpeaker
  private var channels: [StreamID: RSocketChannel] = [:]
  /// The channels with values of the current read.
  private var arriving: [RSocketChannel] = []
  /// The fire-and-forget values of the current read, by stream.
  private var unconfirmed: [(stream: ServedStream, publishSource: PublishSource, values: EventBatch)] = []
  /// The value that is examined in slices. No other input is processed before it.
  private var examined: LargeValue?
  /// Bytes of values that wait for space in their streams.
  private(set) var heldBytes = 0
  /// The bytes by which these exceed the shares of their channels.
  private(set) var excessBytes = 0

  init(_ speaker: RSocketSpeaker) { self.speaker = speaker }

  private var connection: Connection { speaker.connection }
  private var worker: Worker { connection.worker }

  /// The streams of its channels.
  var streamNames: [String] { channels.values.map(\.stream.name) }

  // MARK: Input

  /// Receives a REQUEST_CHANNEL or REQUEST_FNF. The latter has no reply, but a refusal is counted and reported.
  ///
  /// - Parameters:
  ///   - demand: the initial request-n, used only for a named publisher.
  ///   - publisher: the entry of a named publisher.
  func request(
    _ id: StreamID, _ kind: RequestKind, to stream: ServedStream, _ data: [UInt8], isComplete: Bool, demand: UInt32,
    publisher: PublisherEntry?
  ) {
    worker.loop.assertOnLoop()
    let source: PublishSource
    do throws(PublishingObstacle) {
      source = try connection.publishSource(of: stream)
    } catch {
      return refuse(id, kind, Connection.Refusal(stream.name, connection.failure(error, of: stream)))
    }
    guard kind == .channel else {
      if beginExamining(data, id, to: stream, source, isUnconfirmed: true) { return }
      if let failure = stream.refusal(of: data.span) { return refuseUnconfirmed(id, to: stream, failure) }
      return fireAndForget(EventBatch(of: data), to: stream, source)
    }
    worker.trace(connection.identity, stream: stream.name, "publishes")
    if let publisher {
      begin(id, to: stream, source, publisher, data, isComplete: isComplete, demand: demand)
    } else {
      begin(id, to: stream, source, data, isComplete: isComplete)
    }
  }

  private func refuseUnconfirmed(_ id: StreamID, to stream: ServedStream, _ failure: RequestFailure) {
    refuse(id, .fireAndForget, Connection.Refusal(stream.name, failure))
  }

  private func refuse(_ id: StreamID, _ kind: RequestKind, _ refusal: Connection.Refusal) {
    if kind == .fireAndForget { worker.counters.droppedValues.add(1, ordering: .relaxed) }
    connection.refuse(RequestID(id), refusal)
  }

  /// Ends a channel, or one that cannot begin, with the reason.
  private func end(_ id: StreamID, _ obstacle: PublishingObstacle, of stream: ServedStream) {
    let failure = connection.failure(obstacle, of: stream)
    if obstacle.isRefusal {
      connection.refuse(RequestID(id), .init(stream.name, failure))
    } else {
      speaker.sendFailure(RequestID(id), failure)
    }
  }

  /// A publisher without a name begins. The data of its request is the first value.
  private func begin(
    _ id: StreamID, to stream: ServedStream, _ publishSource: PublishSource, _ data: [UInt8], isComplete: Bool
  ) {
    if data.count < LargeValue.leastByteCount, let failure = stream.refusal(of: data.span) {
      return speaker.sendFailure(RequestID(id), failure)
    }
    guard join(id, to: stream, publishSource) != nil else { return }
    receive(id, data, isComplete: isComplete)
  }

  /// A named publisher begins or reconnects. The first confirmation has its last stored number and its next one.
  private func begin(
    _ id: StreamID, to stream: ServedStream, _ publishSource: PublishSource, _ publisher: PublisherEntry,
    _ data: [UInt8],
    isComplete: Bool, demand: UInt32
  ) {
    guard data.isEmpty else {
      return speaker.sendFailure(
        RequestID(id), .init(.invalidRequest, "the request of a named publisher must have no data"))
    }
    let numbering = ChannelNumbering(
      name: publisher.name, next: publisher.firstNumber, demand: demand, confirmed: .max)
    guard let channel = join(id, to: stream, publishSource, numbering) else { return }
    arriving.append(channel)
    if isComplete { channel.complete() }
  }

  /// - Parameter numbering: the numbers of a named publisher, from its request.
  private func join(
    _ id: StreamID, to stream: ServedStream, _ publishSource: PublishSource, _ numbering: ChannelNumbering? = nil,
    isRestored: Bool = false, unsettled: UnsettledValues = .init()
  ) -> RSocketChannel? {
    let wake: @Sendable () -> Void = { [self, worker] in
      worker.loop.execute {
        publishSource.deliver()
        self.update(id)
      }
    }
    let queue: PublishQueue
    var named = numbering
    do throws(PublishingObstacle) {
      if let numbering {
        let key = PublisherKey(numbering.name, of: connection.share.account.user)
        let (joined, committed, next, isKnown) = try publishSource.join(
          key, firstNumber: numbering.next, isRestored: isRestored, unsettled: unsettled, wake: wake)
        queue = joined
        named?.next = next
        if !isRestored {
          let confirmation = PublishConfirmation(confirmed: isKnown ? committed : 0, next: next)
          speaker.machine.sendPayload(id, Payload(data: confirmation.bytes))
          named?.confirmed = committed
          if numbering.demand != Credit.unlimited { named?.demand -= 1 }
        }
      } else if let joined = publishSource.join(unsettled: unsettled, wake: wake) {
        queue = joined
      } else {
        throw .noRoom
      }
    } catch {
      end(id, error, of: stream)
      return nil
    }
    let channel = RSocketChannel(id: id, Publication(stream, publishSource, queue), named)
    channels[id] = channel
    return channel
  }

  /// Receives a named publisher's credit for confirmations.
  func grant(_ id: StreamID, _ count: UInt32) {
    worker.loop.assertOnLoop()
    guard let channel = channels[id], channel.named != nil else { return }
    channel.grant(count)
    if channel.publication.arrived.isEmpty { answer(channel, channel.publication.refresh()) }
  }

  /// A value exceeded the limit of reassembly, and was dropped; earlier values are in the stream.
  func refuseLargeValue(_ id: StreamID) {
    worker.loop.assertOnLoop()
    guard let channel = channels[id] else { return speaker.machine.end(id) }
    let sentence =
      "value \(channel.nextNumber): its fragments exceed the limit of \(speaker.machine.limits.maximumRequestBytes) bytes "
      + "for incomplete requests"
    speaker.sendFailure(RequestID(id), .init(.tooLarge, sentence))
    leave(id)
  }

  /// Receives a value within the credit, as the next overload does. A large one is examined in slices.
  func receive(_ id: StreamID, _ value: [UInt8], isComplete: Bool) {
    if let channel = channels[id], channel.numbersLeft > 0,
      beginExamining(
        value, id, to: channel.stream, channel.publication.source, isUnconfirmed: false, isComplete: isComplete)
    {
      return
    }
    unsafe value.withUnsafeBytes { unsafe receive(id, CollectionOfOne($0), isComplete: isComplete) }
  }

  /// Receives values within the credit, or none with a separate COMPLETE. Values after one that is refused are dropped.
  func receive(_ id: StreamID, _ values: some Sequence<UnsafeRawBufferPointer>, isComplete: Bool) {
    worker.loop.assertOnLoop()
    guard let channel = channels[id] else { return }
    if channel.publication.arrived.isEmpty, !channel.isComplete { arriving.append(channel) }
    if let failure = channel.arrive(values) {
      speaker.sendFailure(RequestID(id), channel.refusal(failure))
      return leave(id)
    }
    if isComplete { channel.complete() }
  }

  private func fireAndForget(_ values: EventBatch, to stream: ServedStream, _ publishSource: PublishSource) {
    worker.loop.assertOnLoop()
    if unconfirmed.last?.stream !== stream { unconfirmed.append((stream, publishSource, [])) }
    unconfirmed[unconfirmed.count - 1].values += values
  }

  // MARK: Large values

  /// Whether a value is examined in slices: `examine(until:)` has to be called, before any other input is processed.
  var isExamining: Bool { examined != nil }
  /// The bytes of that value.
  var examinedBytes: Int { examined?.byteCount ?? 0 }

  /// - Returns: false for a value that is examined as one piece.
  private func beginExamining(
    _ data: [UInt8], _ id: StreamID, to stream: ServedStream, _ source: PublishSource, isUnconfirmed: Bool,
    isComplete: Bool = true
  ) -> Bool {
    examined = LargeValue(data, id, to: stream, source, isUnconfirmed: isUnconfirmed, isComplete: isComplete)
    if isExamining { stream.use?.hold() }
    return isExamining
  }

  /// Examines a part of a large value, and receives it after its last part.
  /// - Parameter deadline: in nanoseconds of the monotonic clock.
  func examine(until deadline: UInt64) {
    worker.loop.assertOnLoop()
    guard examined?.examine(until: deadline) == true, var value = examined else { return }
    examined = nil
    defer { value.stream.use?.release() }
    let id = value.id
    if let source = value.unconfirmedSource {
      do throws(PublishingObstacle) {
        // The stream may have changed.
        guard try connection.publishSource(of: value.stream) === source else { throw .acceptsNoMoreValues }
      } catch {
        return refuse(id, .fireAndForget, .init(value.stream.name, connection.failure(error, of: value.stream)))
      }
      if value.isRefused { return refuseUnconfirmed(id, to: value.stream, value.stream.refuseMalformed()) }
      return fireAndForget(value.takeBatch(), to: value.stream, source)
    }
    guard let channel = channels[id] else { return }
    if channel.publication.arrived.isEmpty, !channel.isComplete { arriving.append(channel) }
    if value.isRefused {
      speaker.sendFailure(RequestID(id), channel.refusal(value.stream.refuseMalformed()))
      return leave(id)
    }
    channel.arrive(value.takeBatch())
    if value.isComplete { channel.complete() }
  }

  // MARK: Progress

  /// Ends a read: passes on its values, and grants credit for the free space.
  func passOn() {
    worker.loop.assertOnLoop()
    guard !arriving.isEmpty || !unconfirmed.isEmpty else { return }
    for channel in arriving where channels[channel.id] === channel {
      answer(channel, channel.passOn())
    }
    arriving.removeAll(keepingCapacity: true)
    for (stream, publishSource, values) in unconfirmed {
      let taken = publishSource.takeUnconfirmed(values) { [worker] in worker.loop.execute { publishSource.deliver() } }
      guard taken < values.count else { continue }
      worker.counters.droppedValues.add(UInt64(values.count - taken), ordering: .relaxed)
      worker.report(.valuesDropped(connection.identity, stream: stream.name, count: values.count - taken))
    }
    unconfirmed = []
  }

  /// Updates the channel, if it still exists, after a change in its stream.
  private func update(_ id: StreamID) {
    guard let channel = channels[id] else { return }
    answer(channel, channel.publication.refresh())
    connection.settle()
    _ = connection.flush()
  }

  private func answer(_ channel: RSocketChannel, _ standing: PublishSource.PublishStatus) {
    heldBytes += standing.heldBytes - channel.heldBytes
    channel.heldBytes = standing.heldBytes
    excessBytes += standing.excessBytes - channel.excessBytes
    channel.excessBytes = standing.excessBytes
    if let number = channel.takeConfirmation(standing) {
      let data = PublishConfirmation(confirmed: number).bytes
      speaker.machine.sendPayload(channel.id, Payload(data: data))
    }
    if let obstacle = channel.publication.obstacle {
      end(channel.id, obstacle, of: channel.stream)
      forget(channel)
    } else if standing.isDone {
      speaker.machine.sendComplete(channel.id)
      forget(channel)
    } else if !channel.isComplete {
      let grant = channel.takeGrant(standing)
      if grant > 0 { speaker.machine.sendRequestN(channel.id, UInt32(grant)) }
    }
  }

  // MARK: Changes of streams

  /// Ends the channels whose stream was removed, accepts no values any more, or does not admit this client.
  func reapplyAccess() {
    worker.loop.assertOnLoop()
    for id in ids {
      guard let channel = channels[id], let obstacle = channel.publication.obstacle(for: connection) else { continue }
      end(id, obstacle, of: channel.stream)
      forget(channel)
    }
  }

  // MARK: Handover

  /// The channels that another process continues, with their values that wait for space. One of which values may still be on
  /// their way into the stream ends.
  func save() -> [SavedConnection.Channel] {
    worker.loop.assertOnLoop()
    return ids.compactMap { id in
      guard let channel = channels[id] else { return nil }
      let (values, unsettled, continues) = channel.publication.withdraw()
      guard continues else {
        speaker.sendFailure(RequestID(id), .notStored)
        forget(channel)
        return nil
      }
      var saved = SavedConnection.Channel(
        id: id, stream: channel.stream.name, credit: channel.credit, named: channel.named)
      if !values.isEmpty || unsettled.count > 0 || channel.isComplete {
        saved.held = .init(values: values.map { Array($0) }, unsettled: unsettled, isComplete: channel.isComplete)
      }
      return saved
    }
  }

  /// Restores a channel.
  func restore(_ saved: SavedConnection.Channel, to stream: ServedStream) {
    worker.loop.assertOnLoop()
    let publishSource: PublishSource
    do throws(PublishingObstacle) {
      publishSource = try connection.publishSource(of: stream)
    } catch {
      return end(saved.id, error == .acceptsNoValues ? .acceptsNoMoreValues : error, of: stream)
    }
    let held = saved.held ?? .init()
    var first = saved.named
    first?.next -= UInt64(held.values.count + held.unsettled.count)
    guard let channel = join(saved.id, to: stream, publishSource, first, isRestored: true, unsettled: held.unsettled)
    else { return }
    let refused = held.values.lazy.enumerated().compactMap { index, value in
      stream.refusal(of: value.span).map { (index, $0) }
    }
    if let (index, failure) = refused.first {
      // The values before it stay, as if the publisher sent the refused one now.
      channel.publication.arrived = EventBatch(Array(held.values[..<index]))
      _ = channel.passOn()
      speaker.sendFailure(
        RequestID(saved.id), .init(failure.reason, "a value that was received before a restart: \(failure.sentence)"))
      return forget(channel)
    }
    channel.restore(credit: saved.credit, saved.named)
    if held.isComplete { channel.complete() }
    channel.publication.arrived = EventBatch(held.values)
    answer(channel, channel.passOn())
  }

  // MARK: The end

  /// Ends a channel, by either side. Its values stay.
  func leave(_ id: StreamID) {
    worker.loop.assertOnLoop()
    guard let channel = channels[id] else { return }
    if !channel.publication.arrived.isEmpty { _ = channel.passOn() }
    forget(channel)
  }

  /// Ends all channels with the connection.
  func leaveAll() {
    worker.loop.assertOnLoop()
    examined?.stream.use?.release()
    examined = nil
    passOn()
    for channel in channels.values { channel.publication.leave() }
    channels = [:]
    (heldBytes, excessBytes) = (0, 0)
  }

  /// The ids of the channels without a reply, sorted.
  var ids: [StreamID] { channels.keys.sorted() }

  private func forget(_ channel: RSocketChannel) {
    channels[channel.id] = nil
    heldBytes -= channel.heldBytes
    excessBytes -= channel.excessBytes
    channel.publication.leave()
  }
}
