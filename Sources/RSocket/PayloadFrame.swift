/// Writes and reads PAYLOAD frames in raw memory, for callers that bypass ``ConnectionMachine``'s output: the same
/// bytes can be sent to any number of connections, with only the stream ID changed.
///
/// Pointers need no alignment. Every function takes the address of a frame's u24 length, its first byte.
public enum PayloadFrame {
  /// The bytes of a frame's own length, which a transport with messages leaves out.
  public static var lengthByteCount: Int { FrameLayout.lengthByteCount }
  /// The bytes before the data of a frame without metadata: length, stream ID, type and flags.
  @inlinable public static var headerByteCount: Int { FrameLayout.lengthByteCount + FrameLayout.headerByteCount }
  /// The bytes that metadata adds to the header: its u24 length.
  @inlinable public static var metadataLengthByteCount: Int { 3 }
  /// The maximum bytes of metadata and data in one frame; a longer payload is fragmented. Source: WIRE.md, "fragments".
  public static let maximumContentByteCount = 64 << 10

  /// Writes the bytes before metadata and data.
  ///
  /// - Parameters:
  ///   - metadataByteCount: the size of this frame's metadata; `nil` for none, without the metadata flag.
  ///   - flags: any of `follows`, `complete` and `next`.
  /// - Returns: the number of bytes written; metadata and then data must follow directly.
  @inlinable @discardableResult
  public static func writeHeader(
    _ id: StreamID, _ flags: FrameFlags, metadataByteCount: Int?, dataByteCount: Int,
    at frame: UnsafeMutableRawPointer
  ) -> Int {
    let extra = metadataByteCount.map { $0 + metadataLengthByteCount } ?? 0
    let byteCount = UInt64(truncatingIfNeeded: FrameLayout.headerByteCount + extra + dataByteCount)
    let typeAndFlags = typeBits | flags.rawValue | (metadataByteCount == nil ? 0 : FrameFlags.metadata.rawValue)
    // Length (3), stream ID (4), and the first byte of type and flags.
    let first = byteCount << 40 | UInt64(id.rawValue) << 8 | UInt64(typeAndFlags >> 8)
    unsafe frame.storeBytes(of: first.bigEndian, as: UInt64.self)
    guard let metadataByteCount else {
      unsafe frame.storeBytes(of: UInt8(truncatingIfNeeded: typeAndFlags), toByteOffset: 8, as: UInt8.self)
      return headerByteCount
    }
    let second = UInt32(typeAndFlags & 0xFF) << 24 | UInt32(truncatingIfNeeded: metadataByteCount)
    unsafe frame.storeBytes(of: second.bigEndian, toByteOffset: 8, as: UInt32.self)
    return headerByteCount + metadataLengthByteCount
  }

  /// Returns the number of bytes that ``write(_:isComplete:metadata:data:at:)`` writes: all frames with their headers.
  public static func encodedByteCount(metadataByteCount: Int?, dataByteCount: Int) -> Int {
    var total = 0
    for fragment in Fragments(metadataByteCount: metadataByteCount, dataByteCount: dataByteCount) {
      total += fragment.encodedByteCount
    }
    return total
  }

  /// Writes one value as one frame, or as fragments if it is long.
  ///
  /// - Returns: ``encodedByteCount(metadataByteCount:dataByteCount:)``, which must be available at the address.
  @discardableResult
  public static func write(
    _ id: StreamID, isComplete: Bool = false, metadata: UnsafeRawBufferPointer?, data: UnsafeRawBufferPointer,
    at start: UnsafeMutableRawPointer
  ) -> Int {
    var end = unsafe start
    for fragment in unsafe Fragments(metadataByteCount: metadata?.count, dataByteCount: data.count) {
      unsafe end += writeHeader(
        id, fragment.flags(isComplete: isComplete), metadataByteCount: fragment.metadata?.count,
        dataByteCount: fragment.data.count, at: end)
      if let range = fragment.metadata, let metadata = unsafe metadata {
        unsafe end = unsafe copy(metadata[range], to: end)
      }
      unsafe end = unsafe copy(data[fragment.data], to: end)
    }
    return unsafe end - start
  }

  /// The type bits of PAYLOAD, above the flags.
  @inlinable static var typeBits: UInt16 { 0x0A << 10 }

  /// Sets the frame's stream ID.
  @inlinable public static func setStreamID(_ id: StreamID, at frame: UnsafeMutableRawPointer) {
    unsafe frame.storeBytes(of: id.rawValue.bigEndian, toByteOffset: FrameLayout.lengthByteCount, as: UInt32.self)
  }

  /// Returns the size of the whole frame with its u24 length: the distance to the next frame. Reads the first 3 bytes.
  public static func byteCount(at frame: UnsafeRawPointer) -> Int {
    unsafe FrameLayout.lengthByteCount + loadU24(at: frame)
  }

  /// Returns the frame's stream ID. Reads the first 7 bytes.
  public static func streamID(at frame: UnsafeRawPointer) -> StreamID {
    unsafe StreamID(
      UInt32(bigEndian: frame.loadUnaligned(fromByteOffset: FrameLayout.lengthByteCount, as: UInt32.self)))
  }

  /// Returns the frame's flags; the frame without `follows` is the last of its value. Reads the first 9 bytes.
  public static func flags(at frame: UnsafeRawPointer) -> FrameFlags {
    unsafe FrameFlags(rawValue: UInt16(bigEndian: frame.loadUnaligned(fromByteOffset: 7, as: UInt16.self)) & 0x3ff)
  }

  /// Returns the size of this frame's metadata; `nil` without the flag. Reads the first 12 bytes.
  public static func metadataByteCount(at frame: UnsafeRawPointer) -> Int? {
    unsafe flags(at: frame).contains(.metadata) ? loadU24(at: frame + headerByteCount) : nil
  }

  /// Returns the size of this frame's data. Reads the first 12 bytes.
  public static func dataByteCount(at frame: UnsafeRawPointer) -> Int {
    let extra = unsafe metadataByteCount(at: frame).map { $0 + metadataLengthByteCount } ?? 0
    return unsafe byteCount(at: frame) - headerByteCount - extra
  }

  /// Whether `bytes` begins with a complete frame that is a whole value and not the last one: a PAYLOAD with `next`,
  /// without `complete` and `follows`, whose metadata does not exceed the frame.
  static func isWholeValue(_ bytes: UnsafeRawBufferPointer) -> Bool {
    guard let frame = bytes.baseAddress, bytes.count >= headerByteCount, unsafe byteCount(at: frame) <= bytes.count
    else {
      return false
    }
    switch unsafe UInt16(bigEndian: frame.loadUnaligned(fromByteOffset: 7, as: UInt16.self)) {
    case valueTypeAndFlags: return unsafe byteCount(at: frame) >= headerByteCount
    case valueTypeAndFlags | FrameFlags.metadata.rawValue:
      let least = headerByteCount + metadataLengthByteCount
      return unsafe byteCount(at: frame) >= least
        && loadU24(at: frame + headerByteCount) <= byteCount(at: frame) - least
    default: return false
    }
  }

  private static let valueTypeAndFlags = typeBits | FrameFlags.next.rawValue

  private static func copy(
    _ bytes: Slice<UnsafeRawBufferPointer>, to destination: UnsafeMutableRawPointer
  ) -> UnsafeMutableRawPointer {
    let bytes = unsafe UnsafeRawBufferPointer(rebasing: bytes)
    if let source = bytes.baseAddress { unsafe destination.copyMemory(from: source, byteCount: bytes.count) }
    return unsafe destination + bytes.count
  }

  private static func loadU24(at pointer: UnsafeRawPointer) -> Int {
    unsafe Int(pointer.load(as: UInt8.self)) << 16
      | Int(UInt16(bigEndian: pointer.loadUnaligned(fromByteOffset: 1, as: UInt16.self)))
  }
}

/// Iterates in place over the frames of ``ConnectionMachine/Event/payloads(_:_:)``, one value each.
@safe public struct PayloadFrames: @unsafe Sequence, @unsafe IteratorProtocol {
  private var rest: UnsafeRawBufferPointer

  /// - Parameter bytes: exactly the bytes of the event's range.
  public init(_ bytes: UnsafeRawBufferPointer) { unsafe rest = unsafe bytes }

  /// Returns the next value; `metadata` is nil without the flag.
  public mutating func next() -> (metadata: UnsafeRawBufferPointer?, data: UnsafeRawBufferPointer)? {
    guard let frame = unsafe rest.baseAddress, unsafe !rest.isEmpty else { return nil }
    let byteCount = unsafe PayloadFrame.byteCount(at: frame)
    defer { unsafe rest = unsafe UnsafeRawBufferPointer(rebasing: rest[byteCount...]) }
    var content = PayloadFrame.headerByteCount
    guard let metadataByteCount = unsafe PayloadFrame.metadataByteCount(at: frame) else {
      return unsafe (nil, UnsafeRawBufferPointer(rebasing: rest[content..<byteCount]))
    }
    content += PayloadFrame.metadataLengthByteCount
    let data = content + metadataByteCount
    return unsafe (
      UnsafeRawBufferPointer(rebasing: rest[content..<data]), UnsafeRawBufferPointer(rebasing: rest[data..<byteCount])
    )
  }
}

/// Divides a payload so that no frame carries more than ``PayloadFrame/maximumContentByteCount``.
///
/// All metadata precedes all data, as RSocket requires. There is always at least one fragment.
public struct Fragments: Sequence, IteratorProtocol, Sendable {
  /// The part of a payload in one frame.
  public struct Fragment: Equatable, Sendable {
    /// The range of the payload's metadata; `nil`: this frame has no metadata part.
    public let metadata: Range<Int>?
    /// The range of the payload's data.
    public let data: Range<Int>
    /// Whether another fragment follows.
    public let follows: Bool

    /// The size of its PAYLOAD frame with its length.
    var encodedByteCount: Int {
      PayloadFrame.headerByteCount + data.count
        + (metadata.map { PayloadFrame.metadataLengthByteCount + $0.count } ?? 0)
    }

    /// Returns the frame's flags. Every fragment of a value has `next`; only the last one has `complete`.
    func flags(isComplete: Bool) -> FrameFlags {
      FrameFlags.next.with(.follows, if: follows).with(.complete, if: isComplete && !follows)
    }
  }

  private let metadataByteCount: Int?
  private let dataByteCount: Int
  private var metadataOffset = 0
  private var dataOffset = 0
  private var isDone = false

  /// Divides a payload of this size.
  public init(metadataByteCount: Int?, dataByteCount: Int) {
    self.metadataByteCount = metadataByteCount
    self.dataByteCount = dataByteCount
  }

  /// Returns the next fragment, `nil` after the last.
  public mutating func next() -> Fragment? {
    guard !isDone else { return nil }
    var room = PayloadFrame.maximumContentByteCount
    var metadata: Range<Int>?
    if let metadataByteCount, metadataOffset < metadataByteCount || metadataOffset + dataOffset == 0 {
      let end = Swift.min(metadataByteCount, metadataOffset + room)
      metadata = metadataOffset..<end
      room -= end - metadataOffset
      metadataOffset = end
    }
    let data = dataOffset..<Swift.min(dataByteCount, dataOffset + room)
    dataOffset = data.upperBound
    isDone = dataOffset == dataByteCount && metadataOffset == metadataByteCount ?? 0
    return Fragment(metadata: metadata, data: data, follows: !isDone)
  }
}
