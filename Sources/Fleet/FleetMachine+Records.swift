import Events
import TaggedFields

/// Records from a fetch or a publication up to their confirmation.
extension FleetMachine {
  /// Events of a stream that this host fetches, and the schedule of its source from now on. Only while `mayFetch`.
  package func fetched(
    _ events: EventBatch, of stream: String, _ schedule: FleetSchedule = .init(), at now: UInt64, wallTime: UInt64
  ) -> [Action] {
    guard isLed(stream) else { return [] }
    return accept(FleetRecord(stream: stream, time: wallTime, events: events, schedule: schedule), at: now)
  }

  /// The server of a stream that this host fetches has asked for no request, from now on. The next leader learns it by a
  /// record without events; if none can be appended now, its first request gets the same answer.
  package func rests(_ stream: String, _ schedule: FleetSchedule, at now: UInt64, wallTime: UInt64) -> [Action] {
    mayFetch(stream) ? fetched([], of: stream, schedule, at: now, wallTime: wallTime) : []
  }

  /// Values that clients have published here. One batch of a stream at a time, until `stored`.
  package func publish(_ values: EventBatch, to stream: String, at now: UInt64, wallTime: UInt64) -> [Action] {
    let number = numbers[stream, default: 0] + 1
    numbers[stream] = number
    outgoing[stream] = Outgoing(
      number: number,
      record: FleetRecord(stream: stream, events: values, sender: host.bytes, number: number), sendAgainAt: .max)
    return sendOut(stream, at: now, wallTime: wallTime)
  }

  func sendOut(_ stream: String, at now: UInt64, wallTime: UInt64) -> [Action] {
    guard let batch = outgoing[stream], let shard = shards[shard(of: stream)] else { return [] }
    outgoing[stream]?.sendAgainAt = now &+ Self.repetition
    if shard.isLeading { return take(batch.record, at: now, wallTime: wallTime) }
    guard let leader = shard.machine.leader else { return [] }
    let bytes = RecordFields.bytes(of: batch.record)
    return stride(from: 0, to: bytes.count, by: Self.messageByteCount).enumerated().map { index, start in
      let end = min(bytes.count, start + Self.messageByteCount)
      let message = FleetMessage(
        kind: .values, sender: host.bytes, stream: stream, number: batch.number, index: UInt32(clamping: index),
        isLast: end == bytes.count, bytes: Array(bytes[start..<end]))
      return .send(RecordFields.bytes(of: message), to: .host(leader))
    }
  }

  /// A message to this host.
  /// - Returns: what the caller must do, and whether the message is answered.
  package func receive(_ bytes: [UInt8], at now: UInt64, wallTime: UInt64) -> (
    actions: [Action], isKnown: Bool
  ) {
    guard let message = try? RecordFields.read(FleetMessage.self, from: bytes[...]), HostID(message.sender) != nil,
      message.stream.utf8.count <= FleetRecord.nameByteCount, shards[shard(of: message.stream)]?.isLeading == true
    else { return ([], false) }
    switch message.kind {
    case .want:
      guard isLed(message.stream) else { return ([], false) }
      return (learned(message.stream, isWanted: true, at: now), true)
    case .values:
      guard let bytes = assemble(message),
        let record = try? RecordFields.read(FleetRecord.self, from: bytes[...]), record.stream == message.stream,
        record.sender == message.sender, record.number == message.number
      else { return ([], false) }
      return (take(record, at: now, wallTime: wallTime), true)
    }
  }

  /// - Returns: the whole batch with its last part. A part out of order ends the batch: it is sent again.
  func assemble(_ message: FleetMessage) -> [UInt8]? {
    if message.index == 0, message.isLast { return message.bytes }
    var former = incoming[message.sender]?.removeValue(forKey: message.stream)
    incomingByteCount -= former?.bytes.count ?? 0
    if message.index == 0 { former = Incoming(number: message.number, nextIndex: 0, bytes: []) }
    if incoming[message.sender]?.isEmpty == true { incoming[message.sender] = nil }
    guard var batch = former, batch.number == message.number, batch.nextIndex == message.index,
      incomingByteCount + batch.bytes.count + message.bytes.count <= Self.incomingByteCount
    else { return nil }
    batch.bytes += message.bytes
    batch.nextIndex += 1
    guard !message.isLast else { return batch.bytes }
    incomingByteCount += batch.bytes.count
    incoming[message.sender, default: [:]][message.stream] = batch
    return nil
  }

  /// Appends a batch of published values, unless it is stored or under way.
  func take(_ record: FleetRecord, at now: UInt64, wallTime: UInt64) -> [Action] {
    guard let shard = shards[shard(of: record.stream)], shard.isLeading else { return [] }
    let head = shard.ahead[record.stream] ?? shard.heads[record.stream]
    guard record.number > head?.number(of: record.sender) ?? 0,
      !shard.waiting.contains(where: { ($0.sender, $0.stream) == (record.sender, record.stream) }),
      shard.waitingByteCounts.published + record.byteCount <= Self.publishedByteCount
    else { return [] }
    var record = record
    record.time = wallTime
    return accept(record, at: now)
  }

  /// Submits a record as soon as there is room for it.
  func accept(_ record: FleetRecord, at now: UInt64) -> [Action] {
    let index = shard(of: record.stream)
    guard let shard = shards[index] else { return [] }
    if let last = shard.waiting.lastIndex(where: { $0.stream == record.stream }), record.sender.isEmpty,
      shard.waiting[last].byteCount + record.byteCount <= Self.joinedByteCount
    {
      shard.count(shard.waiting[last], -1)
      shard.waiting[last].events.append(contentsOf: record.events)
      (shard.waiting[last].time, shard.waiting[last].schedule) = (record.time, record.schedule)
      shard.count(shard.waiting[last], 1)
    } else {
      shard.waiting.append(record)
      shard.count(record, 1)
    }
    return submitWaiting(index, at: now)
  }

  /// Submits what waits, as far as there is room, and not before a claim that is due.
  /// - Parameter isLast: whether the host is about to stop.
  func submitWaiting(_ index: Int, at now: UInt64, isLast: Bool = false) -> [Action] {
    guard let shard = shards[index] else { return [] }
    var actions: [Action] = []
    while let next = shard.waiting.first, shard.machine.maySubmit, isLast || !mustRenew(shard) {
      let isFull = next.byteCount > Self.joinedByteCount / 2
      guard isLast || isFull || shard.machine.submittedCount < Self.unjoinedCount else { break }
      shard.waiting.removeFirst()
      shard.count(next, -1)
      actions += submit(next, at: now)
    }
    return actions
  }

  func submit(_ record: FleetRecord, at now: UInt64) -> [Action] {
    let index = shard(of: record.stream)
    guard let shard = shards[index] else { return [] }
    var record = record
    var head = shard.ahead[record.stream] ?? shard.heads[record.stream] ?? StreamHead(stream: record.stream)
    if !record.sender.isEmpty { record.events = merge(record.events, head.checkpoint) }
    if head.nextID == 0 { head.nextID = min(record.time, Self.idLimit / 2) }
    head.nextID.raise(to: streams[record.stream]?.end ?? 0)
    guard head.nextID < Self.idLimit - UInt64(record.events.count) else { return [] }
    record.firstID = head.nextID
    record.definition = streams[record.stream]?.definition ?? head.definition
    head.nextID += UInt64(record.events.count)
    head.checkpoint = record.events.checkpoint ?? head.checkpoint
    if !record.sender.isEmpty { head.note(record.sender, number: record.number) }
    shard.ahead[record.stream] = head
    return perform(shard.machine.submit(RecordFields.bytes(of: record), at: now), on: index, at: now)
  }

  /// The batch that was sent is stored, if the stream's head says so.
  func confirm(_ stream: String) -> [Action] {
    guard let batch = outgoing[stream],
      shards[shard(of: stream)]?.heads[stream]?.number(of: host.bytes) ?? 0 >= batch.number
    else { return [] }
    outgoing[stream] = nil
    return [.stored(stream: stream)]
  }
}
