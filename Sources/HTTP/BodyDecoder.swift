/// Finds a request's body in the bytes after its head: bytes in, ranges out. It copies and holds no bytes.
///
/// Chunk extensions and trailers are checked and discarded. Source: RFC 9112, sections 6 and 7.1.
public struct BodyDecoder: Equatable, Sendable {
  /// What ``next(in:from:)`` found.
  public enum Step: Equatable, Sendable {
    /// All bytes are consumed, and more are needed.
    case needsBytes
    /// Bytes of the body, at least one: offsets in the input.
    case data(Range<Int>)
    /// The body is complete. Later bytes belong to the next request.
    case end
  }

  /// What another process needs to continue a body.
  package struct Saved: Equatable, Sendable {
    /// The raw value of the phase.
    package var phase: UInt8 = 0
    /// Remaining bytes of the body or of the chunk; while a chunk's size arrives, the value of its digits so far.
    package var byteCountLeft: UInt64 = 0
    /// The size of the part that is limited in this phase: digits, an extension or all trailers.
    package var lineByteCount: UInt16 = 0

    package init() {}
  }

  /// The next byte is…
  private enum Phase: UInt8 {
    case fixed  // of the body; can become: done
    case size  // a digit of the size or what ends it; can become: extension, sizeLineFeed
    case `extension`  // of a chunk extension; can become: sizeLineFeed
    case sizeLineFeed  // the end of that line; can become: data, trailerStart
    case data  // of the chunk; can become: dataReturn
    case dataReturn  // the first of a chunk's two last bytes; can become: dataLineFeed
    case dataLineFeed  // the second; can become: size
    case trailerStart  // the first of a trailer line or of the empty line; can become: trailer, lastLineFeed
    case trailer  // of a trailer line; can become: trailerLineFeed
    case trailerLineFeed  // the end of a trailer line; can become: trailerStart
    case lastLineFeed  // the end of the empty line; can become: done
    case done  // not of this body
  }

  /// The maximum size of a chunk's extensions.
  public static let maximumExtensionByteCount = 256
  /// The maximum size of all trailers.
  public static let maximumTrailerByteCount = 8 << 10
  private static let maximumSizeDigitCount = 16

  private var phase: Phase
  private var byteCountLeft: UInt64
  private var lineByteCount: UInt16 = 0

  /// Starts with a body that follows directly.
  public init(_ framing: RequestHead.BodyFraming) {
    switch framing {
    case .none, .length(0): (phase, byteCountLeft) = (.done, 0)
    case .length(let count): (phase, byteCountLeft) = (.fixed, count)
    case .chunked: (phase, byteCountLeft) = (.size, 0)
    }
  }

  /// Continues with a state from ``saved``, which may have been damaged.
  ///
  /// - Returns: nil for a state that no decoder can have.
  package init?(_ saved: Saved) {
    guard let phase = Phase(rawValue: saved.phase) else { return nil }
    let lineLimit: Int
    switch phase {
    case .size: lineLimit = Self.maximumSizeDigitCount
    case .extension: lineLimit = Self.maximumExtensionByteCount
    case .trailerStart, .trailer, .trailerLineFeed, .lastLineFeed: lineLimit = Self.maximumTrailerByteCount
    case .fixed, .sizeLineFeed, .data, .dataReturn, .dataLineFeed, .done: lineLimit = 0
    }
    let hasData = phase == .fixed || phase == .data
    let hasSize = phase == .size || phase == .extension || phase == .sizeLineFeed
    guard saved.lineByteCount <= lineLimit, hasSize || hasData == (saved.byteCountLeft > 0),
      phase != .size || saved.lineByteCount > 0 || saved.byteCountLeft == 0
    else { return nil }
    (self.phase, byteCountLeft, lineByteCount) = (phase, saved.byteCountLeft, saved.lineByteCount)
  }

  /// The state between two inputs.
  package var saved: Saved {
    var saved = Saved()
    (saved.phase, saved.byteCountLeft, saved.lineByteCount) = (phase.rawValue, byteCountLeft, lineByteCount)
    return saved
  }

  /// Whether the body is complete.
  public var isDone: Bool { phase == .done }

  /// Returns the next part of the body.
  ///
  /// - Parameter offset: where to continue in `bytes`; set to the first byte that is not consumed. Bytes before it are
  ///   not needed any more.
  /// - Throws: 400, or 431 for too many trailers. The connection cannot be used any more, except for the response.
  /// - Complexity: O(bytes of chunk headers and trailers), independent of the splits; data costs nothing.
  public mutating func next(in bytes: Span<UInt8>, from offset: inout Int) throws(Rejection) -> Step {
    while phase != .done {
      guard offset < bytes.count else { return .needsBytes }
      guard phase == .fixed || phase == .data else {
        try receive(bytes[offset])
        offset += 1
        continue
      }
      let count = Int(min(byteCountLeft, UInt64(bytes.count - offset)))
      defer { offset += count }
      byteCountLeft -= UInt64(count)
      if byteCountLeft == 0 { phase = phase == .fixed ? .done : .dataReturn }
      return .data(offset..<offset + count)
    }
    return .end
  }

  /// Processes a byte that is not data.
  private mutating func receive(_ byte: UInt8) throws(Rejection) {
    switch (phase, byte) {
    case (.size, .semicolon) where lineByteCount > 0: (phase, lineByteCount) = (.extension, 1)
    case (.size, .carriageReturn) where lineByteCount > 0, (.extension, .carriageReturn):
      (phase, lineByteCount) = (.sizeLineFeed, 0)
    case (.size, _):
      guard let digit = byte.hexValue else { throw .malformed("a chunk's size is malformed") }
      guard lineByteCount < Self.maximumSizeDigitCount else { throw .malformed("a chunk's size is too large") }
      byteCountLeft = byteCountLeft << 4 | UInt64(digit)
      lineByteCount += 1
    case (.extension, _):
      guard byte.isFieldText else { throw .malformed("a chunk's extension contains a control character") }
      guard lineByteCount < Self.maximumExtensionByteCount else {
        throw .malformed("a chunk's extensions exceed \(Self.maximumExtensionByteCount) bytes")
      }
      lineByteCount += 1
    case (.sizeLineFeed, .lineFeed): phase = byteCountLeft > 0 ? .data : .trailerStart
    case (.dataReturn, .carriageReturn): phase = .dataLineFeed
    case (.dataLineFeed, .lineFeed): phase = .size
    case (.trailerStart, .carriageReturn): phase = .lastLineFeed
    case (.trailer, .carriageReturn): phase = .trailerLineFeed
    case (.trailerStart, _), (.trailer, _):
      guard byte.isFieldText else { throw .malformed("a trailer contains a control character") }
      guard lineByteCount < Self.maximumTrailerByteCount else {
        throw Rejection(.requestHeaderFieldsTooLarge, "the trailers exceed \(Self.maximumTrailerByteCount) bytes")
      }
      lineByteCount += 1
      phase = .trailer
    case (.trailerLineFeed, .lineFeed): phase = .trailerStart
    case (.lastLineFeed, .lineFeed): (phase, lineByteCount) = (.done, 0)
    case (.sizeLineFeed, _), (.trailerLineFeed, _), (.lastLineFeed, _):
      throw .malformed("a carriage return between chunks is not followed by a line feed")
    case (.dataReturn, _), (.dataLineFeed, _): throw .malformed("a chunk is longer than its size")
    case (.fixed, _), (.data, _), (.done, _): return  // not passed to this function
    }
  }
}
