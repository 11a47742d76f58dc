/// Batches of published values that arrive from other hosts in parts.
struct IncomingBatches {
  private struct Batch {
    var number: UInt64
    var nextIndex: UInt32 = 0
    var bytes: [UInt8] = []
  }

  /// The incomplete batches, by sender and stream.
  private var batches: [[UInt8]: [String: Batch]] = [:]
  private var byteCount = 0

  /// The maximum bytes of the incomplete batches of all senders together.
  static let maximumByteCount = 128 << 20

  /// - Returns: the batch, if the part is its last one; otherwise nil. A part out of order discards the batch, which is
  ///   sent again.
  mutating func assemble(_ message: FleetMessage) -> [UInt8]? {
    if message.index == 0, message.isLast { return message.bytes }
    var former = batches[message.sender]?.removeValue(forKey: message.stream)
    byteCount -= former?.bytes.count ?? 0
    if message.index == 0 { former = Batch(number: message.number) }
    if batches[message.sender]?.isEmpty == true { batches[message.sender] = nil }
    guard var batch = former, batch.number == message.number, batch.nextIndex == message.index,
      byteCount + batch.bytes.count + message.bytes.count <= Self.maximumByteCount
    else { return nil }
    batch.bytes += message.bytes
    batch.nextIndex += 1
    guard !message.isLast else { return batch.bytes }
    byteCount += batch.bytes.count
    batches[message.sender, default: [:]][message.stream] = batch
    return nil
  }
}
