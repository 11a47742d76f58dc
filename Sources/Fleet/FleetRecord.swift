import Events
import TaggedFields

/// A batch of one stream's events, with the checkpoint of its source after them: both are stored, or neither.
struct FleetRecord: Equatable {
  /// At most `nameByteCount` bytes.
  var stream = ""
  /// A digest of the stream's definition on the host that has fetched the events.
  var definition: UInt64 = 0
  /// The first event's id.
  var firstID: UInt64 = 0
  /// When the leader received the events; microseconds since the Unix epoch, by its clock.
  var time: UInt64 = 0
  var events = EventBatch()
  /// The host that has sent the published values; empty for fetched events.
  var sender: [UInt8] = []
  /// Rises from batch to batch of a sender, over all its streams.
  var number: UInt64 = 0
  /// The source's schedule after the record. Earlier versions skip it, and write none.
  var schedule = FleetSchedule()

  static let nameByteCount = 255

  /// The approximate bytes of the events and their keys.
  var byteCount: Int { events.byteCount + 4 * events.count + (events.keys?.encodedByteCount(0..<events.count) ?? 0) }
}

extension FleetRecord: TaggedRecord {
  mutating func visit(_ fields: inout RecordFields) throws(Malformed) {
    try fields.field(1, &stream)
    try fields.field(2, &definition)
    try fields.field(3, &firstID)
    try fields.field(4, &time)
    var bytes: [UInt8] = fields.isReading ? [] : EventBytes.bytes(of: events)
    try fields.field(5, &bytes)
    var checkpoint: [UInt8] = events.checkpoint.map { [1] + $0.bytes } ?? []
    try fields.field(6, &checkpoint)
    try fields.field(7, &sender)
    try fields.field(8, &number)
    try fields.field(9, &schedule.slot)
    try fields.field(10, &schedule.rest)
    var (keys, keyDefinition) = (events.keys?.encoded ?? [], events.keys?.definition ?? 0)
    try fields.field(11, &keys)
    try fields.field(12, &keyDefinition)
    guard fields.isReading else { return }
    guard let events = EventBytes.events(in: bytes) else { throw Malformed(reason: "its events are cut off") }
    self.events = events
    self.events.setKeys(EventKeys(encoded: keys, count: events.count, definition: keyDefinition))
    if !checkpoint.isEmpty { self.events.checkpoint = Checkpoint(Array(checkpoint.dropFirst())) }
    guard (1...Self.nameByteCount).contains(stream.utf8.count) else { throw Malformed(reason: "it names no stream") }
    guard sender.isEmpty || HostID(sender) != nil else { throw Malformed(reason: "its sender is no host") }
  }
}

/// The events of a record as bytes: for each event its byte count (u32, big endian) and its bytes.
private enum EventBytes {
  static func bytes(of events: EventBatch) -> [UInt8] {
    var bytes: [UInt8] = []
    bytes.reserveCapacity(events.byteCount + 4 * events.count)
    unsafe events.withUnsafeBytes(of: 0..<events.count) { event in
      unsafe withUnsafeBytes(of: UInt32(clamping: event.count).bigEndian) { unsafe bytes.append(contentsOf: $0) }
      unsafe bytes.append(contentsOf: event)
      return true
    }
    return bytes
  }

  static func events(in bytes: [UInt8]) -> EventBatch? {
    var events = EventBatch()
    let isWhole = unsafe bytes.withUnsafeBytes { bytes in
      var start = 0
      while start < bytes.count {
        guard bytes.count - start >= 4 else { return false }
        var count = 0
        for index in start..<start + 4 { count = unsafe count << 8 | Int(bytes[index]) }
        start += 4
        guard count <= bytes.count - start else { return false }
        unsafe events.append(UnsafeRawBufferPointer(rebasing: bytes[start..<start + count]))
        start += count
      }
      return true
    }
    return isWhole ? events : nil
  }
}
