import RSocket
import Testing

@Suite struct PayloadFrameTests {
  private static let limit = PayloadFrame.maximumContentByteCount

  private func write(_ id: StreamID, isComplete: Bool = false, metadata: [UInt8]?, data: [UInt8]) -> [UInt8] {
    let count = PayloadFrame.encodedByteCount(metadataByteCount: metadata?.count, dataByteCount: data.count)
    return [UInt8](unsafeUninitializedCapacity: count) { buffer, initialized in
      guard let start = buffer.baseAddress else { return }
      initialized = data.withUnsafeBytes { data in
        guard let metadata else {
          return PayloadFrame.write(id, isComplete: isComplete, metadata: nil, data: data, at: start)
        }
        return metadata.withUnsafeBytes {
          PayloadFrame.write(id, isComplete: isComplete, metadata: $0, data: data, at: start)
        }
      }
    }
  }

  @Test(arguments: [nil, [], [1, 2, 3]] as [[UInt8]?])
  func whatIsWrittenByHandIsWhatTheCodecWrites(metadata: [UInt8]?) {
    for data in [[], [42], [UInt8](repeating: 1, count: 300)] as [[UInt8]] {
      for isComplete in [false, true] {
        let frame = Frame.payload(
          StreamID(9), Payload(metadata: metadata, data: data), follows: false, isComplete: isComplete, isNext: true)
        #expect(write(StreamID(9), isComplete: isComplete, metadata: metadata, data: data) == frame.encoded)
      }
    }
  }

  @Test func aBlockOfFramesCanBeWalkedAndGivenToAnotherRequest() {
    var block = write(StreamID(1), metadata: [1, 2], data: [3, 4, 5]) + write(StreamID(1), metadata: nil, data: [6])
    block.withUnsafeMutableBytes { bytes in
      guard let first = bytes.baseAddress else { return }
      #expect(PayloadFrame.byteCount(at: first) == 12 + 5)
      #expect(PayloadFrame.metadataByteCount(at: first) == 2)
      #expect(PayloadFrame.dataByteCount(at: first) == 3)
      #expect(PayloadFrame.flags(at: first) == [.metadata, .next])
      let second = first + PayloadFrame.byteCount(at: first)
      PayloadFrame.setStreamID(StreamID(0x0102_0304), at: second)
      #expect(PayloadFrame.streamID(at: second) == StreamID(0x0102_0304))
      #expect(PayloadFrame.streamID(at: first) == StreamID(1))
      #expect(PayloadFrame.metadataByteCount(at: second) == nil)
      #expect(PayloadFrame.dataByteCount(at: second) == 1)
    }
  }

  @Test(
    arguments: [
      (nil, 0), (nil, limit), (nil, limit + 1), (0, limit + 1), (16, limit - 16), (16, limit), (limit, 0), (limit, 1),
      (3 * limit, 5), (2 * limit + 7, 3 * limit),
    ] as [(Int?, Int)])
  func aPayloadOver64KiBBecomesFragmentsOfAtMost64KiBMetadataFirst(metadataByteCount: Int?, dataByteCount: Int) throws {
    let metadata = metadataByteCount.map { (0..<$0).map { UInt8(truncatingIfNeeded: $0) } }
    let data = (0..<dataByteCount).map { UInt8(truncatingIfNeeded: $0 &* 7) }
    let frames = try Frame.decodeAll(write(StreamID(3), isComplete: true, metadata: metadata, data: data))
    var whole = Payload(metadata: metadata.map { _ in [] })
    for (index, frame) in frames.enumerated() {
      let isLast = index == frames.count - 1
      guard case .payload(StreamID(3), let part, let follows, let isComplete, true) = frame else {
        Issue.record("not a PAYLOAD: \(String(describing: frame))")
        return
      }
      #expect(follows == !isLast)
      #expect(isComplete == isLast)
      #expect((part.metadata?.count ?? 0) + part.data.count <= Self.limit)
      if let more = part.metadata {
        #expect(whole.data.isEmpty)
        whole.metadata?.append(contentsOf: more)
      }
      whole.data += part.data
    }
    #expect(whole == Payload(metadata: metadata, data: data))
    #expect(frames.count == max(1, ((metadataByteCount ?? 0) + dataByteCount + Self.limit - 1) / Self.limit))
  }
}
