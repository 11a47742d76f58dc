/// One decoded frame of RSocket 1.0. Frames about the connection have no stream ID: it is always zero.
///
/// Numbers are as received, even if they violate a rule (a demand of 0): the machine validates them.
public enum Frame: Equatable, Sendable {
  /// The client's first frame: the terms of the connection.
  indirect case setup(Setup)
  /// Grants `count` requests for `timeToLive` (milliseconds on the wire); replaces the previous lease.
  case lease(timeToLive: Duration, count: UInt32, metadata: [UInt8]?)
  /// Shows that the sender is alive; `position` belongs to resumption and is 0 without it.
  case keepalive(respond: Bool, position: UInt64, data: [UInt8])
  /// Opens a request. `initialRequest` is 1 for a response, 0 for fire-and-forget, and not transmitted for either;
  /// `isComplete` exists for a channel only. `follows`: PAYLOAD frames of the same ID carry the rest.
  case request(StreamID, RequestKind, initialRequest: UInt32, Payload, follows: Bool, isComplete: Bool)
  /// Additional demand.
  case requestN(StreamID, UInt32)
  /// The requester requests no more values.
  case cancel(StreamID)
  /// A value, a fragment, the completion, or a value and the completion.
  case payload(StreamID, Payload, follows: Bool, isComplete: Bool, isNext: Bool)
  /// Ends a request with an error, or with ID zero the connection. Text that is not UTF-8 is repaired.
  case error(StreamID, ErrorCode, String)
  /// Metadata about the connection.
  case metadataPush([UInt8])
  /// Replaces SETUP: resumes a former connection.
  case resume(token: [UInt8], serverPosition: UInt64, clientPosition: UInt64)
  /// The response to RESUME.
  case resumeOK(clientPosition: UInt64)
  /// A frame of an RSocket extension; the content of `body` depends on `type` (31 bits).
  case ext(StreamID, type: UInt32, isIgnorable: Bool, hasMetadata: Bool, body: [UInt8])
}

/// The flags in a frame's header; the meaning of 0x80 and 0x40 depends on the frame's type.
public struct FrameFlags: OptionSet, Sendable {
  /// The lower ten bits of the header's last two bytes.
  public let rawValue: UInt16

  /// Creates any combination of flags; those that a type does not define are ignored.
  @inlinable public init(rawValue: UInt16) { self.rawValue = rawValue }

  /// The frame is skipped if its type is unknown.
  public static let ignore = FrameFlags(rawValue: 0x200)
  /// Metadata is present.
  @inlinable public static var metadata: FrameFlags { FrameFlags(rawValue: 0x100) }
  /// More fragments follow.
  public static let follows = FrameFlags(rawValue: 0x80)
  /// The sender's half of the request ends here.
  public static let complete = FrameFlags(rawValue: 0x40)
  /// The frame contains a value.
  public static let next = FrameFlags(rawValue: 0x20)
  static let resume = FrameFlags(rawValue: 0x80)
  static let respond = FrameFlags(rawValue: 0x80)
  static let lease = FrameFlags(rawValue: 0x40)

  func with(_ flag: FrameFlags, if condition: Bool) -> FrameFlags { condition ? union(flag) : self }
}

/// The type of a frame: the six bits before the flags.
enum FrameType: UInt8 {
  case setup = 0x01
  case lease
  case keepalive
  case requestResponse
  case requestFNF
  case requestStream
  case requestChannel
  case requestN
  case cancel
  case payload
  case error
  case metadataPush
  case resume
  case resumeOK
  case ext = 0x3f

  init(_ kind: RequestKind) {
    switch kind {
    case .response: self = .requestResponse
    case .fireAndForget: self = .requestFNF
    case .stream: self = .requestStream
    case .channel: self = .requestChannel
    }
  }
}

/// Sizes that encoding and decoding share.
@usableFromInline enum FrameLayout {
  /// The u24 length that a stream transport puts before each frame; it does not include itself.
  @inlinable static var lengthByteCount: Int { 3 }
  /// Stream ID, type and flags.
  @inlinable static var headerByteCount: Int { 6 }
  /// The maximum of a u24.
  static let maximumByteCount = 0xff_ffff
}
