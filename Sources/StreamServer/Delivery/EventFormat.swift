import StreamProtocol
import RSocket
import ReplayLog

/// How a subscription's events become bytes. Subscriptions of equal format share the same block.
struct EventFormat: Equatable {
  /// The protocol that the bytes belong to.
  enum Encoding: Equatable {
    /// PAYLOAD frames.
    case rsocket
  }

  var encoding = Encoding.rsocket
  /// Whether each event carries its id and time.
  let ids: Bool
  /// Whether the first event also completes the request.
  let completes: Bool
}

/// Which of its connection's requests a subscription answers: the protocol's own number.
struct RequestID: Hashable, Comparable {
  let rawValue: UInt32
  init(_ rawValue: UInt32) { self.rawValue = rawValue }
  static func < (one: RequestID, other: RequestID) -> Bool { one.rawValue < other.rawValue }
}

extension EventFormat {
  /// One piece that is written as a whole: an event, or a fragment of a large one.
  struct Piece {
    /// With everything around the data.
    let byteCount: Int
    /// Of the event's data.
    let dataByteCount: Int
    /// Another piece of the same event comes.
    let follows: Bool
  }

  /// The most that a piece has.
  static let maximumPieceBytes = PayloadFrame.maximumContentByteCount + 64

  /// Writes the next piece of an event.
  ///
  /// - Parameters:
  ///   - record: id and time, 8 bytes each, then the data.
  ///   - offset: data bytes that earlier pieces had.
  ///   - gap: what the piece says is missing before the event; `.none` says nothing.
  ///   - piece: room for ``maximumPieceBytes``.
  func write(
    _ record: UnsafeRawBufferPointer, from offset: Int, _ gap: Gap, for request: RequestID,
    at piece: UnsafeMutableRawPointer
  ) -> Piece {
    let stamp = offset == 0 && ids ? EventLog.stampBytes : 0
    let gapBytes = stamp > 0 && gap != .none ? EventStamp.gapByteCount : 0
    let left = record.count - EventLog.stampBytes - offset
    let count = min(left, PayloadFrame.maximumContentByteCount - stamp - gapBytes)
    let follows = count < left
    var flags = FrameFlags.next
    if follows { flags.insert(.follows) }
    if completes, !follows { flags.insert(.complete) }
    let header = unsafe PayloadFrame.writeHeader(
      StreamID(request.rawValue), flags, metadataByteCount: stamp > 0 ? stamp + gapBytes : nil, dataByteCount: count,
      at: piece)
    let source = unsafe record.baseAddress! + EventLog.stampBytes + offset - stamp
    if gapBytes == 0 {
      unsafe (piece + header).copyMemory(from: source, byteCount: stamp + count)
    } else {
      unsafe (piece + header).copyMemory(from: source, byteCount: stamp)
      unsafe (piece + header + stamp).storeBytes(of: gap.count.bigEndian, as: UInt64.self)
      unsafe (piece + header + stamp + gapBytes).copyMemory(from: source + stamp, byteCount: count)
    }
    return Piece(byteCount: header + stamp + gapBytes + count, dataByteCount: count, follows: follows)
  }

  /// Gives the piece at `start` to another request.
  func address(_ start: UnsafeMutableRawPointer, to request: RequestID) {
    unsafe PayloadFrame.setStreamID(StreamID(request.rawValue), at: start)
  }
}
