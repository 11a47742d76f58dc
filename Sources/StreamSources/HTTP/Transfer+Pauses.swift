import CCurl

extension Transfer {
  /// Whose rate limits apply to the hop. Another origin than the URL's receives no credential.
  var account: String { hop.origin == request.url.origin ? request.account : "" }

  /// Notes when the host allows the next requests.
  func notePauses(in head: UpstreamResponse) {
    guard case .withPlace(let host) = queuePlace else { return }
    if head.status >= 400, let rest = head.retryAfter { host.rest(for: rest) }
    let now = WallTime.now.milliseconds
    if let limit = RequestPause.rateLimit({ fields($0).map(\.text) }, at: now) { host.rest(for: limit, of: account) }
  }

  /// When the source may ask again.
  var pause: RequestPause? {
    RequestPause.poll(
      { fields($0).map(\.text) }, obeysMaximumAge: request.obeysMaximumAge, host: request.place(of: hop))
  }

  /// The time of Retry-After from now on.
  var retryAfter: Duration? {
    guard let easy = unsafe easy, let text = field("Retry-After")?.text.utf8 else { return nil }
    let digits = text.prefix { (0x30...0x39).contains($0) }
    guard digits.isEmpty else {
      // The digits of an RFC 3339 time, which no standard allows here, are the year.
      return text.dropFirst(digits.count).first == UInt8(ascii: "-") ? nil : .seconds(Int64(Substring(digits)) ?? .max)
    }
    var seconds: curl_off_t = 0
    // A date, converted to seconds from now.
    unsafe curl_easy_get_offset(easy, CURLINFO_RETRY_AFTER, &seconds)
    return .seconds(max(0, seconds))
  }
}
