/// What a client says first: the terms of the connection.
public struct Setup: Equatable, Sendable {
  /// Of the protocol; only 1.0 is spoken here.
  public var majorVersion: UInt16 = 1
  /// Of the protocol; only 1.0 is spoken here.
  public var minorVersion: UInt16 = 0
  /// How often the client will send KEEPALIVE. On the wire in milliseconds, 1...2^31-1: clamped when encoded.
  public var keepaliveInterval: Duration
  /// After this much silence the other side is dead. Milliseconds on the wire, clamped as the interval is.
  public var maximumLifetime: Duration
  /// `nil`: no resumption asked for.
  public var resumeToken: [UInt8]?
  /// The client will wait for a LEASE before it sends a request.
  public var honorsLease: Bool
  /// What request metadata is; at most 255 bytes of UTF-8.
  public var metadataMIMEType: String
  /// What request data is; at most 255 bytes of UTF-8.
  public var dataMIMEType: String
  /// For the application; streamd makes no use of it.
  public var payload: Payload

  /// Terms for version 1.0 without resumption; the defaults suit streamd.
  public init(
    keepaliveInterval: Duration = .seconds(20), maximumLifetime: Duration = .seconds(90),
    honorsLease: Bool = false, metadataMIMEType: String = MetadataFormat.routing.mimeType,
    dataMIMEType: String = "application/json", payload: Payload = Payload()
  ) {
    self.keepaliveInterval = keepaliveInterval
    self.maximumLifetime = maximumLifetime
    self.honorsLease = honorsLease
    self.metadataMIMEType = metadataMIMEType
    self.dataMIMEType = dataMIMEType
    self.payload = payload
  }
}

extension Duration {
  /// A span as the wire has it.
  static func wire(_ milliseconds: UInt32) -> Duration { .milliseconds(Int64(milliseconds)) }

  /// Whole milliseconds, between zero and 2^31-1: every span on the wire has 31 bits.
  var wireMilliseconds: UInt32 {
    let (seconds, attoseconds) = components
    guard seconds >= 0, attoseconds >= 0 else { return 0 }
    let milliseconds = min(seconds, 1 << 31) * 1_000 + attoseconds / 1_000_000_000_000_000
    return UInt32(min(milliseconds, 0x7fff_ffff))
  }
}
