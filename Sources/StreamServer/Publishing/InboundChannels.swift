import StreamProtocol
import Events
import RSocket
import Reactive

/// Where a named publisher stands.
struct InboundNumbering: Sendable, Equatable {
  var name: [UInt8]
  /// Of the next value that comes.
  var next: UInt64
  /// How many times it may still be told.
  var demand: UInt32
  /// Up to which value it was told that all is in the stream.
  var confirmed: UInt64

  /// With so many more times that it may be told.
  func granted(_ count: UInt32) -> Self {
    var more = self
    more.demand = Credit.sum(demand, count)
    return more
  }
}

/// One REQUEST_CHANNEL: what it has brought, and how much more it may bring.
final class InboundChannel: @unchecked Sendable {  // its connection's loop alone looks inside
  let id: StreamID
  let stream: ServedStream
  let publishSource: PublishSource
  let queue: PublishQueue
  /// What the read under way has brought.
  private(set) var arrived = EventBatch()
  private(set) var isComplete = false
  /// Bytes of it that wait in the publish source, and by how many these are more than its share of the stream's room.
  var heldBytes = 0
  var excessBytes = 0
  /// What it may still send.
  private(set) var credit = 0
  private var receivedCount = 0
  /// Of a named publisher: what its next value has for a number, and how much it wants to hear of what is in the stream.
  private(set) var named: InboundNumbering?
  /// Its largest value since the last grant, and before; the latter fades.
  private var largestBytes = 0
  private var formerLargestBytes = 0

  init(
    id: StreamID, stream: ServedStream, publishSource: PublishSource, queue: PublishQueue, _ named: InboundNumbering?
  ) {
    self.id = id
    self.named = named
    if named != nil { receivedCount = 1 }  // the request itself brings none
    self.stream = stream
    self.publishSource = publishSource
    self.queue = queue
  }

  /// Takes values in, up to the first that has more than `limit` bytes.
  /// - Returns: the bytes of that one; nil: all are in.
  func arrive(_ values: some Sequence<UnsafeRawBufferPointer>, limit: Int) -> Int? {
    let before = arrived.count
    var tooLarge: Int?
    var iterator = values.makeIterator()
    while let value = unsafe iterator.next() {
      guard value.count <= limit else {
        tooLarge = value.count
        break
      }
      largestBytes = max(largestBytes, value.count)
      unsafe arrived.append(value)
    }
    let count = arrived.count - before
    credit -= receivedCount > 0 ? count : max(0, count - 1)  // the request itself brings the first one
    receivedCount += count
    named?.next += UInt64(count)
    return tooLarge
  }

  /// The number of the value that was too large, or would come next: by the publisher's own count, or by the request's.
  var nextNumber: UInt64 { named?.next ?? UInt64(receivedCount + 1) }

  /// A named publisher wants to hear so many times more of what is in the stream.
  func grant(_ count: UInt32) { named = named?.granted(count) }

  /// - Returns: up to which value all is in the stream, when the publisher is to be told.
  func takeConfirmation(_ standing: PublishSource.PublishStatus) -> UInt64? {
    guard let committed = standing.committedNumber, let named, named.demand > 0, committed > named.confirmed else {
      return nil
    }
    if named.demand != Credit.unlimited { self.named?.demand -= 1 }
    self.named?.confirmed = committed
    return committed
  }

  /// There are no more values.
  func complete() { isComplete = true }

  /// It has begun in another process, and may still send so many.
  func restore(credit: Int) {
    self.credit = credit
    receivedCount = max(receivedCount, PublishWindow.firstValues)
  }

  /// Hands over what has arrived.
  func passOn() -> PublishSource.PublishStatus {
    var values = EventBatch()
    swap(&values, &arrived)
    return publishSource.take(values, isComplete: isComplete, from: queue)
  }

  /// What to grant now: nothing, or half of the window at least, so that a fast publisher has the other half to continue
  /// with while the grant is on its way.
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

/// What one connection publishes.
///
/// What a read of the socket brings is gathered, and handed to each publish source in one go.
final class InboundChannels: @unchecked Sendable {  // its connection's loop alone looks inside
  /// The connection that owns this, until its end.
  private let connection: RSocketConnection
  private let worker: Worker
  private var channels: [StreamID: InboundChannel] = [:]
  /// Those of which the read under way has brought something.
  private var arriving: [InboundChannel] = []
  /// What fire-and-forget has brought in the read under way, by stream.
  private var unconfirmed: [(stream: ServedStream, publishSource: PublishSource, values: EventBatch)] = []
  /// Bytes of values that wait for room in their streams.
  private(set) var heldBytes = 0
  /// By how many bytes these are more than their requests' shares.
  private(set) var excessBytes = 0

  init(connection: RSocketConnection, worker: Worker) {
    self.connection = connection
    self.worker = worker
  }

  // MARK: Input

  /// A REQUEST_CHANNEL or REQUEST_FNF. The latter is never answered, but counted and reported when it is refused.
  ///
  /// - Parameters:
  ///   - demand: the request's own; only a named publisher hears anything.
  ///   - publisher: of a named one's channel.
  func request(
    _ id: StreamID, _ kind: RequestKind, to stream: ServedStream, _ data: [UInt8], isComplete: Bool, demand: UInt32,
    publisher: PublisherEntry?
  ) {
    worker.loop.assertOnLoop()
    var refusal: Connection.Refusal?
    if stream.publishSource == nil {
      refusal = .init(stream.name, .rejected("\"\(stream.name)\" does not accept values"))
    } else if !connection.admits(stream.configuration.write) {
      refusal = connection.mayNotWrite(stream)
    } else if kind == .fireAndForget, let sentence = stream.valueError(ofSize: data.count) {
      refusal = .init(stream.name, .rejected(sentence))
    }
    if let publishSource = stream.publishSource, refusal == nil {
      if kind == .channel {
        worker.trace(connection.identity, stream: stream.name, "publishes")
        if let publisher {
          return begin(id, to: stream, publishSource, publisher, data, isComplete: isComplete, demand: demand)
        }
        begin(id, to: stream, publishSource, data, isComplete: isComplete)
      } else {
        fireAndForget(data, to: stream, publishSource)
      }
    } else {
      if kind == .fireAndForget { worker.counters.droppedValues.add(1, ordering: .relaxed) }
      if let refusal { connection.refuse(RequestID(id), refusal) }
    }
  }

  /// Its data is the first value.
  private func begin(
    _ id: StreamID, to stream: ServedStream, _ publishSource: PublishSource, _ data: [UInt8], isComplete: Bool
  ) {
    if let sentence = stream.valueError(ofSize: data.count) {
      return connection.machine.sendError(id, .invalid, sentence)
    }
    guard join(id, to: stream, publishSource) != nil else { return }
    unsafe data.withUnsafeBytes { unsafe receive(id, CollectionOfOne($0), isComplete: isComplete) }
  }

  /// A named publisher begins, or is back. It hears first what the stream has of it, and where to continue.
  private func begin(
    _ id: StreamID, to stream: ServedStream, _ publishSource: PublishSource, _ publisher: PublisherEntry,
    _ data: [UInt8],
    isComplete: Bool, demand: UInt32
  ) {
    guard data.isEmpty else {
      return connection.machine.sendError(id, .invalid, "the request of a named publisher must have no data")
    }
    let numbering = InboundNumbering(
      name: publisher.name, next: publisher.firstNumber, demand: demand, confirmed: .max)
    guard let channel = join(id, to: stream, publishSource, numbering) else { return }
    arriving.append(channel)
    if isComplete { channel.complete() }
  }

  /// - Parameter numbering: of a named publisher, as it says itself.
  private func join(
    _ id: StreamID, to stream: ServedStream, _ publishSource: PublishSource, _ numbering: InboundNumbering? = nil,
    isRestored: Bool = false
  ) -> InboundChannel? {
    let wake: @Sendable () -> Void = { [self, worker] in
      worker.loop.execute {
        publishSource.deliver()
        self.update(id)
      }
    }
    let queue: PublishQueue
    var named = numbering
    do throws(PublishSource.Obstacle) {
      if let numbering {
        let key = PublisherKey(numbering.name, of: connection.identity.credentials)
        let (joined, committed, next, isKnown) = try publishSource.join(
          key, firstNumber: numbering.next, isRestored: isRestored, wake: wake)
        queue = joined
        named?.next = next
        if !isRestored {
          let confirmation = PublishConfirmation(confirmed: isKnown ? committed : 0, next: next)
          connection.machine.sendPayload(id, Payload(data: confirmation.bytes))
          named?.confirmed = committed
          if numbering.demand != Credit.unlimited { named?.demand -= 1 }
        }
      } else if let joined = publishSource.join(wake: wake) {
        queue = joined
      } else {
        throw .noRoom
      }
    } catch {
      let name = stream.name
      switch error {
      case .noRoom:
        connection.refuse(
          RequestID(id), .init(name, .rejected("\"\(name)\" has no space: values of other publishers wait in it")))
      case .tooMany(let count, let free):
        let limit = "\(free) of \(PublisherMarks.capacity) left"
        connection.refuse(
          RequestID(id),
          .init(
            name, .rejected("\(connection.identity.user) has \(count) named publishers of \"\(name)\", with \(limit)")))
      case .inUse:
        connection.machine.sendError(
          id, .canceled, "another publisher to \"\(name)\" uses this name, or the stream is being changed")
      }
      return nil
    }
    let channel = InboundChannel(id: id, stream: stream, publishSource: publishSource, queue: queue, named)
    channels[id] = channel
    return channel
  }

  /// A named publisher wants to hear more often of what is in the stream.
  func grant(_ id: StreamID, _ count: UInt32) {
    worker.loop.assertOnLoop()
    guard let channel = channels[id], channel.named != nil else { return }
    channel.grant(count)
    if channel.arrived.isEmpty { answer(channel, channel.publishSource.status(of: channel.queue)) }
  }

  /// A value was over the limit of all that is half assembled, and is dropped; those before it are in the stream.
  func refuseLargeValue(_ id: StreamID) {
    worker.loop.assertOnLoop()
    guard let channel = channels[id] else { return connection.machine.end(id) }
    connection.machine.sendError(
      id, .invalid,
      "value \(channel.nextNumber): its fragments exceed the limit of \(worker.limits.requestBytes) bytes "
        + "for incomplete requests")
    leave(id)
  }

  /// Values within the credit, or none: a COMPLETE by itself. Those behind one that is too large go with it.
  func receive(_ id: StreamID, _ values: some Sequence<UnsafeRawBufferPointer>, isComplete: Bool) {
    worker.loop.assertOnLoop()
    guard let channel = channels[id] else { return }
    if channel.arrived.isEmpty, !channel.isComplete { arriving.append(channel) }
    let stream = channel.stream
    if let byteCount = channel.arrive(values, limit: stream.maximumEventBytes) {
      let sentence = stream.valueError(ofSize: byteCount) ?? "it is too large"
      connection.machine.sendError(id, .invalid, "value \(channel.nextNumber): \(sentence)")
      return leave(id)
    }
    if isComplete { channel.complete() }
  }

  private func fireAndForget(_ data: [UInt8], to stream: ServedStream, _ publishSource: PublishSource) {
    worker.loop.assertOnLoop()
    if unconfirmed.last?.stream !== stream { unconfirmed.append((stream, publishSource, [])) }
    unconfirmed[unconfirmed.count - 1].values.append(data)
  }

  // MARK: What becomes of it

  /// The read is over: hands over what it has brought, and grants what there is room for.
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

  /// Something has changed for the channel since it was last looked at, if it is still there.
  private func update(_ id: StreamID) {
    guard let channel = channels[id] else { return }
    answer(channel, channel.publishSource.status(of: channel.queue))
    connection.settle()
    _ = connection.flush()
  }

  private func answer(_ channel: InboundChannel, _ standing: PublishSource.PublishStatus) {
    heldBytes += standing.heldBytes - channel.heldBytes
    channel.heldBytes = standing.heldBytes
    excessBytes += standing.excessBytes - channel.excessBytes
    channel.excessBytes = standing.excessBytes
    if let number = channel.takeConfirmation(standing) {
      let data = PublishConfirmation(confirmed: number).bytes
      connection.machine.sendPayload(channel.id, Payload(data: data))
    }
    if standing.hasEnded {
      connection.machine.sendError(channel.id, .canceled, "\"\(channel.stream.name)\" has ended")
      forget(channel)
    } else if standing.hasLostValues {
      connection.machine.sendError(
        channel.id, .canceled, "\"\(channel.stream.name)\" was changed before it had stored all values")
      forget(channel)
    } else if standing.isDone {
      connection.machine.sendComplete(channel.id)
      forget(channel)
    } else if !channel.isComplete {
      let grant = channel.takeGrant(standing)
      if grant > 0 { connection.machine.sendRequestN(channel.id, UInt32(grant)) }
    }
  }

  // MARK: When streams change

  /// Ends those whose stream is gone, takes no values any more, or not those of this client.
  func reapplyAccess() {
    worker.loop.assertOnLoop()
    for id in ids {
      guard let channel = channels[id] else { continue }
      let stream = channel.stream
      if worker.streams[stream.name] !== stream {
        connection.machine.sendError(id, .canceled, "\"\(stream.name)\" is no longer served")
      } else if stream.publishSource !== channel.publishSource {
        connection.machine.sendError(id, .canceled, "\"\(stream.name)\" no longer accepts values")
      } else if !connection.admits(stream.configuration.write) {
        connection.refuse(RequestID(id), connection.mayNotWrite(stream))
      } else {
        continue
      }
      forget(channel)
    }
  }

  // MARK: From one process to the next

  /// Channels that another process can continue, once `abandon` has been called.
  var saved: [SavedConnection.Channel] {
    ids.map {
      SavedConnection.Channel(
        id: $0, stream: channels[$0]!.stream.name, credit: channels[$0]!.credit, named: channels[$0]!.named)
    }
  }

  /// Ends those of which the stream has not taken everything.
  func abandon(_ sentence: String) {
    worker.loop.assertOnLoop()
    for id in ids {
      guard let channel = channels[id], channel.publishSource.status(of: channel.queue).heldCount > 0 else {
        continue
      }
      connection.machine.sendError(id, .canceled, sentence)
      forget(channel)
    }
  }

  /// Takes over one that may still send `credit` values.
  func restore(
    _ id: StreamID, to stream: ServedStream, _ publishSource: PublishSource, credit: Int, _ named: InboundNumbering?
  ) {
    worker.loop.assertOnLoop()
    guard let channel = join(id, to: stream, publishSource, named, isRestored: true) else { return }
    channel.restore(credit: credit)
    answer(channel, publishSource.status(of: channel.queue))
  }

  // MARK: The end

  /// The publisher has given up, or has been given up. What it brought stays.
  func leave(_ id: StreamID) {
    worker.loop.assertOnLoop()
    guard let channel = channels[id] else { return }
    if !channel.arrived.isEmpty { _ = channel.passOn() }
    forget(channel)
  }

  /// The connection ends.
  func leaveAll() {
    worker.loop.assertOnLoop()
    passOn()
    for channel in channels.values { channel.publishSource.leave(channel.queue) }
    channels = [:]
    (heldBytes, excessBytes) = (0, 0)
  }

  /// Channels without an answer.
  var ids: [StreamID] { channels.keys.sorted() }

  private func forget(_ channel: InboundChannel) {
    channels[channel.id] = nil
    heldBytes -= channel.heldBytes
    excessBytes -= channel.excessBytes
    channel.publishSource.leave(channel.queue)
  }
}
