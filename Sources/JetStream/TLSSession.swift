import CTLS

/// The client's side of a TLS connection, in memory. It never blocks: the caller moves the bytes between it and the
/// network.
@safe final class TLSSession {
  private let context: OpaquePointer
  private let session: OpaquePointer
  /// Received bytes that are not decrypted yet. Owned by the session, as is `outlet`.
  private let inlet: OpaquePointer
  /// Encrypted bytes to send.
  private let outlet: OpaquePointer

  /// - Parameters:
  ///   - host: the server must have a certificate for it.
  ///   - options: name the files of authorities and of the client's certificate, which are read now.
  init(to host: String, _ options: JetStreamOptions) throws(NATSFailure) {
    ERR_clear_error()
    guard let context = unsafe tls_new_context() else { throw Self.failure("OpenSSL does not start") }
    unsafe self.context = unsafe context
    let isTrustLoaded =
      unsafe options.authoritiesFile.map { unsafe SSL_CTX_load_verify_file(context, $0) }
      ?? SSL_CTX_set_default_verify_paths(context)
    var problem: String?
    if isTrustLoaded != 1 {
      problem = "the file of authorities cannot be used"
    } else if let certificate = options.certificateFile, let key = options.keyFile,
      unsafe SSL_CTX_use_certificate_chain_file(context, certificate) != 1
        || SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) != 1
    {
      problem = "the client certificate or its key cannot be used"
    }
    guard problem == nil, let session = unsafe SSL_new(context) else {
      defer { unsafe SSL_CTX_free(context) }
      throw Self.failure(problem ?? "OpenSSL does not start")
    }
    guard unsafe tls_expect_host(session, host), let inlet = unsafe BIO_new(BIO_s_mem()),
      let outlet = unsafe BIO_new(BIO_s_mem())
    else {
      defer {
        unsafe SSL_free(session)
        unsafe SSL_CTX_free(context)
      }
      throw Self.failure("the name of the host cannot be checked")
    }
    unsafe SSL_set_bio(session, inlet, outlet)
    unsafe SSL_set_connect_state(session)
    (unsafe self.session, unsafe self.inlet, unsafe self.outlet) = unsafe (session, inlet, outlet)
  }

  deinit {
    unsafe SSL_free(session)
    unsafe SSL_CTX_free(context)
  }

  /// Takes received bytes.
  func receive(_ bytes: UnsafeRawBufferPointer) throws(NATSFailure) {
    let count = CInt(clamping: bytes.count)
    guard unsafe BIO_write(inlet, bytes.baseAddress, count) == count else { throw Self.failure("out of memory") }
  }

  /// Moves the bytes to send to the end of `bytes`.
  func takeOutput(to bytes: inout [UInt8]) {
    let count = unsafe BIO_ctrl_pending(outlet)
    guard count > 0 else { return }
    let start = bytes.count
    bytes.append(contentsOf: repeatElement(0, count: count))
    let read = unsafe bytes.withUnsafeMutableBytes { buffer in
      let rest = unsafe UnsafeMutableRawBufferPointer(rebasing: buffer[start...])
      return unsafe BIO_read(outlet, rest.baseAddress, CInt(clamping: rest.count))
    }
    bytes.removeLast(count - max(0, Int(read)))
  }

  /// - Returns: true once the handshake is complete and the server is verified; false: more bytes must be received
  ///   first.
  func shakeHands() throws(NATSFailure) -> Bool {
    ERR_clear_error()
    let result = unsafe SSL_do_handshake(session)
    if result == 1 { return true }
    try checkThatMoreIsMissing(result)
    return false
  }

  /// - Returns: the number of decrypted bytes; nil: more bytes must be received first.
  func read(into buffer: UnsafeMutableRawBufferPointer) throws(NATSFailure) -> Int? {
    ERR_clear_error()
    let count = unsafe SSL_read(session, buffer.baseAddress, CInt(clamping: buffer.count))
    if count > 0 { return Int(count) }
    try checkThatMoreIsMissing(count)
    return nil
  }

  /// Encrypts bytes, at most 1 GiB. Requires a complete handshake.
  func write(_ bytes: ArraySlice<UInt8>) throws(NATSFailure) {
    guard !bytes.isEmpty else { return }
    ERR_clear_error()
    let count = unsafe bytes.withUnsafeBytes { unsafe SSL_write(session, $0.baseAddress, CInt(clamping: $0.count)) }
    guard count == bytes.count else { throw Self.failure("TLS fails") }  // a buffer in memory accepts all bytes
  }

  private func checkThatMoreIsMissing(_ result: CInt) throws(NATSFailure) {
    switch unsafe SSL_get_error(session, result) {
    case SSL_ERROR_WANT_READ: return
    case SSL_ERROR_ZERO_RETURN: throw .closed
    case _:
      let verdict = unsafe SSL_get_verify_result(session)
      guard verdict != X509_V_OK else { throw Self.failure("TLS fails") }
      throw NATSFailure(
        reason: "the server's certificate is refused: \(unsafe String(cString: X509_verify_cert_error_string(verdict)))"
      )
    }
  }

  /// The reason of the first error that OpenSSL has recorded since the last call.
  private static var reason: String? {
    unsafe ERR_reason_error_string(ERR_get_error()).map { unsafe String(cString: $0) }
  }

  private static func failure(_ text: String) -> NATSFailure {
    NATSFailure(reason: reason.map { "\(text): \($0)" } ?? text)
  }
}
