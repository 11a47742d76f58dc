import Events

/// The records that a leader is to submit to a shard's log, in order.
struct WaitingRecords {
  private var records: [FleetRecord] = []
  /// The bytes of the fetched batches.
  private(set) var fetchedByteCount = 0
  /// The bytes of the published batches.
  private(set) var publishedByteCount = 0

  /// The maximum bytes of a joined record: it fits into one entry.
  static let joinedByteCount = 1 << 20 - 16_384

  var isEmpty: Bool { records.isEmpty }
  /// The next record to be submitted.
  var first: FleetRecord? { records.first }

  /// Whether a batch of this sender waits.
  func hasBatch(of sender: [UInt8], to stream: String) -> Bool {
    records.contains { ($0.sender, $0.stream) == (sender, stream) }
  }

  /// Adds a record, or joins a fetched batch with the last record of its stream.
  mutating func add(_ record: FleetRecord) {
    if let last = records.lastIndex(where: { $0.stream == record.stream }), record.sender.isEmpty,
      records[last].byteCount + record.byteCount <= Self.joinedByteCount
    {
      count(records[last], -1)
      records[last].events.append(contentsOf: record.events)
      (records[last].time, records[last].schedule) = (record.time, record.schedule)
      count(records[last], 1)
    } else {
      records.append(record)
      count(record, 1)
    }
  }

  mutating func removeFirst() { count(records.removeFirst(), -1) }

  private mutating func count(_ record: FleetRecord, _ sign: Int) {
    if record.sender.isEmpty {
      fetchedByteCount += sign * record.byteCount
    } else {
      publishedByteCount += sign * record.byteCount
    }
  }
}
