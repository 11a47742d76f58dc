import Events
import HTTP
import RSocket
import TaggedFields

/// The saved state of a WebSocket, beside what it carries.
struct SavedWebSocket: Equatable, Sendable, TaggedRecord {
  private var saved = WebSocketDecoder.Saved()
  private(set) var message: [UInt8] = []
  private(set) var headerPart: [UInt8] = []

  init() {}

  init(_ saved: WebSocketDecoder.Saved, message: [UInt8], headerPart: [UInt8]) {
    (self.saved, self.message, self.headerPart) = (saved, message, headerPart)
  }

  /// - Returns: nil for a state that no connection can have.
  func decoder(maximumMessageByteCount: Int, _ messages: WebSocketDecoder.Messages = .binary) -> WebSocketDecoder? {
    guard headerPart.count <= Self.maximumHeaderPartBytes else { return nil }
    return WebSocketDecoder(
      maximumMessageByteCount: maximumMessageByteCount, messages, restoring: saved, messageByteCount: message.count)
  }

  /// A header, and the payload of a control frame.
  private static let maximumHeaderPartBytes = 14 + WebSocketFrame.maximumControlByteCount

  package mutating func visit(_ fields: inout RecordFields) throws(Malformed) {
    try fields.field(1, &saved.phase)
    try fields.field(2, &saved.byteCountLeft)
    try fields.field(3, &saved.mask)
    try fields.field(4, &saved.isLastFrame)
    try fields.field(5, &message)
    try fields.field(6, &headerPart)
    try fields.field(7, &saved.isText)
  }
}

/// The saved state of an HTTP connection: the request in progress, if there is one.
struct SavedHTTP: Equatable, Sendable, TaggedRecord {
  /// The exchange in progress; `head` without one.
  enum Phase: UInt8, Sendable {
    case head
    case waiting
    case publishing
    case streaming
    case finishing
    case rendering
  }

  /// An element of a list of texts or values.
  struct Item: Equatable, Sendable, TaggedRecord {
    var bytes: [UInt8] = []
    init() {}
    init(_ bytes: some Sequence<UInt8>) { self.bytes = Array(bytes) }
    package mutating func visit(_ fields: inout RecordFields) throws(Malformed) { try fields.field(1, &bytes) }
  }

  /// Bits of `flags` in the phase `streaming`.
  static let (followsFlag, singleFlag, patternFlag): (UInt8, UInt8, UInt8) = (1, 2, 4)

  /// The maximum number of streams of one response.
  static let streamLimit = 64

  var phase = Phase.head
  /// Whether the client has sent a request before.
  var hasRequested = false
  /// The received part of a head, or the input after the request in progress.
  var input: [UInt8] = []
  /// Bits of the request: 1 HEAD, 2 keeps the connection, 4 allows chunks.
  var request: UInt8 = 0
  var allowedOrigin: [UInt8] = []
  /// The names of the streams; one in all phases but `streaming`.
  var names: [Item] = []

  // Streaming.
  var encoding: UInt8 = 0
  /// Bits: see above; in the phase `rendering` 1 OpenMetrics, 2 with streams; in the phase `waiting` 1 waits
  /// for a newer event.
  var flags: UInt8 = 0
  /// For each stream that has ended, the id of the last event sent, as text; empty for a stream that has not ended.
  var ended: [Item] = []

  // Waiting.
  var condition: [Item] = []
  var knownID: UInt64?
  /// The rest of the wait, in nanoseconds.
  var wait: UInt64 = 0

  // Publishing.
  var body = BodyDecoder.Saved()
  var hasLines = false
  var part: [UInt8] = []
  /// The number of values that the stream was given.
  var count: UInt64 = 0
  /// The last of these, which wait in the stream for space.
  var unsettled = UnsettledValues()
  /// The values that the stream was not given.
  var values: [Item] = []
  /// The answer when all values are in the stream; nil: 200.
  var failure: Rejection?

  /// The WebSocket that carries the events or the values; nil: they are a body.
  var socket: SavedWebSocket?
  /// The number of messages that were received in it, and the number of values in the last confirmation.
  var (receivedCount, confirmedCount): (UInt64, UInt64) = (0, 0)

  init() {}

  package mutating func visit(_ fields: inout RecordFields) throws(Malformed) {
    try fields.field(1, &phase)
    try fields.field(2, &hasRequested)
    try fields.field(3, &input)
    try fields.field(4, &request)
    try fields.field(5, &allowedOrigin)
    try fields.field(6, &names)
    try fields.field(7, &encoding)
    try fields.field(8, &flags)
    try fields.field(9, &ended)
    try fields.field(10, &condition)
    try fields.field(11, &knownID)
    try fields.field(12, &wait)
    try fields.field(13, &body.phase)
    try fields.field(14, &body.byteCountLeft)
    try fields.field(15, &body.lineByteCount)
    try fields.field(16, &hasLines)
    try fields.field(17, &part)
    try fields.field(18, &count)
    try fields.field(19, &values)
    try unsettled.visit(&fields, 20, 21)
    var status = UInt16(failure?.status.rawValue ?? 0)
    var sentence = failure?.detail ?? ""
    var type = failure?.type ?? ""
    try fields.field(22, &sentence)
    try fields.field(24, &type)
    try fields.field(25, &receivedCount)
    try fields.field(26, &confirmedCount)
    // A process that does not know it would read on after what was refused.
    try fields.field(RecordFields.mandatoryBit | 23, &status)
    failure = try status == 0 ? nil : Rejection(Self.status(ofFailure: status), sentence)
    if !type.isEmpty { failure?.type = type }
    var sockets = socket.map { [$0] } ?? []
    // A process that does not know it would write a body into the WebSocket.
    try fields.field(RecordFields.mandatoryBit | 27, &sockets)
    socket = sockets.last
  }

  private static func status(ofFailure number: UInt16) throws(Malformed) -> Status {
    guard number >= 400, let status = Status(rawValue: Int(number)) else {
      throw Malformed(reason: "\(number) is not the status of an error")
    }
    return status
  }
}
