/// The protocol of a connection: converts its input into requests, and their results into bytes.
///
/// A connection has no speaker before its first byte, which selects one. RSocket, also in a WebSocket, has the same one until
/// the end. HTTP has one between requests (`HTTPSpeaker`), and one for each request that is not answered at once
/// (`Exchange`); an HTTP connection that becomes a WebSocket gets another one.
///
/// A speaker owns what its protocol knows: partial frames and heads, requests that publish, and the answers that the
/// connection has not taken. The socket, the unsent bytes, turns, timers, subscriptions and the account are the
/// connection's, which calls the members below. Each refers to the other until the connection ends or has another
/// speaker (`Connection.speak`). Confined to the connection's loop.
class Speaker {
  final let connection: Connection

  init(_ connection: Connection) { self.connection = connection }

  final var worker: Worker { connection.worker }
  final var identity: ClientIdentity { connection.identity }

  /// Whether the handshake is complete. Before that, the handshake timeout applies.
  var isEstablished: Bool { false }

  /// The protocol's name in `$clients`. A client that has sent nothing counts as one of RSocket.
  var protocolName: String { "rsocket" }

  /// Whether the input is the frames of a WebSocket.
  var isWebSocket: Bool { false }

  /// The streams that the client publishes to.
  var publishedStreams: [String] { [] }

  /// The number of live requests.
  var requestCount: Int { 0 }

  // MARK: Input

  /// Bytes of partial frames and requests, and of values beyond their share.
  var heldByteCount: Int { 0 }

  /// Whether input is left in the socket until the speaker calls `watch`.
  var holdsInput: Bool { false }

  /// Processes input.
  /// - Parameter deadline: the end of the connection's slice, in nanoseconds of the monotonic clock.
  /// - Returns: the number of processed bytes; the others wait for another turn.
  func process(_ bytes: UnsafeRawBufferPointer, until deadline: UInt64) -> Int { bytes.count }

  /// All input of this turn was processed.
  func finishProcessing() {}

  /// Does the work that waits for the connection's turn, other than input.
  /// - Returns: false if there was nothing.
  func takeTurn() -> Bool { false }

  /// Does all of that work now: the connection will be saved.
  func finishTurns() {}

  /// The peer sends nothing more, and may still read. The connection closes unless ``hasOutbound`` holds afterwards.
  func inputEnded() {}

  /// Whether the connection is needed after the peer has closed its reading end.
  var hasInbound: Bool { false }

  /// Whether the connection is needed though the peer sends no more. It still reads.
  var hasOutbound: Bool { false }

  /// The timer of an open connection has fired: the handshake timeout, or one that the speaker has set.
  func timeIsOver() {}

  // MARK: Output

  /// The number of bytes to write before any event.
  var answerByteCount: Int { 0 }

  /// Removes and returns these bytes.
  func takeAnswers() -> [UInt8] { [] }

  /// All unsent bytes are written, and the connection is open.
  func didWriteAll() {}

  // MARK: Subscriptions

  /// Sends the error that ends a request; its subscription has ended already, or never began.
  func sendFailure(_ request: RequestID, _ failure: RequestFailure) {}

  /// The bytes of such an error, for a connection whose replies may have descriptors.
  func encoded(_ failure: RequestFailure, of request: RequestID) -> [UInt8] { [] }

  /// Ends a request whose stream has ended; the caller removes the subscription.
  func sendCompletion(_ request: RequestID) {}

  /// A request has ended, and its last frame is written.
  func forget(_ request: RequestID) {}

  /// A part of a response's body was sent, or there was nothing to send.
  /// - Parameter isAll: whether the log has nothing more.
  func didSend(_ subscription: StreamSubscription, byteCount: Int, isAll: Bool) {}

  /// A subscription has ended, and is in no list any more.
  func didRemove() {}

  /// A subscription to a notice has its first event.
  func answer(_ subscription: StreamSubscription) {}

  /// Adds bytes to write before any event.
  func append(answer: [UInt8]) {}

  /// A reader of a pattern has looked at all streams that there are, or a member of it has ended.
  func didJoin(_ reader: PatternReader) {}

  /// The label of a subscription's events in a response with several streams.
  func label(of subscription: StreamSubscription) -> EventLabel? { nil }

  // MARK: The end

  /// Ends the publishing requests to which the client has no right any more.
  func reapplyWriteAccess() {}

  /// Ends the connection of a client that has too many unprocessed bytes, with a sentence for it.
  func refuse(_ sentence: String) { connection.finishClosing() }

  /// The server stops, or cannot serve the connection: every request ends, then the connection.
  func stop(_ failure: RequestFailure) { connection.finishClosing() }

  /// The connection has ended: ends everything besides subscriptions.
  func leave() {}

  // MARK: From one process to the next

  /// Adds the protocol's part to the connection's record, after writing what can be written. A request that the next
  /// process cannot continue ends here.
  func save(to saved: inout SavedConnection) {}

  /// Restores that part. Reads and writes nothing before ``resume()``.
  func restore(_ saved: SavedConnection) {}

  /// The restored connection begins to read and write.
  func resume() {}
}
