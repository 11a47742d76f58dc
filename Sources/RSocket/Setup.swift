/// The terms of a connection, which a client sends first.
public struct Setup: Equatable, Sendable {
  /// The major version of the protocol; only 1.0 is supported.
  public var majorVersion: UInt16 = 1
  /// The minor version of the protocol; only 1.0 is supported.
  public var minorVersion: UInt16 = 0
  /// The interval between the client's KEEPALIVE frames. On the wire in milliseconds, 1...2^31-1: clamped when encoded.
  public var keepaliveInterval: Duration
  /// The time of silence after which the other side is considered dead. Milliseconds on the wire, clamped as the
  /// interval is.
  public var maximumLifetime: Duration
  /// The token for resumption; `nil`: none requested.
  public var resumeToken: [UInt8]?
  /// Whether the client waits for a LEASE before it sends a request.
  public var honorsLease: Bool
  /// The type of request metadata; at most 255 bytes of UTF-8.
  public var metadataMIMEType: String
  /// The type of request data; at most 255 bytes of UTF-8.
  public var dataMIMEType: String
  /// A payload for the application. Its metadata may have a token: ``MetadataFormat/bearerToken(in:)``.
  public var payload: Payload

  /// Creates terms for version 1.0 without resumption; the defaults suit streamd.
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
  /// Converts a duration from the wire.
  static func wire(_ milliseconds: UInt32) -> Duration { .milliseconds(Int64(milliseconds)) }

  /// The duration in whole milliseconds, clamped to 0...2^31-1: every duration on the wire has 31 bits.
  var wireMilliseconds: UInt32 {
    let (seconds, attoseconds) = components
    guard seconds >= 0, attoseconds >= 0 else { return 0 }
    let milliseconds = min(seconds, 1 << 31) * 1_000 + attoseconds / 1_000_000_000_000_000
    return UInt32(min(milliseconds, 0x7fff_ffff))
  }
}
