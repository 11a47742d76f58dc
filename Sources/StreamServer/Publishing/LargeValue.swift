import Events
import RSocket
import StreamRuntime

/// A published value that has arrived whole, and that is examined in slices: whether it is JSON, if its stream requires
/// that, and its key. The examination of megabytes at once would stop its loop for too long.
struct LargeValue {
  /// Smaller values are examined as one piece. In the order of what is read at once.
  static let leastByteCount = ConnectionMachine.largeValueBytes
  /// The bytes that are examined before the clock is read: at most about 0.1 ms.
  private static let sliceByteCount = 16 << 10

  /// The request to which it belongs.
  let id: StreamID
  let stream: ServedStream
  /// For a value without confirmation: where it goes. Otherwise the request is a channel.
  let unconfirmedSource: PublishSource?
  /// Whether the publisher has sent COMPLETE with it.
  let isComplete: Bool
  private var bytes: [UInt8]
  private var examinedCount = 0
  private var syntax: JSONSyntax.Examination?
  private var key: KeyExamination?
  /// Whether the stream requires JSON, and it is none.
  private(set) var isRefused = false

  /// - Returns: nil if it is examined as one piece, or not at all.
  init?(
    _ bytes: [UInt8], _ id: StreamID, to stream: ServedStream, _ source: PublishSource, isUnconfirmed: Bool,
    isComplete: Bool
  ) {
    guard bytes.count >= Self.leastByteCount, stream.refusal(ofSize: bytes.count) == nil else { return nil }
    (self.bytes, self.id, self.stream, self.isComplete) = (bytes, id, stream, isComplete)
    unconfirmedSource = isUnconfirmed ? source : nil
    syntax = stream.wantsJSON ? JSONSyntax.Examination() : nil
    key = KeyExamination(of: stream, source)
    if syntax == nil, key == nil { return nil }
  }

  var byteCount: Int { bytes.count }

  /// Examines a part.
  /// - Returns: whether nothing is left to examine.
  mutating func examine(until deadline: UInt64) -> Bool {
    let bytes = bytes
    repeat {
      examinedCount = min(bytes.count, examinedCount + Self.sliceByteCount)
      let part = bytes.span.extracting(0..<examinedCount)
      if syntax != nil, syntax?.continues(in: part) == false { isRefused = true }
      if isRefused { return true }
      key?.examine(part)
    } while examinedCount < bytes.count && EventLoop.monotonicNow() < deadline
    guard examinedCount == bytes.count else { return false }
    isRefused = syntax?.isComplete == false
    return true
  }

  /// A batch of the value, with its key. The examination is over, and the value is not used any more.
  mutating func takeBatch() -> EventBatch {
    var value: [UInt8] = []
    swap(&value, &bytes)
    return key?.finish(value) ?? EventBatch(of: value)
  }
}

/// The examination of the key of one value, in parts.
struct KeyExamination {
  private var reader: EventKeyReader
  private let definition: UInt64
  private let stream: ServedStream
  private var isText = true

  /// - Returns: nil if the stream has no keys by path, or an operator may change the value before it gets its key.
  init?(of stream: ServedStream, _ source: PublishSource) {
    guard source.isDirect, let (reader, definition) = stream.keying.partReader() else { return nil }
    (self.reader, self.definition, self.stream) = (reader, definition, stream)
    self.reader.begin()
  }

  /// - Parameter value: the beginning of the value, which begins with the bytes of the last call.
  mutating func examine(_ value: Span<UInt8>) { if isText { isText = reader.continues(in: value) } }

  /// A batch of the value with its key. It does not copy the value.
  /// - Parameter value: as in the last call of `examine`, perhaps without a carriage return at its end.
  mutating func finish(_ value: consuming [UInt8]) -> EventBatch {
    var keys = EventKeys(definition: definition)
    let malformedCount = reader.malformedCount
    reader.finish(value.span, isText: isText, to: &keys)
    // Otherwise the stream reads it again, and counts it then.
    if reader.malformedCount > malformedCount, definition == stream.keying.definition {
      stream.keying.countMalformedPart()
    }
    var batch = EventBatch(of: value)
    batch.setKeys(keys)
    return batch
  }
}
