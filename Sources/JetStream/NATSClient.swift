import StreamRuntime
import Synchronization

/// What a connection to NATS reports.
enum NATSEvent: Sendable {
  /// - Parameter maximumMessageByteCount: the maximum size that the server accepts.
  case connected(maximumMessageByteCount: Int)
  /// The connection could not be made, is closed, or cannot be used.
  /// - Parameter reason: may contain text of the server.
  case failed(reason: String)
  case message(NATSMessage, subscription: UInt32)
  /// Messages were dropped, because too many unprocessed ones had arrived. Reported once.
  case dropped
}

/// Connections to NATS, and the thread that runs them.
///
/// The thread does nothing else: name lookups block it, and TLS takes processor time.
///
/// A connection does not reconnect by itself: otherwise it would keep messages for subscriptions that do not exist yet.
///
/// Memory is bounded. Unsent messages are dropped above `unsentByteLimit`, or after a time. Received messages are
/// dropped while more than `unreadByteLimit` bytes are unprocessed. An answer is then missing, or the tail of a log has
/// a gap, which its reader fills.
final class NATSClient: Sendable {
  /// Maximum bytes of unsent messages: 16 of the largest.
  static let unsentByteLimit = 16 << 20
  /// Maximum bytes of unprocessed messages: more than the answers to `ShardReading.concurrencyLimit` reads.
  static let unreadByteLimit = 64 << 20

  private let worker: EventLoop
  private let inlet: NATSInlet
  private let unsentByteCount = Atomic(0)
  private let lastNumber = Atomic<UInt32>(0)
  private let link = NATSLink()

  /// - Parameters:
  ///   - loop: calls `receive`.
  ///   - receive: called at least once after events have arrived; `takeEvents` then returns all of them.
  /// - Throws: the system call by which the thread failed.
  init(on loop: EventLoop, receive: @escaping @Sendable () -> Void) throws(SystemError) {
    worker = try EventLoop(name: "nats")
    inlet = NATSInlet(loop: loop, receive: receive)
    worker.endOfTurn = { [link] in
      link.connection?.flush()
      return nil
    }
    try worker.start()
  }

  /// The events since the last call, with the number of the connection, oldest first.
  func takeEvents() -> [(link: UInt32, event: NATSEvent)] { inlet.events.takeAll() }

  /// The caller has processed a message.
  func processed(_ message: NATSMessage) {
    inlet.unreadByteCount.subtract(message.bytes.count + NATSMessage.overheadByteCount, ordering: .relaxed)
  }

  // MARK: Connections

  /// Connects. Reports `connected` or `failed`.
  /// - Returns: the number of the connection. No other connection may exist.
  func connect(_ options: JetStreamOptions) -> UInt32 {
    let number = lastNumber.wrappingAdd(1, ordering: .relaxed).newValue
    worker.execute { [worker, link, inlet] in link.connect(options, as: number, on: worker, reportingTo: inlet) }
    return number
  }

  /// Ends a connection, or the attempt to connect. Late events may follow.
  func disconnect(_ number: UInt32) {
    worker.execute { [link] in link.close(number) }
  }

  /// Ends the thread, after `disconnect`. No event follows.
  func stop() {
    worker.execute { [worker] in worker.stop() }
  }

  // MARK: Messages

  /// - Parameters:
  ///   - header: its name and value, without line breaks.
  ///   - timeout: the message is dropped if it was not sent by then.
  /// - Returns: false if the message is dropped, because too many bytes are unsent.
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
      let done = { [self] in _ = unsentByteCount.subtract(byteCount, ordering: .relaxed) }
      guard let connection = link.connection(number) else { return done() }
      connection.publish(bytes, to: subject, reply: reply, header: header, deadline: deadline, done: done)
    }
    return true
  }

  func subscribe(to subject: String, group: String?, as subscription: UInt32, on number: UInt32) {
    worker.execute { [link] in link.connection(number)?.subscribe(to: subject, group: group, as: subscription) }
  }

  func unsubscribe(_ subscription: UInt32, on number: UInt32) {
    worker.execute { [link] in link.connection(number)?.unsubscribe(subscription) }
  }
}

/// The connection, with its number.
private final class NATSLink: NATSConnectionObserver, @unchecked Sendable {  // used on the thread of the worker only
  private(set) var connection: NATSConnection?
  private var number: UInt32 = 0
  private var inlet: NATSInlet?
  private var hasDropped = false

  func connection(_ number: UInt32) -> NATSConnection? { number == self.number ? connection : nil }

  func connect(_ options: JetStreamOptions, as number: UInt32, on worker: EventLoop, reportingTo inlet: NATSInlet) {
    (self.number, self.inlet, hasDropped) = (number, inlet, false)
    let connection = NATSConnection(options, on: worker, self)
    self.connection = connection
    connection.start()
  }

  func close(_ number: UInt32) {
    connection(number)?.close()
    if number == self.number { connection = nil }
  }

  func connectionOpened(maximumMessageByteCount: Int) {
    inlet?.post(.connected(maximumMessageByteCount: maximumMessageByteCount), link: number)
  }

  func connectionFailed(_ reason: String) { inlet?.post(.failed(reason: reason), link: number) }

  func connectionReceived(_ message: NATSMessage, by subscription: UInt32) {
    guard let inlet, !inlet.post(message, subscription: subscription, link: number), !hasDropped else { return }
    hasDropped = true
    inlet.post(.dropped, link: number)
  }
}

/// Passes the events of a connection to the engine's loop.
private final class NATSInlet: Sendable {
  let events = Mailbox<(link: UInt32, event: NATSEvent)>()
  let unreadByteCount = Atomic(0)
  private let loop: EventLoop
  private let receive: @Sendable () -> Void

  init(loop: EventLoop, receive: @escaping @Sendable () -> Void) { (self.loop, self.receive) = (loop, receive) }

  func post(_ event: NATSEvent, link: UInt32) {
    if events.post((link, event)) { loop.execute(receive) }
  }

  /// - Returns: false if the message is dropped, because too many bytes are unprocessed.
  func post(_ message: NATSMessage, subscription: UInt32, link: UInt32) -> Bool {
    let byteCount = message.bytes.count + NATSMessage.overheadByteCount
    guard unreadByteCount.add(byteCount, ordering: .relaxed).newValue <= NATSClient.unreadByteLimit else {
      unreadByteCount.subtract(byteCount, ordering: .relaxed)
      return false
    }
    post(.message(message, subscription: subscription), link: link)
    return true
  }
}
