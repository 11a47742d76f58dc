import CCurl

/// The method of a source's requests.
public enum HTTPMethod: String, Sendable, CaseIterable {
  case get = "GET"
  case post = "POST"
  case put = "PUT"
  /// As GET, with a body. Source: draft-ietf-httpbis-safe-method-w-body.
  case query = "QUERY"
}

/// The body of a request. A GET has none.
public struct HTTPBody: Sendable, Equatable {
  /// May be a secret: never printed.
  public var bytes: [UInt8]
  /// The value of Content-Type.
  public var type: String
  /// Whether only the origin of the source's URL may receive it, whatever the redirects.
  public var isSecret: Bool

  /// By default any origin may receive it to which `HTTPRedirects` admits a redirect.
  public init(_ bytes: [UInt8], type: String = "application/json", isSecret: Bool = false) {
    (self.bytes, self.type, self.isSecret) = (bytes, type, isSecret)
  }
}

extension UpstreamRequest {
  /// Changes the method at a redirect as browsers do. Source: Fetch Standard, "HTTP-redirect fetch".
  /// - Returns: whether the upstream has acted on the request, and the redirect leads to the result.
  mutating func becomeGet(at status: Int) -> Bool {
    guard status == 303 && method != .get || (status == 301 || status == 302) && method == .post else { return false }
    (method, body) = (.get, nil)
    return true
  }

  /// Adds the method and the body, which libcurl copies.
  func addBody(to easy: UnsafeMutableRawPointer) {
    guard method != .get else { return }
    var bytes = body?.bytes ?? []
    unsafe curl_easy_set_long(easy, CURLOPT_POSTFIELDSIZE, bytes.count)
    bytes.append(0)
    unsafe bytes.withUnsafeMutableBytes {
      _ = unsafe curl_easy_set_pointer(easy, CURLOPT_COPYPOSTFIELDS, $0.baseAddress)
    }
    unsafe curl_easy_set_string(easy, CURLOPT_CUSTOMREQUEST, method.rawValue)
    // On a connection that was idle, libcurl would send a request without an answer once more.
    if !isIdempotent { unsafe curl_easy_set_long(easy, CURLOPT_FRESH_CONNECT, 1) }
  }
}

extension SourceFailure {
  /// Whether the upstream may have acted on the request that has failed. A status of 4xx says that it has not, and so does 503
  /// with the time of the next request.
  var mayHaveActed: Bool {
    switch status {
    case nil: wasSent
    case 503: retryAfter == nil
    case 303: true
    case .some(300...499): false
    case .some: true
    }
  }

  /// The failure of a request that is not repeated.
  var unrepeated: String {
    sentence
      + "; the upstream may have acted on the request, which is not repeated before a refresh (idempotent = false)"
  }
}
