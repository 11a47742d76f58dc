import CNats
import Glibc
import StreamRuntime
import Synchronization

/// What a connection to NATS reports.
enum NATSEvent: Sendable {
  /// - Parameter maximumMessageByteCount: that the server accepts.
  case connected(maximumMessageByteCount: Int)
  /// It could not be made, is closed, or is of no use.
  /// - Parameter reason: may contain text of the server.
  case failed(reason: String)
  case message(NATSMessage, subscription: UInt32)
  /// Messages were dropped, because too many had arrived that were not processed yet. Reported once.
  case dropped
}

/// A message that was received.
struct NATSMessage: Sendable {
  var subject: String
  /// Where an answer is expected.
  var reply: String?
  /// Of a message that the server has made itself: 503: the subject has no subscriber; 0: not a number.
  var status: UInt64?
  /// The sequence number in a log.
  var sequence: UInt64?
  var bytes: [UInt8]

  static let noResponders: UInt64 = 503
  static let notFound: UInt64 = 404
  /// Counted for each message besides its bytes.
  static let overheadByteCount = 512
}

/// Connections to NATS, and the thread that makes and uses them.
///
/// libnats blocks: it holds one lock of a connection while it connects, which takes seconds with a server that does not
/// answer, and while it writes to a socket. Its adapter for event loops does not help: with TLS it waits for the rest of
/// a record wherever it is called, with that lock and without a limit, so that even a session ticket, which servers send
/// unasked, can stop the loop until the next message (`natsSock_Read` in `comsock.c`, since nats-io/nats.c#415); and later
/// versions expect of adapters to close the socket, which earlier ones close themselves (nats-io/nats.c#815). Therefore
/// the library has its own threads for sockets, pings and callbacks, and this one thread calls it.
///
/// It does not reconnect by itself: it would keep what is published meanwhile, for subscriptions that are not there yet.
///
/// Everything is bounded. What waits to be sent is dropped above `unsentByteLimit`, or after a time. What was received
/// and is not processed yet is dropped above `unreadByteLimit`: an answer is then missing, and the tail of a log has a gap,
/// which its reader fills.
final class NATSClient: Sendable {
  /// Bytes of messages that wait to be sent: 16 of the largest.
  static let unsentByteLimit = 16 << 20
  /// Bytes of messages that wait to be processed: more than the answers to `ShardReading.concurrencyLimit` reads.
  static let unreadByteLimit = 64 << 20

  private let worker: EventLoop
  private let inlet: NATSInlet
  private let unsentByteCount = Atomic(0)
  private let connection = WorkerConfined()

  /// - Parameters:
  ///   - loop: that of `receive`.
  ///   - receive: called when events have arrived, at least once for `takeEvents` to return all of them.
  /// - Throws: the system call by which the thread failed.
  init(on loop: EventLoop, receive: @escaping @Sendable () -> Void) throws(SystemError) {
    worker = try EventLoop(name: "nats")
    inlet = NATSInlet(loop: loop, receive: receive)
    worker.execute {
      // TLS libraries write to sockets without MSG_NOSIGNAL. The library's threads, which this one creates, inherit it.
      var signals = sigset_t()
      unsafe sigemptyset(&signals)
      unsafe sigaddset(&signals, SIGPIPE)
      unsafe pthread_sigmask(SIG_BLOCK, &signals, nil)
    }
    try worker.start()
  }

  /// What was reported since the last call, with the number of the connection, oldest first.
  func takeEvents() -> [(link: UInt32, event: NATSEvent)] { inlet.events.takeAll() }

  /// The caller has processed a message.
  func processed(_ message: NATSMessage) {
    inlet.unreadByteCount.subtract(message.bytes.count + NATSMessage.overheadByteCount, ordering: .relaxed)
  }

  // MARK: Connections

  /// Connects. Reports `connected` or `failed`.
  /// - Returns: the number of the connection. There must be no other one.
  func connect(_ options: JetStreamOptions) -> UInt32 {
    let number = NATSInlet.register(inlet)
    worker.execute { [connection, inlet] in
      switch connection.connect(options, number: number) {
      case .success(let maximumMessageByteCount):
        inlet.post(.connected(maximumMessageByteCount: maximumMessageByteCount), link: number)
      case .failure(let failure): inlet.post(.failed(reason: failure.reason), link: number)
      }
    }
    return number
  }

  /// Ends a connection, also one that is not there yet. Late events may follow.
  func disconnect(_ number: UInt32) {
    NATSInlet.unregister(number)
    worker.execute { [connection] in connection.close() }
  }

  /// Ends the thread, after `disconnect`. No event follows.
  func stop() {
    worker.execute { [worker, connection] in
      connection.leaveThread()
      worker.stop()
    }
  }

  // MARK: Messages

  /// - Parameters:
  ///   - header: its name and value, without line breaks.
  ///   - timeout: the message is dropped if it was not sent by then.
  /// - Returns: false if too much waits to be sent: the message is dropped.
  func publish(
    _ bytes: [UInt8], to subject: String, reply: String? = nil, header: (name: String, value: String)? = nil,
    on number: UInt32, timeout: Duration
  ) -> Bool {
    let byteCount = bytes.count + NATSMessage.overheadByteCount
    guard unsentByteCount.add(byteCount, ordering: .relaxed).newValue <= Self.unsentByteLimit else {
      unsentByteCount.subtract(byteCount, ordering: .relaxed)
      return false
    }
    let deadline = EventLoop.monotonicNow() &+ UInt64(max(0, timeout.wholeNanoseconds))
    worker.execute { [self] in
      unsentByteCount.subtract(byteCount, ordering: .relaxed)
      guard EventLoop.monotonicNow() < deadline else { return }
      connection.publish(bytes, to: subject, reply: reply, header: header, on: number)
    }
    return true
  }

  func subscribe(to subject: String, group: String?, as subscription: UInt32, on number: UInt32) {
    worker.execute { [connection, inlet] in
      guard !connection.subscribe(to: subject, group: group, as: subscription, on: number) else { return }
      inlet.post(.failed(reason: "a subscription was refused"), link: number)
    }
  }

  func unsubscribe(_ subscription: UInt32, on number: UInt32) {
    worker.execute { [connection] in connection.unsubscribe(subscription, on: number) }
  }
}

/// Why there is no connection.
private struct NATSFailure: Error {
  let reason: String
}

/// The connection as the library has it.
@safe private final class WorkerConfined: @unchecked Sendable {  // used on the thread of the worker only
  private var link: OpaquePointer?
  private var number: UInt32 = 0
  private var isLoaded = false
  private var subscriptions: [UInt32: OpaquePointer] = unsafe [:]

  /// - Returns: the size of the largest message that the server accepts.
  func connect(_ options: JetStreamOptions, number: UInt32) -> Result<Int, NATSFailure> {
    if let reason = unsafe nats_client_load(options.library, NATSInlet.callbacks) {
      return .failure(NATSFailure(reason: unsafe String(cString: reason)))
    }
    isLoaded = true
    self.number = number
    guard
      let attempt = unsafe nats_attempt_begin(
        UInt64(number), Int64(options.connectTimeout.wholeMilliseconds), Int64(options.pingInterval.wholeMilliseconds))
    else { return .failure(NATSFailure(reason: "out of memory")) }
    for server in options.servers { unsafe nats_attempt_add_server(attempt, server) }
    if options.usesTLS { unsafe nats_attempt_use_tls(attempt) }
    if let file = options.authoritiesFile { unsafe nats_attempt_trust(attempt, file) }
    if let certificate = options.certificateFile, let key = options.keyFile {
      unsafe nats_attempt_use_certificate(attempt, certificate, key)
    }
    switch options.credentials {
    case .none: break
    case .password(let user, let password): unsafe nats_attempt_use_password(attempt, user, password)
    case .token(let token): unsafe nats_attempt_use_token(attempt, token)
    case .nkey(let key, let seed): unsafe nats_attempt_use_nkey(attempt, key, seed)
    case .credentials(let content): unsafe nats_attempt_use_credentials(attempt, content)
    }
    var reason = [CChar](repeating: 0, count: 512)
    guard let link = unsafe nats_attempt_connect(attempt, &reason, reason.count) else {
      let text = String(decoding: reason.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
      return .failure(NATSFailure(reason: text))
    }
    unsafe self.link = link
    return .success(unsafe Int(clamping: nats_link_maximum_message(link)))
  }

  func close() {
    guard let link = unsafe link else { return }
    while let (_, subscription) = unsafe subscriptions.popFirst() { unsafe nats_subscription_end(subscription) }
    unsafe nats_link_close(link)
    unsafe self.link = nil
  }

  func leaveThread() {
    if isLoaded { nats_client_leave_thread() }
  }

  func publish(
    _ bytes: [UInt8], to subject: String, reply: String?, header: (name: String, value: String)?, on number: UInt32
  ) {
    guard let link = unsafe link, number == self.number else { return }
    // Whether it fails is not of interest: the connection is closed then, or the answer missing.
    _ = unsafe nats_link_publish(link, subject, reply, header?.name, header?.value, bytes, bytes.count)
  }

  func subscribe(to subject: String, group: String?, as subscription: UInt32, on number: UInt32) -> Bool {
    guard let link = unsafe link, number == self.number else { return true }
    guard
      let made = unsafe nats_link_subscribe(
        link, subject, group, UInt64(number) << 32 | UInt64(subscription), 65536, CInt(NATSClient.unreadByteLimit))
    else { return false }
    unsafe subscriptions[subscription] = made
    return true
  }

  func unsubscribe(_ subscription: UInt32, on number: UInt32) {
    guard number == self.number, let ended = unsafe subscriptions.removeValue(forKey: subscription) else { return }
    unsafe nats_subscription_end(ended)
  }
}

/// Takes what the library's threads report to the loop. The library may call it after a connection has ended: therefore it
/// has numbers of connections, not pointers.
private final class NATSInlet: Sendable {
  let events = Mailbox<(link: UInt32, event: NATSEvent)>()
  let unreadByteCount = Atomic(0)
  private let hasDropped = Atomic(false)
  private let loop: EventLoop
  private let receive: @Sendable () -> Void

  private struct Registry {
    var inlets: [UInt32: NATSInlet] = [:]
    var lastNumber: UInt32 = 0
  }

  private static let registry = Locked(Registry())

  init(loop: EventLoop, receive: @escaping @Sendable () -> Void) { (self.loop, self.receive) = (loop, receive) }

  /// - Returns: a new number of a connection.
  static func register(_ inlet: NATSInlet) -> UInt32 {
    inlet.hasDropped.store(false, ordering: .relaxed)
    return registry.withLock { registry in
      repeat { registry.lastNumber &+= 1 } while registry.inlets[registry.lastNumber] != nil
      registry.inlets[registry.lastNumber] = inlet
      return registry.lastNumber
    }
  }

  static func unregister(_ number: UInt32) { registry.withLock { _ = $0.inlets.removeValue(forKey: number) } }

  func post(_ event: NATSEvent, link: UInt32) {
    if events.post((link, event)) { loop.execute(receive) }
  }

  private func drop(_ link: UInt32) {
    if !hasDropped.exchange(true, ordering: .relaxed) { post(.dropped, link: link) }
  }

  private static func find(_ number: UInt32) -> NATSInlet? { registry.withLock { $0.inlets[number] } }

  static let callbacks = unsafe nats_client_callbacks(
    received: { subscription, subject, reply, status, sequence, bytes, count in
      let link = UInt32(subscription >> 32)
      guard let inlet = NATSInlet.find(link), let subject = unsafe subject else { return }
      let byteCount = count + NATSMessage.overheadByteCount
      guard inlet.unreadByteCount.add(byteCount, ordering: .relaxed).newValue <= NATSClient.unreadByteLimit else {
        inlet.unreadByteCount.subtract(byteCount, ordering: .relaxed)
        return inlet.drop(link)
      }
      let message = unsafe NATSMessage(
        subject: String(cString: subject), reply: reply.map { unsafe String(cString: $0) },
        status: status.map { unsafe number(in: $0) ?? 0 }, sequence: sequence.flatMap { unsafe number(in: $0) },
        bytes: [UInt8](UnsafeRawBufferPointer(start: bytes, count: count)))
      inlet.post(.message(message, subscription: UInt32(truncatingIfNeeded: subscription)), link: link)
    },
    dropped: { number in
      let link = UInt32(truncatingIfNeeded: number)
      NATSInlet.find(link)?.drop(link)
    },
    failed: { number, reason in
      let link = UInt32(truncatingIfNeeded: number)
      NATSInlet.find(link)?.post(.failed(reason: unsafe reason.map { unsafe String(cString: $0) } ?? ""), link: link)
    })
}

/// A decimal number of at most 20 digits.
private func number(in text: UnsafePointer<CChar>) -> UInt64? {
  let count = unsafe strnlen(text, 21)
  return unsafe Decimal.number(UnsafeRawBufferPointer(start: text, count: count))
}
