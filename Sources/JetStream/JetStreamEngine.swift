import Fleet
import StreamRuntime

/// The engine of a fleet over NATS JetStream.
///
/// Each shard's log is a JetStream stream, and its sequence numbers are the stream's. Every replica checks
/// `Nats-Expected-Last-Sequence` when it applies an entry: two appends that expect the same sequence number are never
/// both accepted. Leases in a key-value bucket rely on a check of a subject's last sequence number. That check precedes
/// the replication of an entry, so several appends can pass it in a cluster (nats-io/nats-server#4320).
///
/// A request is a plain message. Its answer goes to a subject with a number, and one subscription receives all answers.
/// If no answer comes within `answerTimeout`, or it is not exactly as expected, the request fails; it may have had its
/// effect nevertheless. Brokers publish stored entries again as messages: the tail. Messages of the tail are not
/// acknowledged, so some may be missing. If messages arrive faster than they are processed, answers and entries of the
/// tail are dropped.
///
/// An idle engine sends nothing except a ping in each `pingInterval`.
package final class JetStreamEngine: FleetEngine {
  private enum Phase {
    /// Can become: connecting, stopped.
    case idle
    /// Can become: preparing, waiting, stopped.
    case connecting(UInt32)
    /// Makes and checks the shards' streams. Can become: ready, waiting, stopped.
    case preparing(UInt32)
    /// Can become: waiting, stopped.
    case ready(UInt32)
    /// Waits before it connects again. Can become: connecting, stopped.
    case waiting(TimerID)
    /// Final.
    case stopped
  }

  private struct Pending {
    let timer: TimerID
    /// - Parameter answer: nil if there is none.
    /// - Returns: whether no further answer is wanted.
    let receive: (_ answer: NATSMessage?) -> Bool
  }

  private struct Subscribed {
    let number: UInt32
    let receive: ([UInt8]) -> [UInt8]?
  }

  /// Carries the engine to its loop.
  private final class Reference: @unchecked Sendable {  // used on the loop only
    weak var engine: JetStreamEngine?
  }

  let options: JetStreamOptions
  let names: JetStreamNames
  let loop: EventLoop
  private weak var observer: (any FleetEngineObserver)?
  private var client: NATSClient?
  private var phase = Phase.idle
  /// Events that have arrived and were not processed.
  private var events: ArraySlice<(link: UInt32, event: NATSEvent)> = []
  /// Attempts to connect since the last lasting connection.
  private var attemptCount = 0
  /// When the streams were last available, on the loop's clock.
  private var readyTime: UInt64 = 0
  /// The last reported reason for the missing connection.
  private var reportedReason: String?
  /// Requests that have no answer yet, by number.
  private var pending: [UInt64: Pending] = [:]
  private var lastRequest: UInt64 = 0
  private var subscribed: [FleetSubject: Subscribed] = [:]
  private var subjects: [UInt32: FleetSubject] = [:]
  private var lastSubscription = JetStreamEngine.tailSubscription
  /// The streams, as found by the present connection.
  private var streams: ShardStreams?
  /// Reads that wait for others.
  var waitingReads: ArraySlice<ShardReading> = []
  var readCount = 0
  /// When other replicas than the leader may be asked again, on the loop's clock.
  var replicasTime: UInt64 = 0

  private static let inboxSubscription: UInt32 = 0
  private static let tailSubscription: UInt32 = 1
  /// Maximum number of requests without an answer; further ones fail at once.
  private static let pendingLimit = 65536
  /// After an unanswered question, only leaders are asked for this time.
  static let replicasNanoseconds: UInt64 = 30_000_000_000
  /// Maximum number of events that are processed at once, so that the loop's other work is not delayed.
  private static let eventsPerTurn = 64
  /// Delays before the engine connects again: each doubles the previous one, up to the maximum. Half of each delay is
  /// random.
  private static let reconnectDelay = (first: Duration.milliseconds(100), maximum: Duration.seconds(5))
  /// A connection of at least this age resets the delay.
  private static let lastingNanoseconds: UInt64 = 10_000_000_000

  /// - Parameters:
  ///   - options: without a `problem`; otherwise the engine only reports it.
  ///   - loop: the engine is confined to it.
  package init(_ options: JetStreamOptions, on loop: EventLoop) {
    (self.options, self.loop) = (options, loop)
    names = JetStreamNames(fleet: options.fleet, inbox: HostID.random().description)
  }

  deinit { stop() }

  // MARK: The connection

  package func start(_ observer: any FleetEngineObserver) {
    loop.assertOnLoop()
    guard case .idle = phase else { return }
    self.observer = observer
    if let problem = options.problem { return reportLater(problem) }
    let reference = Reference()
    reference.engine = self
    do throws(SystemError) {
      client = try NATSClient(on: loop) { reference.engine?.takeEvents() }
    } catch {
      return reportLater("the thread for NATS cannot be started: \(error)")
    }
    connect()
  }

  package func stop() {
    if case .stopped = phase { return }
    switch phase {
    case .connecting(let link), .preparing(let link), .ready(let link): client?.disconnect(link)
    case .waiting(let timer): loop.cancel(timer)
    case .idle, .stopped: break
    }
    phase = .stopped
    client?.stop()
    client = nil
    for request in pending.values { loop.cancel(request.timer) }
    for reading in waitingReads { reading.cancel() }
    (pending, subscribed, subjects, waitingReads, events, observer) = ([:], [:], [:], [], [], nil)
    streams = nil
  }

  private var isStopped: Bool { if case .stopped = phase { true } else { false } }

  /// The connection, if all streams are available.
  private var readyLink: UInt32? { if case .ready(let link) = phase { link } else { nil } }

  var isReady: Bool { readyLink != nil }

  /// The connection, if there is one.
  private var link: UInt32? {
    switch phase {
    case .preparing(let link), .ready(let link): link
    case .idle, .connecting, .waiting, .stopped: nil
    }
  }

  private func reportLater(_ reason: String) {
    reportedReason = reason
    _ = loop.schedule(after: .zero) { [weak self] in
      guard let self, !isStopped else { return }
      observer?.engineDisconnected(reason)
    }
  }

  private func connect() {
    guard let client else { return }
    attemptCount += 1
    phase = .connecting(client.connect(options))
  }

  /// Ends the connection, or the attempt to connect, and connects again later.
  private func disconnect(_ reason: String) {
    guard let client else { return }
    var isNews = reason != reportedReason
    switch phase {
    case .connecting(let link), .preparing(let link): client.disconnect(link)
    case .ready(let link):
      client.disconnect(link)
      isNews = true
      // Some faults, such as a missing permission, show only later: a connection that is lost at once is not a success.
      if EventLoop.monotonicNow() &- readyTime > Self.lastingNanoseconds { attemptCount = 1 }
    case .idle, .waiting, .stopped: return
    }
    streams = nil
    var delay = Self.reconnectDelay.first
    for _ in 1..<max(2, min(attemptCount, 16)) { delay = min(delay * 2, Self.reconnectDelay.maximum) }
    phase = .waiting(
      loop.schedule(after: delay * Double.random(in: 0.5...1)) { [weak self] in
        guard let self, case .waiting = phase else { return }
        connect()
      })
    if isNews {
      reportedReason = reason
      observer?.engineDisconnected(reason)
    }
    let abandoned = pending
    pending = [:]
    for request in abandoned.values {
      loop.cancel(request.timer)
      _ = request.receive(nil)
    }
  }

  private func takeEvents() {
    guard let client else { return }
    let wasEmpty = events.isEmpty
    events += client.takeEvents()
    if wasEmpty { processEvents() }
  }

  private func processEvents() {
    var count = 0
    while let (link, event) = events.popFirst() {
      process(event, from: link)
      count += 1
      if count == Self.eventsPerTurn, !events.isEmpty {
        _ = loop.schedule(after: .zero) { [weak self] in self?.processEvents() }
        return
      }
    }
  }

  private func process(_ event: NATSEvent, from link: UInt32) {
    if case .message(let message, _) = event { client?.processed(message) }
    switch phase {
    case .connecting(link), .preparing(link), .ready(link): break
    case .idle, .connecting, .preparing, .ready, .waiting, .stopped: return  // from an earlier connection
    }
    switch event {
    case .connected(let byteCount): connected(link, maximumMessageByteCount: byteCount)
    case .failed(let reason): disconnect(sentence(about: reason))
    case .message(let message, let subscription): received(message, by: subscription)
    case .dropped: observer?.engineDropped()
    }
  }

  private func sentence(about reason: String) -> String {
    let text = visible(reason)
    if case .connecting = phase { return "cannot connect to NATS: \(text)" }
    if case .preparing = phase { return "NATS cannot be used: \(text)" }
    return "the connection to NATS was lost: \(text)"
  }

  /// Makes a text of the server fit for a message: short, printable and without a secret. The server knows the secret
  /// and might repeat it, in whole or in part.
  func visible(_ text: String) -> String {
    let parts = options.credentials.secrets.map { $0.prefix(8) }
    guard !parts.contains(where: { !$0.isEmpty && text.contains($0) }) else { return "rejected" }
    return String(decoding: text.utf8.prefix(200).map { 0x20..<0x7F ~= $0 ? $0 : UInt8(ascii: "?") }, as: UTF8.self)
  }

  private func connected(_ link: UInt32, maximumMessageByteCount: Int) {
    guard let client else { return }
    guard maximumMessageByteCount >= JetStreamOptions.maximumMessageByteCount else {
      return disconnect(
        "NATS accepts messages of \(maximumMessageByteCount) bytes at most (max_payload); a fleet requires "
          + "\(JetStreamOptions.maximumMessageByteCount)")
    }
    phase = .preparing(link)
    client.subscribe(to: names.inbox + "*", group: nil, as: Self.inboxSubscription, on: link)
    client.subscribe(to: names.tails, group: nil, as: Self.tailSubscription, on: link)
    for (subject, subscription) in subscribed { subscribe(to: subject, as: subscription.number, on: link) }
    streams = ShardStreams(self, on: link)
    streams?.prepare()
  }

  /// Called when the streams are available or cannot be used.
  /// - Parameter problem: nil if the streams are available.
  func prepared(_ problem: String?, on preparedLink: UInt32) {
    guard let link, link == preparedLink else { return }
    if let problem { return disconnect(problem) }
    phase = .ready(link)
    (readyTime, reportedReason) = (EventLoop.monotonicNow(), nil)
    observer?.engineConnected()
  }

  /// Called when a shard's stream no longer exists.
  func restoreStream(_ shard: Int) { streams?.restore(shard) }

  // MARK: Requests

  /// Sends a message and receives its answers.
  ///
  /// - Parameters:
  ///   - whilePreparing: whether the message is also sent before all streams are available.
  ///   - timeout: nil: `answerTimeout`.
  ///   - receive: called with each answer until it returns true. The last call has nil, after the timeout or without a
  ///     connection.
  func request(
    _ subject: String, _ bytes: [UInt8], header: (name: String, value: String)? = nil, whilePreparing: Bool = false,
    timeout: Duration? = nil, _ receive: @escaping (_ answer: NATSMessage?) -> Bool
  ) {
    loop.assertOnLoop()
    guard !isStopped else { return }
    lastRequest += 1
    let number = lastRequest
    let timeout = timeout ?? options.answerTimeout
    guard let client, let link = whilePreparing ? link : readyLink, pending.count < Self.pendingLimit,
      client.publish(
        bytes, to: subject, reply: names.inbox + String(number), header: header, on: link, timeout: timeout)
    else {
      _ = loop.schedule(after: .zero) { [weak self] in
        guard let self, !isStopped else { return }
        _ = receive(nil)
      }
      return
    }
    let timer = loop.schedule(after: timeout) { [weak self] in
      guard let self, let request = pending.removeValue(forKey: number) else { return }
      _ = request.receive(nil)
    }
    pending[number] = Pending(timer: timer, receive: receive)
  }

  private func received(_ message: NATSMessage, by subscription: UInt32) {
    switch subscription {
    case Self.inboxSubscription:
      guard let token = message.subject.utf8.split(separator: UInt8(ascii: ".")).last,
        let number = Decimal.number(token), let request = pending[number]
      else { return }  // late, or not an answer to a request
      if request.receive(message), let request = pending.removeValue(forKey: number) { loop.cancel(request.timer) }
    case Self.tailSubscription:
      guard let sequence = message.sequence, 1..<JetStreamAnswer.sequenceLimit ~= sequence,
        let shard = names.shard(ofTail: message.subject), 0..<options.shardCount ~= shard
      else { return }
      observer?.engineAppended(message.bytes, to: shard, at: sequence)
    case let number:
      guard let subject = subjects[number], let answer = subscribed[subject]?.receive(message.bytes),
        let reply = message.reply, names.mayAnswer(to: reply), let client, let link
      else { return }
      _ = client.publish(answer, to: reply, on: link, timeout: options.answerTimeout)
    }
  }

  /// Sends a message, with a subject for an answer or without.
  func publish(_ bytes: [UInt8], to subject: String, reply: String? = nil) {
    loop.assertOnLoop()
    guard let client, let readyLink else { return }
    _ = client.publish(bytes, to: subject, reply: reply, on: readyLink, timeout: options.answerTimeout)
  }

  // MARK: Messages between hosts

  package func send(_ message: [UInt8], to subject: FleetSubject) {
    publish(message, to: names.subject(subject))
  }

  package func ask(
    _ message: [UInt8], to subject: FleetSubject, count: Int, timeout: Duration,
    _ done: @escaping ([[UInt8]]?) -> Void
  ) {
    var answers: [[UInt8]] = []
    request(names.subject(subject), message, timeout: timeout) { [self] answer in
      guard let answer else {
        // Whether nothing listens is not known.
        done(readyLink == nil || answers.isEmpty ? nil : answers)
        return true
      }
      if answer.status == nil { answers.append(answer.bytes) }
      guard answers.count >= count || answer.status == NATSMessage.noResponders else { return false }
      done(answers)
      return true
    }
  }

  package func subscribe(to subject: FleetSubject, _ receive: @escaping ([UInt8]) -> [UInt8]?) {
    loop.assertOnLoop()
    guard !isStopped else { return }
    unsubscribe(from: subject)
    lastSubscription &+= 1
    subscribed[subject] = Subscribed(number: lastSubscription, receive: receive)
    subjects[lastSubscription] = subject
    if let link { subscribe(to: subject, as: lastSubscription, on: link) }
  }

  private func subscribe(to subject: FleetSubject, as number: UInt32, on link: UInt32) {
    client?.subscribe(to: names.subject(subject), group: subject.isShared ? "hosts" : nil, as: number, on: link)
  }

  package func unsubscribe(from subject: FleetSubject) {
    loop.assertOnLoop()
    guard let former = subscribed.removeValue(forKey: subject) else { return }
    subjects[former.number] = nil
    if let link { client?.unsubscribe(former.number, on: link) }
  }
}

@available(*, unavailable) extension JetStreamEngine: Sendable {}  // confined to its loop
