import Glibc
import StreamRuntime

/// A connected or connecting socket, with its encryption, if any. Never blocks.
@safe final class NATSTransport {
  private let descriptor: OwnedDescriptor
  private var session: TLSSession?
  /// Encrypted bytes for the socket; the first `sentByteCount` are sent.
  private var encrypted: [UInt8] = []
  private var sentByteCount = 0
  /// A buffer for received encrypted bytes.
  private let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 64 << 10, alignment: 16)

  /// The maximum number of bytes that are encrypted before the socket has accepted the previous ones.
  private static let pieceByteCount = 64 << 10
  /// The maximum number of encrypted bytes that OpenSSL may add by itself, for a server that does not read.
  private static let encryptedByteLimit = 1 << 20

  init(_ descriptor: consuming OwnedDescriptor) { self.descriptor = descriptor }

  deinit { unsafe buffer.deallocate() }

  /// The descriptor to watch, valid as long as this object exists.
  var socket: CInt { descriptor.raw }

  var isSecure: Bool { session != nil }

  /// The number of bytes that the socket has accepted.
  private(set) var takenByteCount: UInt64 = 0

  /// Whether bytes from `send` or of a handshake wait until the socket is writable.
  var hasUnsent: Bool { sentByteCount < encrypted.count }

  /// Called when the socket is writable for the first time.
  func finishConnecting() throws(NATSFailure) {
    var (code, size) = (0 as CInt, socklen_t(MemoryLayout<CInt>.size))
    guard unsafe getsockopt(socket, SOL_SOCKET, SO_ERROR, &code, &size) == 0 else { throw NATSFailure(code: errno) }
    guard code == 0 else { throw NATSFailure(code: code) }
  }

  func beginTLS(to host: String, _ options: JetStreamOptions) throws(NATSFailure) {
    session = try TLSSession(to: host, options)
  }

  /// Continues the handshake with the received bytes.
  /// - Returns: whether the handshake is complete.
  func shakeHands() throws(NATSFailure) -> Bool {
    guard let session else { return true }
    while true {
      // A failure leaves an alert to send to the server.
      let outcome: Result<Bool, NATSFailure>
      do throws(NATSFailure) { outcome = .success(try session.shakeHands()) } catch { outcome = .failure(error) }
      try drain()
      if try outcome.get() { return true }
      guard try receiveEncrypted(session) else { return false }
    }
  }

  /// - Returns: the number of received bytes; nil: none now. More may follow even if the socket is not readable.
  /// - Throws: also when the server has closed the connection.
  func receive(into bytes: UnsafeMutableRawBufferPointer) throws(NATSFailure) -> Int? {
    guard let session else { return try unsafe receiveBytes(into: bytes) }
    while true {
      if let count = try unsafe session.read(into: bytes) { return count }
      guard try receiveEncrypted(session) else {
        try drain()  // sends replies of OpenSSL
        return nil
      }
    }
  }

  /// - Parameters:
  ///   - start: the first byte to send.
  ///   - hasMore: whether more follows at once.
  /// - Returns: the number of accepted bytes; 0: the socket must become writable first.
  func send(_ bytes: [UInt8], from start: Int, hasMore: Bool) throws(NATSFailure) -> Int {
    guard let session else { return try sendBytes(bytes, from: start, hasMore: hasMore) }
    try drain()
    guard !hasUnsent else { return 0 }
    let piece = bytes[start...].prefix(Self.pieceByteCount)
    try session.write(piece)
    try drain()
    return piece.count
  }

  /// Sends encrypted bytes until the socket accepts no more.
  func drain() throws(NATSFailure) {
    session?.takeOutput(to: &encrypted)
    guard hasUnsent else { return }
    guard encrypted.count <= Self.encryptedByteLimit else { throw .unread }
    sentByteCount += try sendBytes(encrypted, from: sentByteCount, hasMore: false)
    if !hasUnsent {
      encrypted.removeAll(keepingCapacity: true)
      sentByteCount = 0
    }
  }

  /// - Returns: whether any bytes were received.
  private func receiveEncrypted(_ session: TLSSession) throws(NATSFailure) -> Bool {
    guard let count = try unsafe receiveBytes(into: buffer) else { return false }
    try unsafe session.receive(UnsafeRawBufferPointer(rebasing: buffer[..<count]))
    return true
  }

  private func receiveBytes(into bytes: UnsafeMutableRawBufferPointer) throws(NATSFailure) -> Int? {
    let count = unsafe recv(socket, bytes.baseAddress, bytes.count, 0)
    let code = errno
    if count > 0 { return count }
    if count == 0 { throw .closed }
    guard code == EAGAIN || code == EINTR else { throw NATSFailure(code: code) }
    return nil
  }

  private func sendBytes(_ bytes: [UInt8], from start: Int, hasMore: Bool) throws(NATSFailure) -> Int {
    let flags = CInt(hasMore ? MSG_NOSIGNAL | MSG_MORE : MSG_NOSIGNAL)
    let (count, code) = unsafe bytes[start...].withUnsafeBytes { rest in
      (unsafe Glibc.send(socket, rest.baseAddress, rest.count, flags), errno)
    }
    if count >= 0 {
      takenByteCount &+= UInt64(count)
      return count
    }
    guard code == EAGAIN || code == EINTR else { throw NATSFailure(code: code) }
    return 0
  }
}

extension NATSFailure {
  static let closed = NATSFailure(reason: "the server has closed the connection")
  static let unread = NATSFailure(reason: "the server does not read")
}
