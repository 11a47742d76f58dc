import Events
import HTTP

/// The client's side of an open WebSocket. Works on bytes and times; uses no socket, clock or thread.
///
/// What is sent is bounded: a ping, a pong and a heartbeat at most wait for the upstream to read. Of several pings that
/// come meanwhile, the last one is answered. Source: RFC 6455, 5.5.3.
struct WebSocketMachine {
  /// Why the connection ends.
  struct Ending: Error, Equatable {
    /// For the close frame; nil: none, as in the upstream's.
    var code: UInt16?
    /// nil: the end is none.
    var failure: SourceFailure?
  }

  /// The time for any frame after a ping.
  static let patience = Duration.seconds(10)
  /// Bytes that are inflated in one turn of the thread at most.
  static let shareOfTurn = 64 << 10
  /// Bytes of unsent answers above which the connection ends.
  private static let longestUnsent = 64 << 10
  /// Bytes of unsent messages above which no further one is sent, and the connection ends.
  private static let mostUnsent = 4 << 20

  private let configuration: WebSocketConfiguration
  private let makeKey: () -> UInt32
  private var decoder: WebSocketDecoder
  private let inflater: ContentDecoder?
  /// Received, and not examined.
  private var unread: [UInt8] = []
  /// Bytes of the current message as they came; if it is compressed, those that are not inflated yet.
  private var payload: [UInt8] = []
  /// The number of these that are examined.
  private var takenCount = 0
  /// Whether the message ends with the payload.
  private var isWhole = false
  /// Whether the payload has the end that the sender of a compressed message removes.
  private var hasTail = false
  /// The current message as far as it is inflated.
  private var inflated: [UInt8] = []
  private var text = UTF8Check()
  /// The decoder of the current binary message, the number of bytes that it has taken, and what they have become.
  private var messageDecoder: ContentDecoder?
  private var (decodedCount, decoded): (Int, [UInt8]) = (0, [])
  private let (ignored, longestIgnored): (Set<[UInt8]>, Int)
  private var conversation: WebSocketConversation

  private var unsent: [UInt8] = []
  private var sentCount = 0
  /// Bytes of answers since nothing was unsent.
  private var answerByteCount = 0
  /// The payload of the ping that is to be answered.
  private var ping: [UInt8]?

  /// When any byte, and when a message has come; both as far as it was read.
  private var (heardAt, messageAt): (Duration, Duration)
  private var pingDue: Duration
  private var heartbeatDue: Duration?
  /// When the ping was sent that has no answer yet.
  private var pingedAt: Duration?
  /// The time at which the demand ended; nil: there is demand.
  private var unwantedSince: Duration?

  /// Begins after the handshake.
  ///
  /// - Parameters:
  ///   - compresses: whether the upstream may compress its messages.
  ///   - makeKey: a random number, for each frame.
  init(
    _ configuration: WebSocketConfiguration, compresses: Bool, at now: Duration,
    makeKey: @escaping () -> UInt32 = { .random(in: 0...UInt32.max) }
  ) {
    self.configuration = configuration
    self.makeKey = makeKey
    decoder = WebSocketDecoder(
      maximumMessageByteCount: configuration.request.maximumBodyBytes, peer: .server(compresses: compresses))
    inflater = compresses ? ContentDecoder(.deflate, isOfMessages: true) : nil
    (heardAt, messageAt, pingDue) = (now, now, now + configuration.pingEvery)
    heartbeatDue = configuration.heartbeat.map { now + $0.every }
    ignored = Set(configuration.ignored.map { Array($0.utf8) })
    longestIgnored = ignored.map(\.count).max() ?? 0
    conversation = WebSocketConversation(configuration)
    for text in conversation.begin(at: now) { send(WebSocketFrame.text(text)) }
  }

  // MARK: Receiving

  /// Takes bytes; `read` makes events of them.
  mutating func receive(_ bytes: UnsafeRawBufferPointer, at now: Duration) {
    unsafe unread.append(contentsOf: bytes)
    heardAt = now
  }

  /// Makes events of what was received, one of each message.
  ///
  /// - Returns: whether that is used up; if not, the rest is for another turn.
  /// - Throws: when the upstream closes the connection, or violates the protocol or a limit. The events before are valid.
  mutating func read(into events: inout EventBatch, at now: Duration) throws(Ending) -> Bool {
    var (room, offset) = (Self.shareOfTurn, 0)
    let bytes = unread
    unread = []
    defer { unread = Array(bytes[offset...]) }
    while true {
      guard try take(&room, into: &events, at: now) else { return false }
      let step: WebSocketDecoder.Step
      do throws(WebSocketDecoder.Violation) {
        step = try decoder.next(in: bytes.span, from: &offset, message: &payload)
      } catch {
        throw violation(error)
      }
      switch step {
      case .needsBytes: return try take(&room, into: &events, at: now)
      case .message: isWhole = true
      case .ping(let payload): ping = payload
      case .pong: break
      case .close(let code): throw Ending(code: code, failure: Self.failure(ofClose: code))
      }
    }
  }

  /// Examines the payload, and inflates it if it is compressed.
  /// - Returns: false if `room` does not suffice.
  private mutating func take(
    _ room: inout Int, into events: inout EventBatch, at now: Duration
  ) throws(Ending) -> Bool {
    if decoder.isCompressed, let inflater {
      guard try inflate(with: inflater, &room) else { return false }
    } else {
      text = try checked(payload.span.extracting(takenCount...))
      takenCount = payload.count
    }
    guard isWhole else { return true }
    guard !decoder.isText || text.isComplete else { throw Self.malformedText }
    var message = decoder.isCompressed ? inflated : payload
    if !decoder.isText, let coding = configuration.decode.content,
      coding != .gzip || message.starts(with: [0x1F, 0x8B])
    {
      guard try decode(message, coding, &room) else { return false }
      message = decoded
      (messageDecoder, decodedCount, decoded) = (nil, 0, [])
    }
    if message.count > longestIgnored || !ignored.contains(message) { events.append(message) }
    payload.empty()
    inflated.empty()
    (takenCount, isWhole, hasTail, text, messageAt) = (0, false, false, UTF8Check(), now)
    return true
  }

  /// Decodes a binary message.
  /// - Returns: false if `room` does not suffice.
  private mutating func decode(_ message: [UInt8], _ coding: ContentCoding, _ room: inout Int) throws(Ending) -> Bool {
    let decoder = messageDecoder ?? ContentDecoder(coding)
    messageDecoder = decoder
    let limit = configuration.request.maximumBodyBytes
    do throws(ContentFault) {
      while true {
        guard room > 0 else { return false }
        decodedCount += try unsafe message.span.extracting(decodedCount...).withUnsafeBytes {
          bytes throws(ContentFault) in
          try unsafe decoder.decode(bytes)
        }
        guard decoder.hasOutput else { break }
        let output = unsafe decoder.output
        guard output.count <= limit - decoded.count else { break }
        unsafe decoded.append(contentsOf: output)
        room -= output.count
      }
      if !decoder.hasOutput { try decoder.end() }
    } catch {
      throw Ending(code: 1007, failure: SourceFailure("a binary message is not encoded with \(coding), or damaged"))
    }
    guard !decoder.hasOutput else { throw Ending(code: 1009, failure: .over(limit, "message")) }
    return true
  }

  private mutating func inflate(with inflater: ContentDecoder, _ room: inout Int) throws(Ending) -> Bool {
    while isWhole || !payload.isEmpty {
      guard room > 0 else { return false }
      do throws(ContentFault) {
        takenCount += try unsafe payload.span.extracting(takenCount...).withUnsafeBytes { bytes throws(ContentFault) in
          try unsafe inflater.decode(bytes)
        }
      } catch {
        throw Ending(code: 1002, failure: SourceFailure("a compressed message cannot be decoded"))
      }
      let output = unsafe inflater.output
      guard inflater.hasOutput else {
        (payload, takenCount) = ([], 0)
        guard isWhole, !hasTail else { break }
        (payload, hasTail) = ([0, 0, 0xff, 0xff], true)
        continue
      }
      let limit = configuration.request.maximumBodyBytes
      guard output.count <= limit - inflated.count else { throw Ending(code: 1009, failure: .over(limit, "message")) }
      unsafe inflated.append(contentsOf: output)
      room -= output.count
      text = try checked(inflated.span.extracting(last: output.count))
    }
    return true
  }

  /// The state of the text's check after the next bytes of the message.
  private func checked(_ bytes: Span<UInt8>) throws(Ending) -> UTF8Check {
    var text = text
    guard !decoder.isText || text.take(bytes) else { throw Self.malformedText }
    return text
  }

  private static let malformedText = Ending(code: 1007, failure: SourceFailure("a text message is not UTF-8"))

  private func violation(_ violation: WebSocketDecoder.Violation) -> Ending {
    let isTooLong = violation.code == 1009
    return Ending(
      code: violation.code,
      failure: isTooLong
        ? .over(configuration.request.maximumBodyBytes, "message")
        : SourceFailure("the upstream has violated the WebSocket protocol: \(violation.reason)"))
  }

  /// A server that ends the connection without a complaint is asked again at once, as one that ends a response.
  private static func failure(ofClose code: UInt16?) -> SourceFailure? {
    guard let code, code != 1000, code != 1001 else { return nil }
    // The server's own text does not belong in the journal.
    let meaning = meanings[code].map { " (\($0))" } ?? ""
    return SourceFailure("the upstream has closed the connection with \(code)\(meaning)")
  }

  /// RFC 6455, 7.4.1, and IANA, "WebSocket Close Code Number Registry".
  private static let meanings: [UInt16: String] = [
    1002: "protocol error", 1003: "unsupported data", 1007: "invalid data", 1008: "policy violation",
    1009: "message too big", 1010: "extension required", 1011: "internal error", 1012: "service restart",
    1013: "try again later", 1014: "bad gateway", 3000: "unauthorized", 3003: "forbidden", 3008: "timeout",
  ]

  // MARK: The conversation

  /// Whether the next events need verdicts before they are passed on.
  var needsVerdicts: Bool { conversation.needsVerdicts }

  /// Sends what follows from the verdicts on events.
  ///
  /// - Returns: the events without those that were answered, up to the one that has ended the connection.
  mutating func hear(
    _ verdicts: [WebSocketConversation.Verdict], on events: EventBatch, at now: Duration
  ) -> (events: EventBatch, ending: Ending?) {
    var rest = EventBatch()
    for (event, verdict) in zip(events, verdicts) {
      do throws(SourceFailure) {
        for text in try conversation.hear(verdict, at: now) { send(WebSocketFrame.text(text)) }
        answerByteCount += verdict.answer?.count ?? 0
        guard answerByteCount <= Self.longestUnsent else {
          throw SourceFailure("the upstream does not read the answers that it asks for")
        }
      } catch {
        return (rest, Ending(code: 1008, failure: error))
      }
      if !verdict.isAnswered { rest.append(event) }
    }
    return (rest, nil)
  }

  /// Whether the messages of the opening are sent.
  var isOpened: Bool { conversation.isOpened }

  // MARK: Sending

  /// Sends a text after the opening.
  /// - Throws: if the upstream does not read.
  mutating func say(_ text: [UInt8]) throws(Ending) {
    guard unsent.count - sentCount <= Self.mostUnsent else {
      throw Ending(code: 1008, failure: SourceFailure("the upstream does not read what it is sent"))
    }
    send(WebSocketFrame.text(text))
  }

  /// Whether bytes are to be sent.
  var hasUnsent: Bool { !unsent.isEmpty || ping != nil }

  /// Copies the next bytes to send.
  /// - Returns: their number; 0: there are none.
  mutating func fill(_ room: UnsafeMutableRawBufferPointer) -> Int {
    if unsent.isEmpty, let payload = ping.take() { send(WebSocketFrame.pong(payload)) }
    let count = min(room.count, unsent.count - sentCount)
    unsafe room.copyBytes(from: unsent[sentCount..<sentCount + count])
    sentCount += count
    if sentCount == unsent.count {
      unsent.empty()
      (sentCount, answerByteCount) = (0, 0)
    }
    return count
  }

  /// Nothing is read any more. The close frame follows what is being sent.
  mutating func close(_ code: UInt16?) {
    ping = nil
    send(WebSocketFrame.close(code))
  }

  private mutating func send(_ frame: [UInt8]) { unsent += WebSocketFrame.masked(frame, with: makeKey()) }

  // MARK: Times

  /// Whether there is demand: the connection is read only then.
  mutating func setWanted(_ isWanted: Bool, at now: Duration) {
    guard isWanted == (unwantedSince != nil) else { return }
    if let pinged = pingedAt, heardAt > pinged { pingedAt = nil }
    if let unwantedSince { conversation.waited(now - unwantedSince) }
    unwantedSince = isWanted ? nil : now
    guard isWanted else { return }
    (heardAt, messageAt) = (now, now)
    if pingedAt != nil { pingedAt = now }
  }

  /// Sends what is due.
  ///
  /// - Returns: when to call again at the latest.
  /// - Throws: when the upstream is silent for too long, or there was no demand for too long.
  mutating func next(at now: Duration) throws(Ending) -> Duration {
    if let unwantedSince {
      let due = unwantedSince + configuration.pingEvery
      guard now < due else { throw Ending(code: 1000, failure: nil) }
      return due
    }
    if let pinged = pingedAt, heardAt > pinged { pingedAt = nil }
    if let pingedAt, now >= pingedAt + Self.patience {
      throw Ending(code: 1011, failure: SourceFailure("no answer to a ping within \(Self.patience.inWords)"))
    }
    let idleDue = configuration.idleTimeout.map { messageAt + $0 }
    if let limit = configuration.idleTimeout, let idleDue, now >= idleDue {
      throw Ending(code: 1000, failure: SourceFailure("no message within \(limit.inWords)"))
    }
    if let due = conversation.due, now >= due { throw Ending(code: 1000, failure: conversation.lateness) }
    if now >= pingDue {
      if unsent.isEmpty { send(WebSocketFrame.ping()) }
      pingedAt = pingedAt ?? now
      pingDue = now + configuration.pingEvery
    }
    if let (text, every) = configuration.heartbeat, let due = heartbeatDue, now >= due {
      if unsent.isEmpty, conversation.isOpened { send(WebSocketFrame.text(Array(text.utf8))) }
      heartbeatDue = now + every
    }
    return [pingDue, heartbeatDue, idleDue, conversation.due, pingedAt.map { $0 + Self.patience }].compactMap(\.self)
      .min() ?? pingDue
  }
}
