/// One frame of RSocket 1.0, decoded. Frames about the connection carry no stream ID: theirs is always zero.
///
/// Numbers are as the wire has them, also when they break a rule (a demand of 0): judging is the machine's part.
public enum Frame: Equatable, Sendable {
  /// The client's first frame.
  indirect case setup(Setup)
  /// Allows `count` requests for `timeToLive` (milliseconds on the wire); replaces the lease before it.
  case lease(timeToLive: Duration, count: UInt32, metadata: [UInt8]?)
  /// A sign of life; `position` belongs to resumption and is 0 without it.
  case keepalive(respond: Bool, position: UInt64, data: [UInt8])
  /// Opens a request. `initialRequest` is 1 for a response, 0 for fire-and-forget, neither of which sends it;
  /// `isComplete` exists for a channel only. `follows`: PAYLOAD frames of the same ID bring the rest.
  case request(StreamID, RequestKind, initialRequest: UInt32, Payload, follows: Bool, isComplete: Bool)
  /// More demand.
  case requestN(StreamID, UInt32)
  /// The requester wants no more.
  case cancel(StreamID)
  /// A value, a fragment, the end, or a value and the end.
  case payload(StreamID, Payload, follows: Bool, isComplete: Bool, isNext: Bool)
  /// The end of a request, or with ID zero of the connection. Text that is not UTF-8 is repaired.
  case error(StreamID, ErrorCode, String)
  /// Metadata about the connection.
  case metadataPush([UInt8])
  /// Instead of SETUP: go on where another connection broke off.
  case resume(token: [UInt8], serverPosition: UInt64, clientPosition: UInt64)
  /// The answer to RESUME.
  case resumeOK(clientPosition: UInt64)
  /// Anything that was added to RSocket later; what `body` holds depends on `type` (31 bits).
  case ext(StreamID, type: UInt32, isIgnorable: Bool, hasMetadata: Bool, body: [UInt8])
}

/// The bits in a frame's header; what 0x80 and 0x40 mean depends on the frame's type.
public struct FrameFlags: OptionSet, Sendable {
  /// The lower ten bits of the header's last two bytes.
  public let rawValue: UInt16

  /// Any combination of bits; those that a type does not define are ignored.
  @inlinable public init(rawValue: UInt16) { self.rawValue = rawValue }

  /// Not understood means skipped.
  public static let ignore = FrameFlags(rawValue: 0x200)
  /// Metadata is present.
  @inlinable public static var metadata: FrameFlags { FrameFlags(rawValue: 0x100) }
  /// More fragments come.
  public static let follows = FrameFlags(rawValue: 0x80)
  /// The sender's half of the request ends here.
  public static let complete = FrameFlags(rawValue: 0x40)
  /// A value is in here.
  public static let next = FrameFlags(rawValue: 0x20)
  static let resume = FrameFlags(rawValue: 0x80)
  static let respond = FrameFlags(rawValue: 0x80)
  static let lease = FrameFlags(rawValue: 0x40)

  func with(_ flag: FrameFlags, if condition: Bool) -> FrameFlags { condition ? union(flag) : self }
}

/// The six bits before the flags.
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

/// Sizes that both directions share.
@usableFromInline enum FrameLayout {
  /// The u24 that a stream transport puts before each frame; it does not count itself.
  @inlinable static var lengthByteCount: Int { 3 }
  /// Stream ID, type and flags.
  @inlinable static var headerByteCount: Int { 6 }
  /// What a u24 can say.
  static let maximumByteCount = 0xff_ffff
}
