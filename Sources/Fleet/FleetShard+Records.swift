import Events
import TaggedFields

/// Records from a fetch or a publication up to their confirmation.
extension FleetShard {
  /// The maximum bytes of one message, below the 1 MiB that NATS accepts by default.
  static let messageByteCount = 1 << 20 - 8192
  /// A record is submitted at once while fewer entries are under way. Of two, one is on its way to the engine while the
  /// other one is being stored.
  static let unjoinedCount = 2
  /// Bytes of waiting fetched batches at which the source is not asked for more.
  static let fetchedByteCount = 2 << 20
  /// The maximum bytes of waiting published batches. A batch beyond them is dropped, and its host sends it again.
  static let publishedByteCount = 64 << 20

  /// Whether the stream's source may be asked for a batch now.
  func mayFetch(_ stream: SharedStream) -> Bool {
    isLed(stream) && machine.mayFetch && waiting.fetchedByteCount < Self.fetchedByteCount
  }

  /// Sends the published batch to the leader. The leader takes its own batch at once.
  func sendOut(_ stream: SharedStream, at now: UInt64, wallTime: UInt64) -> [Action] {
    guard let record = stream.published else { return [] }
    stream.sendAgainAt = now &+ Self.repetition
    if isLeading { return take(record, at: now, wallTime: wallTime) }
    guard let leader = machine.leader else { return [] }
    let bytes = RecordFields.bytes(of: record)
    return stride(from: 0, to: bytes.count, by: Self.messageByteCount).enumerated().map { index, start in
      let end = min(bytes.count, start + Self.messageByteCount)
      let message = FleetMessage(
        kind: .values, sender: host.bytes, stream: stream.name, number: record.number, index: UInt32(clamping: index),
        isLast: end == bytes.count, bytes: Array(bytes[start..<end]))
      return .send(RecordFields.bytes(of: message), to: .host(leader))
    }
  }

  /// Appends a batch of published values, unless it is stored or under way.
  func take(_ record: FleetRecord, at now: UInt64, wallTime: UInt64) -> [Action] {
    let head = ahead[record.stream] ?? heads[record.stream]
    guard isLeading, record.number > head?.number(of: record.sender) ?? 0,
      !waiting.hasBatch(of: record.sender, to: record.stream),
      waiting.publishedByteCount + record.byteCount <= Self.publishedByteCount
    else { return [] }
    var record = record
    record.time = wallTime
    return accept(record, at: now)
  }

  /// Submits a record as soon as there is room for it.
  func accept(_ record: FleetRecord, at now: UInt64) -> [Action] {
    waiting.add(record)
    return submitWaiting(at: now)
  }

  /// Submits waiting records while there is room and no claim is due.
  /// - Parameter isLast: whether the host is about to stop: no record waits for a claim, or for a larger batch.
  func submitWaiting(at now: UInt64, isLast: Bool = false) -> [Action] {
    var actions: [Action] = []
    while let next = waiting.first, machine.maySubmit, isLast || !mustRenew {
      let isFull = next.byteCount > WaitingRecords.joinedByteCount / 2
      guard isLast || isFull || machine.submittedCount < Self.unjoinedCount else { break }
      waiting.removeFirst()
      actions += submit(next, at: now)
    }
    return actions
  }

  private func submit(_ record: FleetRecord, at now: UInt64) -> [Action] {
    var record = record
    var head = ahead[record.stream] ?? heads[record.stream] ?? StreamHead(stream: record.stream)
    if !record.sender.isEmpty { record.events = settings.merge(record.events, head.checkpoint) }
    let definition = streams[record.stream]?.definition
    if head.nextID == 0 { head.nextID = min(record.time, Self.idLimit / 2) }
    head.nextID.raise(to: definition?.end ?? 0)
    guard head.nextID < Self.idLimit - UInt64(record.events.count) else { return [] }
    record.firstID = head.nextID
    record.definition = definition?.definition ?? head.definition
    head.nextID += UInt64(record.events.count)
    head.checkpoint = record.events.checkpoint ?? head.checkpoint
    if !record.sender.isEmpty { head.note(record.sender, number: record.number) }
    ahead[record.stream] = head
    return perform(machine.submit(RecordFields.bytes(of: record), at: now), at: now)
  }

  /// Confirms the published batch if the stream's head has its number.
  func confirm(_ stream: SharedStream) -> [Action] {
    guard let record = stream.published, heads[stream.name]?.number(of: host.bytes) ?? 0 >= record.number else {
      return []
    }
    (stream.published, stream.sendAgainAt) = (nil, .max)
    return [.stored(stream: stream.name)]
  }
}
