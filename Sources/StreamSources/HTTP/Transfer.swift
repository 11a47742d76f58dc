import CCurl
import Glibc
import HTTP
import StreamRuntime

/// One request and its response, redirects included. Confined to the client's loop.
///
/// Each hop occupies a place of its host's budget, and may wait for it. A streaming response returns the place after
/// its head: it can last for days, and with four places the fifth stream of a host would never connect. No hop occupies
/// a place while it waits for another, so hosts that redirect to each other cannot deadlock.
///
/// A request with an offer becomes a connection in both directions with the response 101. To libcurl, what the handler
/// sends is the body of the request, whose end never comes, and what it receives is that of the response.
@safe final class Transfer: HTTPClient.Activity {
  /// Receives the response. Each call is on the loop; there is none after `cancel`.
  protocol Handler: AnyObject {
    /// The transfer has waited for a place for more than a moment, for this reason. Called again when the reason
    /// changes.
    func transferWaits(_ reason: String)
    /// The turn of the transfer has come.
    /// - Returns: false: it keeps its place, and the handler calls `begin` later.
    func transferMayBegin(_ transfer: Transfer) -> Bool
    /// The head of the final response.
    func transferReceived(_ head: UpstreamResponse) -> Plan
    /// The next piece of the body, decompressed. Only after `.take`.
    func transferReceived(_ bytes: UnsafeRawBufferPointer) -> Flow
    /// After a response with 101: copies the next bytes to send.
    /// - Returns: their number; 0: none until `send` is called.
    func transferSends(into room: UnsafeMutableRawBufferPointer) -> Int
    /// The last call.
    func transferEnded(_ result: Result<UpstreamResponse, SourceFailure>)
  }

  /// What to do with the body.
  enum Plan {
    case take
    /// Read and discard a small body, so that the connection can be reused; otherwise close it.
    case discard
    case refuse(SourceFailure)
  }

  /// What to do with a piece of the body.
  enum Flow {
    case next
    /// Not taken: the same bytes are delivered again after `resume`, and none are read from the socket until then.
    case pause
    case stop(SourceFailure)
  }

  /// As it is sent at the current hop.
  private(set) var request: UpstreamRequest
  private weak var client: HTTPClient?
  private var handler: (any Handler)?
  private let progress: (SourceProgress) -> Void
  /// When its turn had come.
  private var began = ContinuousClock.now
  private(set) var easy: UnsafeMutableRawPointer?
  private var headerList: UnsafeMutablePointer<curl_slist>?
  private var connectionList: UnsafeMutablePointer<curl_slist>?
  private let errorBuffer = UnsafeMutablePointer<CChar>.allocate(capacity: Int(CURL_ERROR_SIZE))
  private(set) var hop: HTTPURL
  /// The cookies that other origins than the hop's have set, in libcurl's format. They live as long as this transfer,
  /// and return to their own origin only.
  private var cookies: [HTTPURL.Origin: [[CChar]]] = [:]
  private var redirects = 0
  /// Whether a redirect leads to the result of a request with another method.
  private var hasActed = false
  private(set) var queuePlace = QueuePlace.nowhere
  /// Whether its turn has come: its request may have been sent.
  private(set) var hasBegun = false
  private var waitNotice: TimerID?
  private var waitReason: String?
  /// The rest of the request's timeout at `hopBegan`: time in the queue does not count.
  private var timeLeft: Duration?
  private var hopBegan = ContinuousClock.now
  /// Fires when the head of a streaming response does not arrive in time.
  private var headTimer: TimerID?

  /// Its place in the queue of the hop's host.
  enum QueuePlace {
    case nowhere  // can become: inLine
    case inLine(UpstreamHost)  // can become: withPlace, nowhere
    case withPlace(UpstreamHost)  // can become: nowhere
  }

  // The state of the current hop.
  private var head: UpstreamResponse?
  private var redirectsTo: FieldValue?
  private var plan = Plan.discard
  private var decoder: ContentDecoder?
  /// Bytes that the decoder has used of a piece that libcurl delivers again after a pause.
  private var decodedBytes = 0
  private var discarded = 0
  private var headerBytes = 0
  /// How often libcurl has reported progress without a head.
  private var idleReports = 0
  private var refusal: SourceFailure?
  /// Whether libcurl holds a piece that was not taken.
  private var isHeld = false
  /// Whether the request was sent, and libcurl has asked for what follows it.
  private var hasSent = false
  /// Body bytes taken in that turn.
  private var taken: (bytes: Int, turn: UInt64) = (0, 0)

  /// About the limit of curl's own programs and of browsers (Fetch Standard: 20; libcurl before 8.3: no limit).
  private static let redirectLimit = 10
  /// Above this size a new connection is cheaper than reading the rest of an unwanted body.
  private static let discardLimit = 64 << 10
  /// Bytes of all heads of one hop together. libcurl stores them, before 8.3 without limit.
  private static let headerLimit = 256 << 10
  /// The time in the queue before it is reported, and the period at which the reason is checked.
  private static let (noteDelay, waitPeriod) = (Duration.seconds(1), Duration.seconds(10))

  init(
    _ request: UpstreamRequest, handler: any Handler, progress: @escaping (SourceProgress) -> Void, client: HTTPClient
  ) {
    self.request = request
    self.handler = handler
    self.progress = progress
    self.client = client
    hop = request.url
    timeLeft = request.timeout
    unsafe errorBuffer[0] = 0
  }

  deinit {
    release()
    unsafe errorBuffer.deallocate()
  }

  /// Cancels the transfer; the handler is not called any more. Does nothing after the end.
  func cancel() {
    client?.loop.assertOnLoop()
    handler = nil
    client?.outsideCurl { self.release() }
  }

  /// Resumes after `.pause`.
  func resume() { unpause(receiving: true) }

  /// Asks the handler for bytes to send, after a response with 101. A piece that is held stays so.
  /// - Parameter atOnce: whether other transfers may run within this call, too.
  func send(atOnce: Bool = false) {
    unpause()
    if atOnce { client?.outsideCurl { self.client?.actNow() } }
  }

  private func unpause(receiving: Bool = false) {
    client?.loop.assertOnLoop()
    client?.outsideCurl { [self] in
      guard let easy = unsafe easy else { return }
      if receiving { isHeld = false }
      client?.insideCurl {
        let result = unsafe curl_easy_pause(easy, isHeld ? CURLPAUSE_RECV : CURLPAUSE_CONT)
        // The held piece is delivered within the call: if its receiver refuses it, libcurl reports that here, and not
        // again.
        if result != CURLE_OK { client?.outsideCurl { self.ended(result) } }
      }
    }
  }

  /// Sets the body before the transfer begins.
  func setBody(_ body: HTTPBody) { request.body = body }

  // MARK: For the client

  /// Queues for the next hop; a hop to the same host keeps its place.
  func start() {
    guard handler != nil, let client else { return }
    let name =
      request.unixSocket.map { UpstreamHost.Name.unixSocket($0) }
      ?? .network(host: hop.origin.host, port: hop.origin.port)
    if case .withPlace(let host) = queuePlace {
      if host.name == name { return begin() }
      leaveHost()
    }
    let host = client.host(named: name)
    queuePlace = .inLine(host)
    host.join(self, of: account)
    if case .inLine = queuePlace { noteWaiting(after: Self.noteDelay) }
  }

  /// The transfer now occupies a place.
  func begin() {
    if case .inLine(let host) = queuePlace { queuePlace = .withPlace(host) }
    stopTimers()
    hopBegan = .now
    if !hasBegun {
      hasBegun = true
      began = hopBegan
      progress(.attempted)
      if handler?.transferMayBegin(self) == false { return }
    }
    guard handler != nil else { return }
    guard let client, let easy = unsafe easy ?? curl_easy_init() else { return fail(SourceFailure("out of memory")) }
    unsafe self.easy = unsafe easy
    guard unsafe configure(easy), unsafe client.add(easy, self) else { return fail(SourceFailure("out of memory")) }
    if request.isEndless, let timeLeft {
      headTimer = client.loop.schedule(after: timeLeft) { [weak self] in
        guard let self else { return }
        headTimer = nil
        guard let easy = unsafe self.easy else { return }
        unsafe fail(.noAnswer(from: SourceFailure.place(of: request, to: hop, easy), within: request.timeout ?? .zero))
      }
    }
  }

  /// The hop has ended, with success or failure.
  func ended(_ result: CURLcode) {
    guard let easy = unsafe easy else { return }
    unsafe client?.watchIdleConnection(of: easy)
    // If the body is not wanted, a failure in it does not count.
    let isComplete: Bool
    if case .discard = plan { isComplete = head != nil } else { isComplete = false }
    if let refusal { return fail(refusal) }
    guard result == CURLE_OK || isComplete else {
      return unsafe fail(.transport(result, of: request, to: hop, easy, detail: String(cString: errorBuffer)))
    }
    guard let head else { return fail(SourceFailure("\(request.place(of: hop)) did not reply with HTTP")) }
    if let redirectsTo { return follow(redirectsTo, head) }
    do throws(ContentFault) {
      try decoder?.end()
      finish(.success(head))
    } catch {
      fail(SourceFailure(error.sentence))
    }
  }

  /// Whether the upstream has ended a connection in both directions, if libcurl does not watch it any more. 7.88 then waits for
  /// the end of what is sent.
  var waitsForNothing: Bool { hasSent && !isHeld }

  func fail(_ failure: SourceFailure) {
    var (failure, byteCount) = (failure, 0)
    if let easy = unsafe easy { unsafe curl_easy_get_long(easy, CURLINFO_REQUEST_SIZE, &byteCount) }
    failure.wasSent = hasActed || redirectsTo == nil && byteCount > 0
    finish(.failure(failure))
  }

  // MARK: One hop

  private func follow(_ location: FieldValue, _ head: UpstreamResponse) {
    let origin = hop.origin
    redirects += 1
    if request.becomeGet(at: head.status) { hasActed = true }
    guard redirects <= Self.redirectLimit else {
      return fail(SourceFailure("more than \(Self.redirectLimit) redirects", retryAfter: head.retryAfter))
    }
    do throws(SourceFailure) {
      let url = request.offer == nil ? location.bytes : HTTPURL.ofHandshake(location.bytes)
      hop = try HTTPURL(FieldValue(url), relativeTo: hop)
      if var refusal = request.refusal(ofRedirectTo: hop) {
        refusal.retryAfter = head.retryAfter
        return fail(refusal)
      }
    } catch {
      var failure = error == .otherScheme ? SourceFailure.redirectedToOtherScheme : .redirectedToMalformedURL
      failure.retryAfter = head.retryAfter
      return fail(failure)
    }
    stopTimers()
    if let left = timeLeft { timeLeft = left - (.now - hopBegan) }
    if let easy = unsafe easy {
      unsafe client?.remove(easy)
      unsafe curl_easy_reset(easy)  // keeps the cookies
      if hop.origin != origin { unsafe exchangeCookies(of: origin, in: easy) }
    }
    (self.head, redirectsTo, plan, discarded, headerBytes, idleReports) = (nil, nil, .discard, 0, 0, 0)
    (decoder, decodedBytes, isHeld, hasSent) = (nil, 0, false, false)
    start()
  }

  /// Replaces the cookies of `origin` by the hop's cookies. libcurl would send those of `origin` to any port, and with
  /// a Domain to other hosts.
  private func exchangeCookies(of origin: HTTPURL.Origin, in easy: UnsafeMutableRawPointer) {
    var list: UnsafeMutablePointer<curl_slist>?
    unsafe curl_easy_get_list(easy, CURLINFO_COOKIELIST, &list)
    defer { unsafe curl_slist_free_all(list) }
    var (lines, next) = unsafe ([[CChar]](), list)
    while let line = unsafe next {
      if let text = unsafe line.pointee.data {
        unsafe lines.append(Array(UnsafeBufferPointer(start: text, count: strlen(text) + 1)))
      }
      unsafe next = unsafe line.pointee.next
    }
    cookies[origin] = lines
    unsafe curl_easy_set_string(easy, CURLOPT_COOKIELIST, "ALL")
    for line in cookies[hop.origin] ?? [] { unsafe curl_easy_set_string(easy, CURLOPT_COOKIELIST, line) }
  }

  private func finish(_ result: Result<UpstreamResponse, SourceFailure>) {
    client?.loop.assertOnLoop()
    let handler = handler
    self.handler = nil
    release()
    handler?.transferEnded(result)
  }

  private func release() {
    if let easy = unsafe easy {
      unsafe self.easy = nil
      unsafe client?.remove(easy)
      unsafe curl_easy_cleanup(easy)
    }
    freeLists()
    stopTimers()
    leaveHost()
  }

  /// Called last: the transfer that gets the place may begin at once, and find the connection free.
  private func leaveHost() {
    let queuePlace = queuePlace
    self.queuePlace = .nowhere
    switch queuePlace {
    case .nowhere: break
    case .inLine(let host): host.leave(self)
    case .withPlace(let host): host.free()
    }
  }

  private func noteWaiting(after delay: Duration) {
    waitNotice = client?.loop.schedule(after: delay) { [weak self] in
      guard let self, case .inLine(let host) = queuePlace else { return }
      let reason = host.reasonToWait(of: account)
      if reason != waitReason {
        waitReason = reason
        handler?.transferWaits(reason)
      }
      if case .inLine = self.queuePlace { noteWaiting(after: Self.waitPeriod) }
    }
  }

  private func stopTimers() {
    for timer in [waitNotice, headTimer] { if let timer { client?.loop.cancel(timer) } }
    (waitNotice, headTimer) = (nil, nil)
  }

  /// - Returns: nil without a connection.
  func openRelay() -> SocketRelay? {
    guard let client, let path = request.unixSocket else { return nil }
    do throws(SystemError) {
      return try client.relay(to: path)
    } catch {
      refusal = SourceFailure("could not connect to \(path): \(error.reason)")
      return nil
    }
  }

  private func freeLists() {
    unsafe curl_slist_free_all(headerList)
    unsafe curl_slist_free_all(connectionList)
    unsafe (headerList, connectionList) = (nil, nil)
  }

  private func configure(_ easy: UnsafeMutableRawPointer) -> Bool {
    freeLists()
    let sent = request.sent(to: hop)
    for line in sent.headerLines {
      guard let list = unsafe curl_slist_append(headerList, line.map { CChar(bitPattern: $0) } + [0]) else {
        return false
      }
      unsafe headerList = unsafe list
    }
    if let connection = sent.connection {
      unsafe connectionList = unsafe curl_slist_append(nil, connection)
      guard unsafe connectionList != nil else { return false }
      unsafe curl_easy_set_pointer(easy, CURLOPT_CONNECT_TO, connectionList)
    }
    for (option, value) in sent.options {
      guard unsafe curl_easy_set_string(easy, option, value) == CURLE_OK else { return false }
    }
    if request.unixSocket != nil { unsafe HTTPClient.refuseDescriptors(easy, self) }
    unsafe curl_easy_set_long(easy, CURLOPT_NOSIGNAL, 1)
    unsafe curl_easy_set_long(easy, CURLOPT_TCP_KEEPALIVE, 1)  // detects a host that has disappeared
    unsafe curl_easy_set_long(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1)  // a proxy's response is not the head
    // A transfer that ends during its name lookup abandons the lookup's thread. Without this option libcurl would wait
    // for that thread, and block every other source, until the name server answers.
    unsafe curl_easy_set_long(easy, CURLOPT_QUICK_EXIT, 1)
    unsafe curl_easy_set_long(
      easy, CURLOPT_HTTP_VERSION, request.offer == nil ? CURL_HTTP_VERSION_2TLS : Int(CURL_HTTP_VERSION_1_1))
    if request.offer != nil { unsafe prepareToSend(easy) } else { unsafe sent.addBody(to: easy) }
    // Redirects are followed here, not by libcurl, which would send every header except Authorization and Cookie to the
    // target.
    unsafe curl_easy_set_long(easy, CURLOPT_FOLLOWLOCATION, 0)
    if !request.isEndless, let timeLeft {
      unsafe curl_easy_set_long(easy, CURLOPT_TIMEOUT_MS, max(1, timeLeft.wholeMilliseconds))
    }
    unsafe curl_easy_set_pointer(easy, CURLOPT_HTTPHEADER, headerList)
    unsafe curl_easy_set_pointer(easy, CURLOPT_ERRORBUFFER, errorBuffer)
    let box = unsafe Unmanaged.passUnretained(self).toOpaque()
    unsafe curl_easy_set_pointer(easy, CURLOPT_HEADERDATA, box)
    unsafe curl_easy_set_pointer(easy, CURLOPT_WRITEDATA, box)
    unsafe curl_easy_set_receiver(easy, CURLOPT_HEADERFUNCTION) { bytes, size, count, transfer in
      guard let bytes = unsafe bytes, let transfer = unsafe transfer else { return 0 }
      let line = unsafe UnsafeRawBufferPointer(start: bytes, count: size * count)
      let goesOn = unsafe Unmanaged<Transfer>.fromOpaque(transfer).takeUnretainedValue().received(headerLine: line)
      return goesOn ? line.count : 0
    }
    unsafe curl_easy_set_long(easy, CURLOPT_NOPROGRESS, 0)
    unsafe curl_easy_set_pointer(easy, CURLOPT_XFERINFODATA, box)
    unsafe curl_easy_set_progress(easy) { transfer, _, _, _, _ in
      guard let transfer = unsafe transfer else { return 1 }
      return unsafe Unmanaged<Transfer>.fromOpaque(transfer).takeUnretainedValue().mayProgress() ? 0 : 1
    }
    unsafe curl_easy_set_receiver(easy, CURLOPT_WRITEFUNCTION) { bytes, size, count, transfer in
      guard let bytes = unsafe bytes, let transfer = unsafe transfer else { return 0 }
      let piece = unsafe UnsafeRawBufferPointer(start: bytes, count: size * count)
      return unsafe Unmanaged<Transfer>.fromOpaque(transfer).takeUnretainedValue().received(piece)
    }
    return true
  }

  /// The connection is a new one, and not used again: it will be no HTTP.
  private func prepareToSend(_ easy: UnsafeMutableRawPointer) {
    for option in [CURLOPT_UPLOAD, CURLOPT_FRESH_CONNECT, CURLOPT_FORBID_REUSE, CURLOPT_HTTPPROXYTUNNEL] {
      unsafe curl_easy_set_long(easy, option, 1)
    }
    unsafe curl_easy_set_string(easy, CURLOPT_CUSTOMREQUEST, "GET")
    unsafe curl_easy_set_pointer(easy, CURLOPT_READDATA, Unmanaged.passUnretained(self).toOpaque())
    unsafe curl_easy_set_receiver(easy, CURLOPT_READFUNCTION) { bytes, size, count, transfer in
      guard let bytes = unsafe bytes, let transfer = unsafe transfer else { return 0 }
      let room = unsafe UnsafeMutableRawBufferPointer(start: bytes, count: size * count)
      return unsafe Unmanaged<Transfer>.fromOpaque(transfer).takeUnretainedValue().sends(into: room)
    }
  }

  // MARK: Inside libcurl

  private func sends(into room: UnsafeMutableRawBufferPointer) -> Int {
    hasSent = true
    let count = unsafe head?.status == 101 ? handler?.transferSends(into: room) ?? 0 : 0
    return count > 0 ? count : Int(CURL_READFUNC_PAUSE)
  }

  /// libcurl reads a proxy's answer to CONNECT byte by byte, and reports each of them, but returns only when there are no
  /// more.
  /// - Returns: false to end the transfer.
  private func mayProgress() -> Bool {
    guard head == nil else { return true }
    idleReports += 1
    guard idleReports > Self.discardLimit else { return true }
    refusal = SourceFailure("more than \(Self.discardLimit >> 10) KiB came before the response")
    return false
  }

  /// - Returns: false to end the transfer.
  private func received(headerLine line: UnsafeRawBufferPointer) -> Bool {
    guard handler != nil else { return false }
    headerBytes += line.count
    guard headerBytes <= Self.headerLimit else {
      refusal = SourceFailure("headers over \(Self.headerLimit >> 10) KiB")
      return false
    }
    // The empty line ends a head: that of a 1xx response, of the final one, or the trailers.
    guard head == nil, let easy = unsafe easy, unsafe line.first == 0x0D || line.first == 0x0A else { return true }
    var status = 0
    unsafe curl_easy_get_long(easy, CURLINFO_RESPONSE_CODE, &status)
    guard status >= 200 || status == 101 && request.offer != nil else { return true }
    // Which of them is right cannot be known (RFC 9112, section 6.3); libcurl would take the last one.
    guard Set(fields("Content-Length").map(\.text)).count <= 1 else {
      refusal = SourceFailure("the response has two different Content-Length fields")
      return false
    }
    var head = UpstreamResponse(
      status: status, url: hop.string, contentLength: field("Content-Length").flatMap { Int($0.text) },
      contentType: field("Content-Type")?.text, entityTag: field("ETag"), lastModified: field("Last-Modified"),
      retryAfter: retryAfter)
    head.pause = pause
    for name in request.wantedFields { head.answer[name] = fields(name).map(\.text) }
    self.head = head
    notePauses(in: head)
    if [301, 302, 303, 307, 308].contains(status), let location = field("Location") {
      redirectsTo = location
      return request.offer == nil && !request.isEndless || endUnread()
    }
    guard let handler else { return false }
    progress(.answered(status: status, after: .now - began))
    plan = handler.transferReceived(head)
    switch plan {
    case .discard:
      // The connection, or the server behind it, may be the reason: the next request is to use another one. A body
      // without a time limit may never end.
      if [408, 421].contains(status) || status >= 500 || request.offer != nil || request.isEndless {
        return endUnread()
      }
    case .refuse(let failure): refusal = failure
    case .take where request.isEndless:
      stopTimers()
      client?.outsideCurl { self.leaveHost() }
    case .take: break
    }
    if case .take = plan, request.offer == nil { prepareDecoder() }
    return refusal == nil
  }

  /// Ends the hop without its body, which is not wanted. After an offer libcurl would wait for the end of what is sent.
  /// - Returns: false, which ends it.
  private func endUnread() -> Bool {
    discarded = Self.discardLimit + 1
    return false
  }

  private func prepareDecoder() {
    do throws(ContentFault) {
      // The coding was not requested. libcurl decodes it, but does not notice that the body is cut off.
      let transfer = try ContentCoding.of(fields("Transfer-Encoding"))
      guard transfer == nil else {
        throw ContentFault(sentence: "the response has a Transfer-Encoding other than chunked")
      }
      decoder = try ContentCoding.of(fields("Content-Encoding")).map { ContentDecoder($0) }
    } catch {
      refusal = SourceFailure(error.sentence)
    }
  }

  /// - Returns: how many bytes were taken, or the value that means pause; fewer than all end the transfer.
  private func received(_ piece: UnsafeRawBufferPointer) -> Int {
    guard case .take = plan else {
      discarded += piece.count
      return discarded > Self.discardLimit ? 0 : piece.count
    }
    guard let decoder else { return unsafe deliver(piece) ?? piece.count }
    do throws(ContentFault) {
      while true {
        if !decoder.hasOutput {
          decodedBytes += try unsafe decoder.decode(UnsafeRawBufferPointer(rebasing: piece.dropFirst(decodedBytes)))
          if !decoder.hasOutput { break }
        }
        if let result = unsafe deliver(decoder.output) { return result }
        decoder.clear()
      }
    } catch {
      refusal = SourceFailure(error.sentence)
      return 0
    }
    decodedBytes -= min(decodedBytes, piece.count)
    return piece.count
  }

  /// - Returns: nil if all was taken, else what to return to libcurl.
  private func deliver(_ piece: UnsafeRawBufferPointer) -> Int? {
    guard let handler else { return 0 }
    guard let client, mayTake(piece.count, of: client) else {
      client?.resumeInNextTurn(self)
      isHeld = true
      return Int(CURL_WRITEFUNC_PAUSE)
    }
    switch unsafe handler.transferReceived(piece) {
    case .next:
      progress(.received(byteCount: piece.count))
      return nil
    case .pause:
      isHeld = true
      return Int(CURL_WRITEFUNC_PAUSE)
    case .stop(let failure):
      refusal = failure
      return 0
    }
  }

  /// Always allows one piece per turn, so that every transfer progresses.
  private func mayTake(_ byteCount: Int, of client: HTTPClient) -> Bool {
    if taken.turn != client.turn { taken = (0, client.turn) }
    guard !client.isTurnOver, taken.bytes == 0 || taken.bytes + byteCount <= HTTPClient.shareOfTurn else {
      return false
    }
    taken.bytes += byteCount
    return true
  }

  /// The first field of that name.
  func field(_ name: String, _ index: Int = 0) -> FieldValue? {
    var found: UnsafeMutablePointer<curl_header>?
    // libcurl counts a response with 101 as one of those that precede the final one.
    let origins = UInt32(request.offer != nil ? CURLH_HEADER | CURLH_1XX : CURLH_HEADER)
    guard let easy = unsafe easy, unsafe curl_easy_header(easy, name, index, origins, -1, &found) == CURLHE_OK,
      let found = unsafe found, let value = unsafe found.pointee.value
    else {
      return nil
    }
    return unsafe FieldValue(Array(UnsafeRawBufferPointer(start: value, count: strlen(value))))
  }

  /// All fields of that name.
  func fields(_ name: String) -> [FieldValue] {
    Array(
      sequence(state: 0) { index in
        defer { index += 1 }
        return self.field(name, index)
      })
  }
}

extension Transfer.Handler {
  func transferMayBegin(_ transfer: Transfer) -> Bool { true }
  func transferSends(into room: UnsafeMutableRawBufferPointer) -> Int { 0 }
}
