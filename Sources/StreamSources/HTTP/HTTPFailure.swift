import CCurl
import Glibc

/// Why a transfer gave nothing: a sentence for the operator, without anything secret.
struct HTTPFailure: Error, Equatable {
  /// Lower case, no full stop, in one line.
  let sentence: String
  /// What the server asked for, from now on; at least 0.
  var retryAfter: Duration?

  init(_ sentence: String, retryAfter: Duration? = nil) {
    self.sentence = sentence
    self.retryAfter = retryAfter
  }

  static let malformedURL = HTTPFailure("not a valid URL")
  static let otherScheme = HTTPFailure("not an http or https URL")
  static let redirectedToOtherScheme = HTTPFailure("redirected to a scheme other than http or https")
  static let redirectedToMalformedURL = HTTPFailure("redirected to something that is not a URL")

  /// Something of the answer is longer than the configuration allows.
  static func over(_ bytes: Int, _ what: String) -> HTTPFailure {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")]
    let unit = units.first { bytes >= $0.0 && bytes % $0.0 == 0 } ?? (1, "B")
    return HTTPFailure("\(what) over \(bytes / unit.0) \(unit.1)")
  }

  /// A response without end that has not begun in time.
  static func noAnswer(from place: String, within timeout: Duration) -> HTTPFailure {
    HTTPFailure("no answer from \(place) within \(seconds(timeout)) s")
  }

  /// An answer that is not what was asked for. The phrase is ours: what the server wrote there is not for our log.
  static func status(_ status: Int, retryAfter: Duration?) -> HTTPFailure {
    HTTPFailure("HTTP \(status)" + (phrases[status].map { " " + $0 } ?? ""), retryAfter: retryAfter)
  }

  /// - Parameters:
  ///   - code: how libcurl ended the transfer.
  ///   - place: who was to answer: a host, or a Unix socket.
  ///   - detail: its error buffer; used for TLS alone, where it says what is wrong with the certificate.
  static func transport(
    _ code: CURLcode, origin: HTTPURL.Origin, place: String, timeout: Duration?, osError: CInt, detail: String
  ) -> HTTPFailure {
    switch code {
    case CURLE_COULDNT_RESOLVE_HOST: return HTTPFailure("could not resolve host \(origin.host)")
    case CURLE_COULDNT_RESOLVE_PROXY: return HTTPFailure("could not resolve the proxy's host")
    case CURLE_COULDNT_CONNECT:
      let reason = osError == 0 ? "" : ": " + String(cString: strerror(osError))
      return HTTPFailure("could not connect to \(place)\(reason)")
    case CURLE_OPERATION_TIMEDOUT:
      return HTTPFailure("no complete answer from \(place)" + (timeout.map { " within \(seconds($0)) s" } ?? ""))
    case CURLE_PARTIAL_FILE, CURLE_GOT_NOTHING, CURLE_RECV_ERROR, CURLE_SEND_ERROR, CURLE_HTTP2_STREAM:
      return HTTPFailure("\(place) closed the connection before the whole answer had arrived")
    case CURLE_SSL_CONNECT_ERROR, CURLE_PEER_FAILED_VERIFICATION, CURLE_SSL_CERTPROBLEM, CURLE_SSL_CIPHER,
      CURLE_SSL_CACERT_BADFILE, CURLE_SSL_ISSUER_ERROR:
      return HTTPFailure("TLS with \(place) failed: \(detail.isEmpty ? reason(of: code) : detail)")
    default: return HTTPFailure("transfer from \(place) failed: \(reason(of: code))")
    }
  }

  /// `10`, `0.25`.
  private static func seconds(_ duration: Duration) -> String {
    let (whole, rest) = duration.milliseconds.quotientAndRemainder(dividingBy: 1000)
    return rest == 0 ? "\(whole)" : "\(Double(whole) + Double(rest) / 1000)"
  }

  private static func reason(of code: CURLcode) -> String { String(cString: curl_easy_strerror(code)) }

  /// RFC 9110, 15: those that operators meet.
  private static let phrases = [
    204: "No Content", 206: "Partial Content", 300: "Multiple Choices", 304: "Not Modified", 400: "Bad Request",
    401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed", 406: "Not Acceptable",
    407: "Proxy Authentication Required", 408: "Request Timeout", 410: "Gone", 429: "Too Many Requests",
    500: "Internal Server Error", 502: "Bad Gateway", 503: "Service Unavailable", 504: "Gateway Timeout",
  ]
}
