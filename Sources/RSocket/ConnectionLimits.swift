/// The limits of one connection. Each limit has a defined reaction when it is reached.
public struct ConnectionLimits: Equatable, Sendable {
  /// Bytes of metadata and data of one reassembled request or value. For a server, also of all incomplete requests and
  /// values of the connection; above it: CONNECTION_ERROR. A client cancels a request when one of its values has more
  /// data; only that request fails. Default 16 MiB - 1, the largest frame.
  public var maximumRequestBytes: Int {
    get { Int(requestBytes) }
    set { requestBytes = UInt32(clamping: newValue) }
  }
  /// Bytes of one frame without its u24 length. Above it: CONNECTION_ERROR as soon as the length is read.
  public var maximumFrameBytes: Int {
    get { Int(frameBytes) }
    set { frameBytes = UInt32(clamping: newValue) }
  }
  /// The number of concurrent requests. Above it: REJECTED for that request. Default 256.
  public var maximumRequests: Int {
    get { Int(requests) }
    set { requests = UInt32(clamping: newValue) }
  }

  // Small, because every connection has them.
  private var requestBytes, frameBytes, requests: UInt32

  /// - Parameter maximumFrameBytes: `nil` uses `maximumRequestBytes`, up to the maximum of a u24.
  public init(
    maximumRequestBytes: Int = 0xff_ffff, maximumFrameBytes: Int? = nil, maximumRequests: Int = 256
  ) {
    requestBytes = UInt32(clamping: maximumRequestBytes)
    frameBytes = UInt32(clamping: min(maximumFrameBytes ?? maximumRequestBytes, FrameLayout.maximumByteCount))
    requests = UInt32(clamping: maximumRequests)
  }
}
