import Glibc
import StreamRuntime

/// Receives the events of a connection, on its loop.
protocol NATSConnectionObserver: AnyObject {
  /// - Parameter maximumMessageByteCount: the maximum size that the server accepts.
  func connectionOpened(maximumMessageByteCount: Int)
  /// The last call.
  func connectionFailed(_ reason: String)
  func connectionReceived(_ message: NATSMessage, by subscription: UInt32)
}

/// A connection to one of several NATS servers, including the search for one. It does not reconnect.
///
/// Servers are tried in random order, as are the addresses of each. Outgoing lines and messages wait in `messages`, and
/// are sent together at the end of a turn of the loop: see ``flush()``.
///
/// A server that announces its end (lame duck) is used until it closes the connection. It closes its clients'
/// connections one after the other, so that they do not all connect to another server at the same time.
@safe final class NATSConnection: EventLoop.Handler {
  private enum Phase {
    /// A server's addresses are looked up, or a connection to one is made. Can become: greeting, closed.
    case connecting
    /// The server has not introduced itself yet. Can become: connecting, securing, joining, closed.
    case greeting
    /// A TLS handshake is in progress. Can become: connecting, joining, closed.
    case securing(NATSInformation)
    /// CONNECT and PING are sent. Can become: connecting, open, closed.
    case joining(NATSInformation)
    /// Can become: closed.
    case open
    /// Final.
    case closed
  }

  /// A line or a message that waits to be sent.
  private struct Outgoing {
    /// A line of the protocol, with the headers of a message.
    var head: [UInt8]
    /// The message's content; nil if there is none.
    var content: [UInt8]?
    /// Dropped if it is unsent at this time, on the loop's clock.
    var deadline = UInt64.max
    /// Called when it is sent or dropped.
    var done: (() -> Void)?
  }

  private let options: JetStreamOptions
  private let loop: EventLoop
  private weak var observer: (any NATSConnectionObserver)?
  private var phase = Phase.connecting
  /// The servers and addresses that were not tried yet.
  private var servers: [NATSServer]
  private var addresses: [SocketAddress] = []
  private var server: NATSServer?
  /// The last reason of each server that was tried and is not used.
  private var failures: [String: String] = [:]
  private var transport: NATSTransport?
  private var registration: EventLoop.Registration?
  private var interest: EventLoop.Readiness = []
  private var parser = NATSParser()
  private let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 256 << 10, alignment: 16)
  /// Runs until the connection is open.
  private var attemptTimer: TimerID?
  private var pingTimer: TimerID?
  /// Runs while the socket accepts nothing.
  private var writeTimer: TimerID?
  private var readTimer: TimerID?
  private var unansweredPingCount = 0
  private var owesPong = false
  private var messages: ArraySlice<Outgoing> = []
  /// The bytes for the socket: `lines` from `sentByteCount` on, then `content`.
  private var lines: [UInt8] = []
  private var content: [UInt8] = []
  private var sentByteCount = 0

  /// Messages are combined up to this size.
  private static let linesByteCount = 64 << 10
  /// Content of at least this size is not copied.
  private static let largeByteCount = 16 << 10
  /// After this number of reads, the loop's other work is done.
  private static let readsPerTurn = 4
  private static let unansweredPingLimit = 2

  /// - Parameters:
  ///   - options: without a `problem`.
  ///   - observer: retains the connection.
  init(_ options: JetStreamOptions, on loop: EventLoop, _ observer: any NATSConnectionObserver) {
    (self.options, self.loop, self.observer) = (options, loop, observer)
    servers = options.servers.compactMap { NATSServer($0) }.shuffled()
  }

  deinit { unsafe buffer.deallocate() }

  /// Begins to connect. May call the observer at once.
  func start() {
    loop.assertOnLoop()
    connectToNext()
  }

  /// Ends the connection without a further call of the observer.
  func close() {
    loop.assertOnLoop()
    if case .closed = phase { return }
    hangUp()
    phase = .closed
    let unsent = messages
    messages = []
    for message in unsent { message.done?() }
  }

  // MARK: Attempts

  /// Connects to the next address of the present server, or to the next server.
  private func connectToNext() {
    phase = .connecting
    while true {
      do throws(NATSFailure) {
        guard let address = try nextAddress() else { return fail(attemptFailure) }
        try connect(to: address)
        return
      } catch {
        note(error)
        hangUp()
      }
    }
  }

  private func nextAddress() throws(NATSFailure) -> SocketAddress? {
    while true {
      if let address = addresses.popLast() { return address }
      guard let server = servers.popLast() else { return nil }
      self.server = server
      addresses = try server.addresses()
    }
  }

  private func connect(to address: SocketAddress) throws(NATSFailure) {
    let transport = NATSTransport(try address.connect())
    self.transport = transport
    interest = .writable
    do throws(SystemError) {
      registration = try loop.register(transport.socket, for: interest, handler: self)
    } catch {
      throw NATSFailure(code: error.code)
    }
    attemptTimer = loop.schedule(after: options.connectTimeout) { [weak self] in
      self?.attemptTimer = nil
      self?.failed(NATSFailure(reason: "the server does not answer in time"))
    }
  }

  private func note(_ failure: NATSFailure) {
    if let server { failures[server.name] = failure.reason }
  }

  /// The failure of the attempt. The order of the servers does not matter.
  private var attemptFailure: NATSFailure {
    let reasons = Set(failures.values)
    if let reason = reasons.first, reasons.count == 1 { return NATSFailure(reason: reason) }
    return NATSFailure(reason: failures.sorted { $0.key < $1.key }.map { "\($0): \($1)" }.joined(separator: ", "))
  }

  /// Handles a failure of the present socket.
  private func failed(_ failure: NATSFailure) {
    switch phase {
    case .closed: return
    case .open: fail(failure)
    case .connecting, .greeting, .securing, .joining:
      note(failure)
      hangUp()
      connectToNext()
    }
  }

  private func fail(_ failure: NATSFailure) {
    let observer = observer
    close()
    observer?.connectionFailed(failure.reason)
  }

  /// Closes the socket.
  private func hangUp() {
    if let registration { loop.unregister(registration) }
    for timer in [attemptTimer, pingTimer, writeTimer, readTimer].compactMap(\.self) { loop.cancel(timer) }
    (registration, attemptTimer, pingTimer, writeTimer, readTimer) = (nil, nil, nil, nil, nil)
    transport = nil
    parser = NATSParser()
    (lines, content, sentByteCount, unansweredPingCount, owesPong) = ([], [], 0, 0, false)
  }

  // MARK: Receiving

  func descriptorIsReady(_ readiness: EventLoop.Readiness) {
    do throws(NATSFailure) {
      if case .connecting = phase {
        try transport?.finishConnecting()
        phase = .greeting
        setInterest(.readable)
        return
      }
      if readiness.contains(.readable) { try receive() }
    } catch {
      failed(error)
    }
    // The end of the turn sends the waiting messages.
  }

  private func receive() throws(NATSFailure) {
    for _ in 0..<Self.readsPerTurn {
      guard let transport else { return }
      if case .securing(let information) = phase {
        guard try transport.shakeHands() else { return }
        try join(information)
      }
      guard let count = try unsafe transport.receive(into: buffer) else { return }
      try unsafe take(UnsafeRawBufferPointer(rebasing: buffer[..<count]))
    }
    // The encryption may hold further bytes, of which the loop does not know.
    guard transport?.isSecure == true, readTimer == nil else { return }
    readTimer = loop.schedule(after: .zero) { [weak self] in
      self?.readTimer = nil
      self?.descriptorIsReady(.readable)
    }
  }

  private func take(_ bytes: UnsafeRawBufferPointer) throws(NATSFailure) {
    var index = 0
    while let operation = try unsafe parser.next(in: bytes, from: &index) {
      try process(operation)
      guard case .securing = phase else { continue }
      // Such bytes are not protected by the encryption that follows.
      guard index == bytes.count else { throw .violation("it sends more before TLS begins") }
    }
  }

  private func process(_ operation: NATSOperation) throws(NATSFailure) {
    switch (phase, operation) {
    case (_, .refused(let reason)): throw NATSFailure(reason: reason.isEmpty ? "the server refuses" : reason)
    case (.greeting, .information(let information)): try introduced(information)
    case (.greeting, _): throw .violation("it does not begin with INFO")
    case (_, .ping): owesPong = true
    case (.joining(let information), .pong): joined(information)
    case (.open, .pong): unansweredPingCount = 0
    case (.open, .message(let message, let subscription)): observer?.connectionReceived(message, by: subscription)
    case (.joining, .message), (_, .pong), (_, .information), (_, .accepted), (.connecting, _), (.securing, _),
      (.closed, _):
      break
    }
  }

  private func introduced(_ information: NATSInformation) throws(NATSFailure) {
    guard information.hasHeaders else { throw NATSFailure(reason: "the server does not support headers") }
    guard options.usesTLS || information.requiresTLS else { return try join(information) }
    guard information.requiresTLS || information.offersTLS else { throw NATSFailure(reason: "the server has no TLS") }
    guard let server else { return }
    try transport?.beginTLS(to: server.host, options)
    phase = .securing(information)
    _ = try transport?.shakeHands()
  }

  private func join(_ information: NATSInformation) throws(NATSFailure) {
    lines = try NATSLogin(options).line(answering: information, isSecure: transport?.isSecure ?? false)
    lines += "PING\r\n".utf8
    phase = .joining(information)
  }

  private func joined(_ information: NATSInformation) {
    if let attemptTimer { loop.cancel(attemptTimer) }
    attemptTimer = nil
    phase = .open
    schedulePing()
    observer?.connectionOpened(maximumMessageByteCount: information.maximumMessageByteCount)
  }

  private func schedulePing() {
    pingTimer = loop.schedule(after: options.pingInterval) { [weak self] in
      guard let self else { return }
      pingTimer = nil
      guard unansweredPingCount < Self.unansweredPingLimit else {
        return failed(NATSFailure(reason: "the server does not answer"))
      }
      unansweredPingCount += 1
      send(Outgoing(head: Array("PING\r\n".utf8)))
      schedulePing()
    }
  }

  // MARK: Sending

  /// - Parameters:
  ///   - header: its name and value, without line breaks.
  ///   - deadline: on the loop's clock; an unsent message is then dropped.
  ///   - done: called when the message is sent or dropped.
  func publish(
    _ bytes: [UInt8], to subject: String, reply: String?, header: (name: String, value: String)?, deadline: UInt64,
    done: @escaping () -> Void
  ) {
    guard Self.isSubject(subject), reply.map(Self.isSubject) ?? true else { return done() }
    let subjects = reply.map { "\(subject) \($0)" } ?? subject
    let head: String
    if let header {
      let headers = "NATS/1.0\r\n\(header.name): \(header.value)\r\n\r\n"
      head = "HPUB \(subjects) \(headers.utf8.count) \(headers.utf8.count + bytes.count)\r\n\(headers)"
    } else {
      head = "PUB \(subjects) \(bytes.count)\r\n"
    }
    send(Outgoing(head: Array(head.utf8), content: bytes, deadline: deadline, done: done))
  }

  /// - Parameter group: one subscriber of the group receives each message; nil: every subscriber does.
  func subscribe(to subject: String, group: String?, as subscription: UInt32) {
    guard Self.isSubject(subject) else { return }
    send(Outgoing(head: Array("SUB \(subject) \(group.map { $0 + " " } ?? "")\(subscription)\r\n".utf8)))
  }

  func unsubscribe(_ subscription: UInt32) { send(Outgoing(head: Array("UNSUB \(subscription)\r\n".utf8))) }

  /// Whether a text, possibly from another client, is one word of a line.
  private static func isSubject(_ text: String) -> Bool {
    !text.isEmpty && text.utf8.allSatisfy { $0 > 0x20 && $0 != 0x7F }
  }

  private func send(_ message: Outgoing) {
    loop.assertOnLoop()
    if case .open = phase { messages.append(message) } else { message.done?() }
  }

  /// Sends waiting messages until the socket accepts no more. Called at the end of each turn of the loop.
  func flush() {
    switch phase {
    case .connecting, .greeting, .closed: return
    case .securing, .joining, .open: break
    }
    guard let transport else { return }
    do throws(NATSFailure) {
      try transport.drain()
      repeat { fill() } while try sendPiece(by: transport)
    } catch {
      return failed(error)
    }
    let isBlocked = transport.hasUnsent || sentByteCount < lines.count + content.count
    setInterest(isBlocked ? [.readable, .writable] : .readable)
    if isBlocked, writeTimer == nil { scheduleWriteCheck() }
  }

  /// Combines messages, once the previous ones are sent.
  private func fill() {
    guard sentByteCount == lines.count + content.count else { return }
    let ended = content.isEmpty ? "" : "\r\n"
    lines.removeAll(keepingCapacity: true)
    lines += ended.utf8
    (content, sentByteCount) = ([], 0)
    if owesPong { lines += "PONG\r\n".utf8 }
    owesPong = false
    while lines.count < Self.linesByteCount, content.isEmpty, let message = messages.popFirst() {
      defer { message.done?() }
      guard loop.now < message.deadline else { continue }
      lines += message.head
      guard let bytes = message.content else { continue }
      if bytes.count < Self.largeByteCount {
        lines += bytes
        lines += "\r\n".utf8
      } else {
        content = bytes
      }
    }
  }

  /// - Returns: whether the socket may accept more.
  private func sendPiece(by transport: NATSTransport) throws(NATSFailure) -> Bool {
    let count: Int
    if sentByteCount < lines.count {
      count = try transport.send(lines, from: sentByteCount, hasMore: !content.isEmpty)
    } else if sentByteCount < lines.count + content.count {
      count = try transport.send(content, from: sentByteCount - lines.count, hasMore: true)  // the line end follows
    } else {
      return false
    }
    sentByteCount += count
    return count > 0
  }

  /// Closes a connection whose socket accepts nothing for `connectTimeout`.
  private func scheduleWriteCheck() {
    guard let transport else { return }
    let former = transport.takenByteCount
    writeTimer = loop.schedule(after: options.connectTimeout) { [weak self] in
      guard let self else { return }
      writeTimer = nil
      guard interest.contains(.writable) else { return }
      guard transport.takenByteCount != former else { return failed(.unread) }
      scheduleWriteCheck()
    }
  }

  private func setInterest(_ readiness: EventLoop.Readiness) {
    guard let registration, interest != readiness else { return }
    interest = readiness
    loop.update(registration, for: readiness)
  }
}
