/// What one connection may ask of us. Each limit has a defined answer at it.
public struct ConnectionLimits: Equatable, Sendable {
  /// Metadata and data of one reassembled request or value. For a server also of everything on the connection that is still
  /// half assembled; over it: CONNECTION_ERROR. A client cancels a request one of whose values has more data, and that request
  /// alone fails. Default 16 MiB - 1, the longest frame there is.
  public var maximumRequestBytes: Int {
    get { Int(requestBytes) }
    set { requestBytes = UInt32(clamping: newValue) }
  }
  /// One frame without its u24 length. Over it: CONNECTION_ERROR as soon as the length is seen.
  public var maximumFrameBytes: Int {
    get { Int(frameBytes) }
    set { frameBytes = UInt32(clamping: newValue) }
  }
  /// Requests alive at once. Over it: REJECTED for that request. Default 256.
  public var maximumRequests: Int {
    get { Int(requests) }
    set { requests = UInt32(clamping: newValue) }
  }

  // Small, as every connection has them.
  private var requestBytes, frameBytes, requests: UInt32

  /// - Parameter maximumFrameBytes: `nil` takes what `maximumRequestBytes` says, as far as a u24 goes.
  public init(
    maximumRequestBytes: Int = 0xff_ffff, maximumFrameBytes: Int? = nil, maximumRequests: Int = 256
  ) {
    requestBytes = UInt32(clamping: maximumRequestBytes)
    frameBytes = UInt32(clamping: min(maximumFrameBytes ?? maximumRequestBytes, FrameLayout.maximumByteCount))
    requests = UInt32(clamping: maximumRequests)
  }
}
