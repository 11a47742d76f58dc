import CCurl
import StreamRuntime

/// Runs libcurl's multi interface on an event loop: many transfers on one thread, without blocking. Connections and DNS
/// results are cached for later transfers. Confined to the loop's thread.
///
/// libcurl must not be called from inside its own callbacks. Work that a callback triggers is therefore deferred until
/// libcurl has returned: see `outsideCurl`.
@safe final class HTTPClient {
  /// What one easy handle of libcurl does.
  protocol Activity: AnyObject {
    /// Whether it has ended, if libcurl does not watch its socket any more.
    var waitsForNothing: Bool { get }
    func ended(_ result: CURLcode)
    func fail(_ failure: SourceFailure)
    func cancel()
  }

  let loop: EventLoop
  private var transfersPerHost: Int
  private let pauses: PauseBook
  private let multi: UnsafeMutableRawPointer
  private var activities: [UnsafeMutableRawPointer: any Activity] = unsafe [:]
  private var hosts: [UpstreamHost.Name: UpstreamHost] = [:]
  private var watches: [curl_socket_t: SocketWatch] = [:]
  private var timer: TimerID?
  /// The relays of all connections to Unix sockets; a kernel from Linux 6.16 on needs none.
  var relays: [ObjectIdentifier: SocketRelay] = [:]
  /// The connections that no transfer uses.
  private let idleConnections: QuietSockets
  private var isInsideCurl = false
  /// Transfers that have used their share of a turn, in the order in which they resume.
  private var deferred: [Transfer] = []
  private var deferral: TimerID?
  /// The turn in which a body's first piece arrived, as the loop's time, and the time of that arrival.
  private var busyTurn: (turn: UInt64, since: UInt64) = (0, 0)
  private var postponed: [() -> Void] = []

  /// Maximum number of idle connections. libcurl's default, four times the transfers under way, would close nearly all
  /// of them between the polls of many hosts.
  private static let idleConnectionLimit = 256

  /// Body bytes that a transfer reads in one turn of the thread, and nanoseconds after which a turn reads no more from
  /// any transfer. The rest waits for the next turn, so that other work on the thread runs in between. A byte can be an
  /// event, which takes some 50 ns from splitter to log: a share takes at most 3 ms.
  static let (shareOfTurn, timeOfTurn): (Int, UInt64) = (64 << 10, 5_000_000)

  /// Above this number, hosts are removed that only wait for their Retry-After to end: redirects can lead to any number
  /// of hosts.
  private static let knownHostLimit = 4096

  /// Thread-safe since libcurl 7.84. Never undone: other code in the process may use libcurl.
  private static let isInitialised = curl_global_init(Int(CURL_GLOBAL_DEFAULT)) == CURLE_OK

  /// Returns nil when there is not enough memory.
  /// - Parameter transfersPerHost: concurrent transfers to one host; at least 1.
  init?(on loop: EventLoop, transfersPerHost: Int, _ pauses: PauseBook = PauseBook()) {
    guard let idle = try? QuietSockets() else { return nil }
    idleConnections = idle
    guard Self.isInitialised, let multi = unsafe curl_multi_init() else { return nil }
    self.loop = loop
    (self.transfersPerHost, self.pauses) = (transfersPerHost, pauses)
    unsafe self.multi = unsafe multi
    let box = unsafe Unmanaged.passUnretained(self).toOpaque()
    unsafe curl_multi_set_long(multi, CURLMOPT_MAXCONNECTS, Self.idleConnectionLimit)
    // One transfer at a time on a connection. With multiplexing, after one response that is, or only claims to be, HTTP/2,
    // libcurl sends requests to that host, or through that proxy, on connections of HTTP/1 that are in use, too: responses
    // then reach the wrong transfers. https://github.com/curl/curl/issues/4885
    unsafe curl_multi_set_long(multi, CURLMOPT_PIPELINING, CURLPIPE_NOTHING)
    unsafe curl_multi_set_pointer(multi, CURLMOPT_SOCKETDATA, box)
    unsafe curl_multi_set_pointer(multi, CURLMOPT_TIMERDATA, box)
    unsafe curl_multi_set_socket_callback(multi) { easy, socket, what, client, _ in
      guard let client = unsafe client else { return 0 }
      unsafe Unmanaged<HTTPClient>.fromOpaque(client).takeUnretainedValue().watch(socket, for: what, of: easy)
      return 0
    }
    unsafe curl_multi_set_timer_callback(multi) { _, milliseconds, client in
      guard let client = unsafe client else { return 0 }
      unsafe Unmanaged<HTTPClient>.fromOpaque(client).takeUnretainedValue().setTimer(milliseconds)
      return 0
    }
  }

  deinit {
    unsafe curl_multi_set_socket_callback(multi, nil)
    unsafe curl_multi_set_timer_callback(multi, nil)
    unsafe curl_multi_cleanup(multi)
  }

  /// Queues `request` at its host and begins it in turn. The handler is retained until `transferEnded`, or until the
  /// transfer is cancelled.
  func start(
    _ request: UpstreamRequest, handler: any Transfer.Handler, progress: @escaping (SourceProgress) -> Void = { _ in }
  ) -> Transfer {
    loop.assertOnLoop()
    let transfer = Transfer(request, handler: handler, progress: progress, client: self)
    outsideCurl { transfer.start() }
    return transfer
  }

  /// Changes the limit of concurrent transfers for every host.
  func setTransfersPerHost(_ count: Int) {
    loop.assertOnLoop()
    transfersPerHost = count
    for host in hosts.values { host.setPlaces(count) }
  }

  /// Ends the Retry-After wait of every host.
  func endRests() {
    loop.assertOnLoop()
    for host in hosts.values { host.endRest() }
  }

  /// Ends every transfer without calling its handler, and leaves the loop.
  func shutDown() {
    loop.assertOnLoop()
    for host in hosts.values { host.dismissLine() }
    unsafe activities.values.forEach { $0.cancel() }
    for timer in [timer, deferral] { if let timer { loop.cancel(timer) } }
    deferred = []
    for watch in watches.values { watch.stop() }
    watches = [:]
    for relay in relays.values { relay.stop() }
    relays = [:]
  }

  // MARK: For transfers

  func host(named name: UpstreamHost.Name) -> UpstreamHost {
    loop.assertOnLoop()
    if let host = hosts[name] { return host }
    if hosts.count >= Self.knownHostLimit { hosts = hosts.filter { !$0.value.isEmpty } }
    let host = UpstreamHost(name, places: transfersPerHost, on: loop, pauses) { [weak self] host in
      if self?.hosts[host.name] === host { self?.hosts[host.name] = nil }
    }
    hosts[name] = host
    return host
  }

  func add(_ easy: UnsafeMutableRawPointer, _ activity: any Activity) -> Bool {
    guard unsafe curl_multi_add_handle(multi, easy) == CURLM_OK else { return false }
    unsafe activities[easy] = activity
    return true
  }

  /// Notes the connection that a transfer leaves to later ones, if there is one.
  func watchIdleConnection(of easy: UnsafeMutableRawPointer) {
    var (version, socket) = (0, curl_socket_t(-1))
    unsafe curl_easy_get_long(easy, CURLINFO_HTTP_VERSION, &version)
    unsafe curl_easy_get_socket(easy, &socket)
    // Another transfer may have begun on it within the call. Over HTTP/2 a server may send something at any time.
    guard socket >= 0, watches[socket] == nil, version != CURL_HTTP_VERSION_2_0 else { return }
    idleConnections.insert(socket)
  }

  func remove(_ easy: UnsafeMutableRawPointer) {
    guard unsafe activities.removeValue(forKey: easy) != nil else { return }
    unsafe curl_multi_remove_handle(multi, easy)
  }

  /// Runs `work` now or, inside a libcurl callback, as soon as libcurl has returned.
  func outsideCurl(_ work: @escaping () -> Void) {
    loop.assertOnLoop()
    if isInsideCurl { postponed.append(work) } else { work() }
  }

  /// Calls into libcurl, then processes the results.
  func insideCurl(_ call: () -> Void) {
    loop.assertOnLoop()
    isInsideCurl = true
    call()
    isInsideCurl = false
    settle()
  }

  private func settle() {
    while true {
      if !postponed.isEmpty {
        let works = postponed
        postponed = []
        for work in works { work() }
      }
      var left: CInt = 0
      guard let message = unsafe curl_multi_info_read(multi, &left) else {
        if postponed.isEmpty { return }
        continue
      }
      // Invalid after the next call.
      let (easy, result) = unsafe (message.pointee.easy_handle, message.pointee.data.result)
      if unsafe message.pointee.msg == CURLMSG_DONE, let easy = unsafe easy, let activity = unsafe activities[easy] {
        activity.ended(result)
      }
    }
  }

  // MARK: Turns

  /// Identifies the turn of the loop.
  var turn: UInt64 { loop.now }

  /// Whether this turn's time is used up. False for the first piece of each turn, whatever else the turn did.
  var isTurnOver: Bool {
    let now = EventLoop.monotonicNow()
    if busyTurn.turn != turn { busyTurn = (turn, now) }
    return now - busyTurn.since > Self.timeOfTurn
  }

  /// Resumes a paused transfer in the next turn, after the transfers that already wait.
  func resumeInNextTurn(_ transfer: Transfer) {
    deferred.append(transfer)
    awaitNextTurn()
  }

  private func awaitNextTurn() {
    guard deferral == nil, !deferred.isEmpty else { return }
    deferral = loop.schedule(after: .zero) { [weak self] in self?.resumeDeferred() }
  }

  private func resumeDeferred() {
    deferral = nil
    var line = deferred[...]
    deferred = []
    while let transfer = line.first, !isTurnOver {
      line.removeFirst()
      transfer.resume()
    }
    deferred = Array(line) + deferred
    awaitNextTurn()
  }

  // MARK: libcurl's requests to the loop

  private func setTimer(_ milliseconds: Int) {
    if let timer { loop.cancel(timer) }
    timer = nil
    guard milliseconds >= 0 else { return }
    timer = loop.schedule(after: .milliseconds(milliseconds)) { [weak self] in
      guard let self else { return }
      timer = nil
      actNow()
    }
  }

  /// Performs what is due in libcurl.
  func actNow() {
    // Transfers that begin take their connections within the call. What has come on one while no transfer used it, such as a
    // second response or a status before the end, libcurl (before 8.1) would take for the response to the next request,
    // which may be another stream's.
    idleConnections.closeReadable()
    act(on: curl_socket_t(CURL_SOCKET_TIMEOUT), 0)
  }

  private func watch(_ socket: curl_socket_t, for what: CInt, of easy: UnsafeMutableRawPointer?) {
    // Always a new watch, never an update in place: if libcurl has closed the socket unnoticed and got the same number
    // again, a new watch still watches the right socket.
    watches.removeValue(forKey: socket)?.stop()
    var readiness: EventLoop.Readiness = []
    if what == CURL_POLL_IN || what == CURL_POLL_INOUT { readiness.insert(.readable) }
    if what == CURL_POLL_OUT || what == CURL_POLL_INOUT { readiness.insert(.writable) }
    guard what != CURL_POLL_REMOVE, !readiness.isEmpty else {
      if let easy = unsafe easy, let activity = unsafe activities[easy], activity.waitsForNothing {
        outsideCurl { activity.ended(CURLE_OK) }
      }
      return
    }
    idleConnections.remove(socket)
    do throws(SystemError) {
      watches[socket] = try SocketWatch(socket, for: readiness, client: self)
    } catch {
      guard let easy = unsafe easy, let activity = unsafe activities[easy] else { return }
      outsideCurl { activity.fail(SourceFailure(error.description)) }
    }
  }

  fileprivate func act(on socket: curl_socket_t, _ events: CInt) {
    insideCurl {
      var running: CInt = 0
      unsafe curl_multi_socket_action(multi, socket, events, &running)
    }
  }
}

extension HTTPClient {
  /// Makes the sockets of a transfer such that no descriptors come over them. libcurl reads by itself: a kernel before Linux 6.16
  /// needs a relay.
  static func refuseDescriptors(_ easy: UnsafeMutableRawPointer, _ transfer: Transfer) {
    unsafe curl_easy_set_closer(easy) { _, socket in
      LocalSocket.close(socket)
      return 0
    }
    guard !LocalSocket.isKernelInCharge else {
      unsafe curl_easy_refuse_descriptors(easy)
      return
    }
    unsafe curl_easy_set_pointer(easy, CURLOPT_OPENSOCKETDATA, Unmanaged.passUnretained(transfer).toOpaque())
    unsafe curl_easy_set_opener(easy) { transfer, _, address in
      guard let transfer = unsafe transfer, let address = unsafe address else { return -1 }
      guard let relay = unsafe Unmanaged<Transfer>.fromOpaque(transfer).takeUnretainedValue().openRelay() else {
        return -1
      }
      unsafe relay.getAddress(&address.pointee.addr, &address.pointee.addrlen)
      return (try? UnixSocket.open())?.release() ?? -1
    }
  }

  func relay(to path: String) throws(SystemError) -> SocketRelay {
    let relay = try SocketRelay(to: path, on: loop) { [weak self] relay in self?.relays[ObjectIdentifier(relay)] = nil }
    relays[ObjectIdentifier(relay)] = relay
    return relay
  }
}

/// A socket of libcurl, watched by the loop.
private final class SocketWatch: EventLoop.Handler {
  private let socket: curl_socket_t
  private let client: HTTPClient
  private var registration: EventLoop.Registration?

  init(_ socket: curl_socket_t, for readiness: EventLoop.Readiness, client: HTTPClient) throws(SystemError) {
    self.socket = socket
    self.client = client
    registration = try client.loop.register(socket, for: readiness, handler: self)
  }

  func stop() {
    if let registration { client.loop.unregister(registration) }
    registration = nil
  }

  func descriptorIsReady(_ readiness: EventLoop.Readiness) {
    var events: CInt = 0
    if readiness.contains(.readable) { events |= CURL_CSELECT_IN }
    if readiness.contains(.writable) { events |= CURL_CSELECT_OUT }
    client.act(on: socket, events)
  }
}
