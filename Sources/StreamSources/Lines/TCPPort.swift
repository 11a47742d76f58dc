import CCurl
import Glibc
import StreamRuntime

/// Connects over TCP, if asked for with TLS, and then is the connection. Confined to the source thread.
///
/// libcurl resolves the name, tries its addresses, and makes the TLS connection. It has a client of its own: libcurl closes
/// idle connections from time to time when another transfer begins, and regards this one as idle.
@safe final class TCPPort: LinePort, HTTPClient.Activity {
  /// The time for the name, the connection and TLS.
  static let timeout = Duration.seconds(30)

  private let client: HTTPClient
  private let request: UpstreamRequest
  private var easy: UnsafeMutableRawPointer?
  private var connectionList: UnsafeMutablePointer<curl_slist>?
  private let errorBuffer = UnsafeMutablePointer<CChar>.allocate(capacity: Int(CURL_ERROR_SIZE))
  private var completed: ((SourceFailure?) -> Void)?
  private(set) var descriptor: CInt = -1

  /// With TLS, OpenSSL may have read more than it has returned.
  var holdsBytes: Bool { request.url.origin.scheme == "https" }
  let waitsForNothing = false

  /// - Throws: when the host is none, or memory is exhausted.
  init(host: String, port: UInt16, tls: HTTPTrust?, on loop: EventLoop) throws(SourceFailure) {
    guard let client = HTTPClient(on: loop, transfersPerHost: 1) else { throw SourceFailure("out of memory") }
    let place = host.contains(":") ? "[\(host)]" : host
    let url = try HTTPURL("\(tls == nil ? "http" : "https")://\(place):\(port)/", adding: [])
    self.client = client
    request = UpstreamRequest(url: url, route: .direct, trust: tls ?? HTTPTrust(), userAgent: "")
    unsafe errorBuffer[0] = 0
  }

  deinit {
    unsafe curl_slist_free_all(connectionList)
    unsafe errorBuffer.deallocate()
  }

  /// - Parameter completed: called once, unless it is closed before: nil if it is open.
  func connect(completed: @escaping (SourceFailure?) -> Void) {
    self.completed = completed
    client.outsideCurl { [self] in
      guard let easy = unsafe curl_easy_init() else { return fail(SourceFailure("out of memory")) }
      unsafe self.easy = unsafe easy
      guard unsafe configure(easy), unsafe client.add(easy, self) else { return fail(SourceFailure("out of memory")) }
      client.actNow()
    }
  }

  /// Closes the connection, in TLS with its alert.
  func close() {
    completed = nil
    guard let easy = unsafe easy else { return }
    unsafe self.easy = nil
    unsafe client.remove(easy)
    unsafe curl_easy_cleanup(easy)
    client.shutDown()
  }

  private func configure(_ easy: UnsafeMutableRawPointer) -> Bool {
    if let connection = request.connection {
      unsafe connectionList = unsafe curl_slist_append(nil, connection)
      guard unsafe connectionList != nil else { return false }
      unsafe curl_easy_set_pointer(easy, CURLOPT_CONNECT_TO, connectionList)
    }
    for (option, value) in request.options {
      guard unsafe curl_easy_set_string(easy, option, value) == CURLE_OK else { return false }
    }
    unsafe curl_easy_set_long(easy, CURLOPT_CONNECT_ONLY, 1)
    unsafe curl_easy_set_long(easy, CURLOPT_CONNECTTIMEOUT_MS, Self.timeout.wholeMilliseconds)
    unsafe curl_easy_set_long(easy, CURLOPT_SSL_ENABLE_ALPN, 0)  // the protocol is not HTTP
    unsafe curl_easy_set_long(easy, CURLOPT_NOSIGNAL, 1)
    unsafe curl_easy_set_long(easy, CURLOPT_TCP_KEEPALIVE, 1)  // detects a host that has disappeared
    unsafe curl_easy_set_long(easy, CURLOPT_QUICK_EXIT, 1)  // as in `Transfer`
    unsafe curl_easy_set_pointer(easy, CURLOPT_ERRORBUFFER, errorBuffer)
    return true
  }

  // MARK: HTTPClient.Activity

  func ended(_ result: CURLcode) {
    guard let easy = unsafe easy, let completed = completed.take() else { return }
    if result == CURLE_OK {
      var socket = curl_socket_t(-1)
      unsafe curl_easy_get_socket(easy, &socket)
      descriptor = socket
    }
    completed(descriptor >= 0 ? nil : unsafe failure(result, easy))
  }

  func fail(_ failure: SourceFailure) { completed.take()?(failure) }

  func cancel() {}

  private func failure(_ code: CURLcode, _ easy: UnsafeMutableRawPointer) -> SourceFailure {
    let url = request.url
    guard code == CURLE_OPERATION_TIMEDOUT else {
      return unsafe .transport(code, of: request, to: url, easy, detail: String(cString: errorBuffer))
    }
    return SourceFailure("no connection to \(url.origin.authority) within \(Self.timeout.inWords)")
  }

  // MARK: LinePort

  func read(into room: UnsafeMutableRawBufferPointer) throws(SourceFailure) -> LinePortInput {
    guard let easy = unsafe easy else { return .end }
    var count = 0
    switch unsafe curl_easy_recv(easy, room.baseAddress, room.count, &count) {
    case CURLE_OK: return count == 0 ? .end : .bytes(count)
    case CURLE_AGAIN: return .nothing
    case let code: throw unsafe lost(code, easy)
    }
  }

  func write(_ bytes: UnsafeRawBufferPointer) throws(SourceFailure) -> Int {
    guard let easy = unsafe easy else { return 0 }
    var count = 0
    switch unsafe curl_easy_send(easy, bytes.baseAddress, bytes.count, &count) {
    case CURLE_OK: return count
    case CURLE_AGAIN: return 0
    case let code: throw unsafe lost(code, easy)
    }
  }

  private func lost(_ code: CURLcode, _ easy: UnsafeMutableRawPointer) -> SourceFailure {
    // In TLS 1.3 a server that refuses the client's certificate reports it only after the connection is made.
    let detail = unsafe String(cString: errorBuffer)
    if detail.contains(" alert ") { return unsafe .transport(code, of: request, to: request.url, easy, detail: detail) }
    return SourceFailure("the connection to \(request.url.origin.authority) was lost")
  }
}
