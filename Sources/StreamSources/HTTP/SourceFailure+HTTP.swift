import CCurl
import Glibc
import StreamRuntime

extension SourceFailure {
  static let malformedURL = SourceFailure("not a valid URL")
  static let otherScheme = SourceFailure("not an http or https URL")
  static let redirectedToOtherScheme = SourceFailure("redirected to a scheme other than http or https")
  static let redirectedToMalformedURL = SourceFailure("redirected to something that is not a URL")

  /// A streaming response did not begin in time.
  static func noAnswer(from place: String, within timeout: Duration) -> SourceFailure {
    SourceFailure("no response from \(place) within \(timeout.inWords)")
  }

  /// A response with an unexpected status. The phrase is ours: the server's own text does not belong in the journal.
  static func status(_ status: Int, retryAfter: Duration?) -> SourceFailure {
    let phrase = phrases[status].map { " " + $0 } ?? ""
    let pause = retryAfter.map { $0 > .zero ? " (Retry-After: \($0.inWords))" : "" } ?? ""
    var failure = SourceFailure("HTTP \(status)\(phrase)\(pause)", retryAfter: retryAfter)
    failure.status = status
    return failure
  }

  /// - Parameters:
  ///   - code: libcurl's result.
  ///   - hop: the URL of the failed request.
  ///   - easy: the transfer, for details of the failure.
  ///   - detail: the transfer's error buffer. It is used for TLS, where it describes the error of the certificate, and
  ///     for malformed responses. Other texts may contain bytes of the server.
  static func transport(
    _ code: CURLcode, of request: UpstreamRequest, to hop: HTTPURL, _ easy: UnsafeMutableRawPointer, detail: String
  ) -> SourceFailure {
    let (proxy, place) = (request.proxy, unsafe place(of: request, to: hop, easy))
    var (connectStatus, status, connections) = (0, 0, 0)
    unsafe curl_easy_get_long(easy, CURLINFO_RESPONSE_CODE, &status)
    unsafe curl_easy_get_long(easy, CURLINFO_NUM_CONNECTS, &connections)
    let isFresh = status == 0 && connections > 0
    if let flaw = flaw(in: detail) { return SourceFailure("the response of \(place) is malformed: \(flaw)") }
    unsafe curl_easy_get_long(easy, CURLINFO_HTTP_CONNECTCODE, &connectStatus)
    if connectStatus >= 300 {
      let phrase = phrases[connectStatus].map { " " + $0 } ?? ""
      return SourceFailure("\(named(proxy)) answered HTTP \(connectStatus)\(phrase)")
    }
    switch code {
    case CURLE_COULDNT_RESOLVE_HOST: return SourceFailure("could not resolve host \(hop.origin.host)")
    case CURLE_COULDNT_RESOLVE_PROXY: return SourceFailure("could not resolve the host of \(named(proxy))")
    case CURLE_COULDNT_CONNECT:
      var error = 0
      unsafe curl_easy_get_long(easy, CURLINFO_OS_ERRNO, &error)
      let reason = unsafe error == 0 ? "" : ": " + String(cString: strerror(CInt(truncatingIfNeeded: error)))
      let fromEnvironment =
        HTTPProxy.isInEnvironment ? request.proxyOfEnvironment(in: detail, insteadOf: hop.origin) : nil
      let other = proxy.map { named($0) } ?? fromEnvironment
      return SourceFailure("could not connect to \(other ?? place)\(reason)")
    case CURLE_UNSUPPORTED_PROTOCOL, CURLE_WEIRD_SERVER_REPLY: return SourceFailure("\(place) did not reply with HTTP")
    case CURLE_PROXY: return SourceFailure("\(named(proxy)) rejected the request")
    case CURLE_OPERATION_TIMEDOUT:
      let within = request.timeout.map { " within \($0.inWords)" } ?? ""
      return SourceFailure("no complete response from \(place)\(within)")
    case CURLE_PARTIAL_FILE, CURLE_GOT_NOTHING, CURLE_RECV_ERROR, CURLE_SEND_ERROR, CURLE_HTTP2_STREAM:
      // In TLS 1.3 a server that refuses the client's certificate reports it only after the request.
      if let alert = alert(in: detail) { return tls(place, alert) }
      if isFresh, hop.origin.scheme == "https", place == request.place(of: hop),
        code == CURLE_RECV_ERROR || code == CURLE_SEND_ERROR
      {
        return tls(place, "the server closed the connection; it may require another client certificate")
      }
      return SourceFailure("\(place) closed the connection before the response was complete")
    case CURLE_SSL_CONNECT_ERROR, CURLE_PEER_FAILED_VERIFICATION, CURLE_SSL_CERTPROBLEM, CURLE_SSL_CIPHER,
      CURLE_SSL_CACERT_BADFILE, CURLE_SSL_ISSUER_ERROR:
      // Some of libcurl's texts end with a space.
      let text = String(detail.reversed().drop { $0 == " " }.reversed())
      return tls(place, alert(in: detail) ?? (text.isEmpty ? reason(of: code) : text))
    case CURLE_OUT_OF_MEMORY where status == 0 || detail.isEmpty:
      // libcurl's limit of a header line is 100 KiB (CURL_MAX_HTTP_HEADER).
      return SourceFailure("a header line of \(place) is over 100 KiB")
    default: return SourceFailure("transfer from \(place) failed: \(reason(of: code))")
    }
  }

  /// Names the one that has to answer: the upstream, or the proxy that is to make a tunnel to it.
  static func place(of request: UpstreamRequest, to hop: HTTPURL, _ easy: UnsafeMutableRawPointer) -> String {
    var (connectStatus, connections) = (0, 0)
    unsafe curl_easy_get_long(easy, CURLINFO_HTTP_CONNECTCODE, &connectStatus)
    unsafe curl_easy_get_long(easy, CURLINFO_NUM_CONNECTS, &connections)
    guard let proxy = request.proxy, proxy.url.hasPrefix("http"), connections > 0, connectStatus == 0,
      hop.origin.scheme == "https" || request.offer != nil
    else { return request.place(of: hop) }
    return named(proxy)
  }

  /// What is malformed in a response, where libcurl has only a code that means many things.
  private static func flaw(in detail: String) -> String? {
    flaws.first { detail.contains($0.text) }?.flaw
  }

  /// Texts of libcurl's `http.c` and `http_chunks.c`.
  private static let flaws = [
    ("chunked-encoding", "its chunks cannot be decoded"), ("Chunk", "its chunks cannot be decoded"),
    ("Content-Length: value", "its Content-Length is not a number"), ("Nul byte in header", "a header has a NUL byte"),
    ("Header without colon", "a header has no colon"), ("HTTP version", "its HTTP version is not supported"),
  ].map { (text: $0.0, flaw: $0.1) }

  private static func tls(_ place: String, _ reason: String) -> SourceFailure {
    SourceFailure("TLS with \(place) failed: \(reason)")
  }

  /// The TLS alert of the peer, where OpenSSL reports `error:0A000412:SSL routines::sslv3 alert bad certificate, …`.
  private static func alert(in detail: String) -> String? {
    guard let start = detail.firstRange(of: " alert ")?.upperBound else { return nil }
    let alert = String(detail[start...].prefix { $0 != "," })
    switch alert {
    case "certificate required": return "the server requires a client certificate"
    case _ where alert.contains("certificate") || alert == "unknown ca":
      return "the server rejected the client certificate: \(alert)"
    default: return "the server sent the alert: \(alert)"
    }
  }

  /// Named only if the configuration sets it. libcurl reads the environment's proxy itself.
  private static func named(_ proxy: HTTPProxy?) -> String {
    "the proxy" + (proxy.map { " " + $0.authority } ?? "")
  }

  private static func reason(of code: CURLcode) -> String { unsafe String(cString: curl_easy_strerror(code)) }

  /// RFC 9110, 15: the statuses that operators meet.
  private static let phrases = [
    204: "No Content", 206: "Partial Content", 300: "Multiple Choices", 304: "Not Modified", 400: "Bad Request",
    401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed", 406: "Not Acceptable",
    407: "Proxy Authentication Required", 408: "Request Timeout", 410: "Gone", 429: "Too Many Requests",
    500: "Internal Server Error", 502: "Bad Gateway", 503: "Service Unavailable", 504: "Gateway Timeout",
  ]
}
