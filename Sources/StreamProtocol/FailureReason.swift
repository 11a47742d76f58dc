import Events

/// Why a request or a connection of a client ended. Source: WIRE.md, "Reasons".
///
/// A number is part of the protocol and of `streamd.h`: it never changes, and no other reason gets it. An ERROR has the
/// number beside an RSocket code: see `wireCode(over:)`.
public enum FailureReason: UInt16, CaseIterable, Sendable {
  /// No stream has this name.
  case noStream = 1
  case mayNotRead = 2
  case mayNotWrite = 3
  case mayNotCommand = 4
  /// The source of the stream is not its publishers.
  case takesNoValues = 5
  /// Values of other publishers wait in the stream.
  case noSpace = 6
  /// No event has the requested key.
  case noKey = 7
  /// A command has no effect.
  case noEffect = 8
  case tooManyRequests = 9
  /// Too many views of a system stream.
  case tooManyViews = 10
  /// Too many named publishers of the stream.
  case tooManyPublishers = 11
  /// The user has too many maps that it has not received.
  case tooManyMaps = 12
  /// The system does not pass descriptors at present.
  case noDescriptors = 13
  /// There is no memory for a map.
  case noMemory = 14
  /// The user has too many filters of the stream.
  case tooManyFilters = 15
  /// The user's filters have too many bytes.
  case filtersTooLarge = 16
  /// The request names no stream, or has malformed options.
  case invalidRequest = 17
  /// No event has the id, or the position of a map, from which the request continues.
  case unknownPosition = 18
  /// The stream has no keys, or its state is incomplete.
  case noState = 19
  /// A value exceeds the stream's buffer, or `max_request`.
  case tooLarge = 20
  /// A value is not JSON.
  case notJSON = 21
  case notMapped = 22
  /// The stream cannot be mapped over this connection.
  case notMappable = 23
  /// The stream has failed permanently.
  case failed = 24
  /// Events were lost, and the subscription makes that a failure.
  case lagged = 25
  /// An event left the buffer after a part of it had been sent.
  case eventLost = 26
  /// The subscriber stalled the stream for `block_timeout`.
  case stalled = 27
  /// The daemon stops.
  case stopping = 28
  /// The daemon restarts, and the next process cannot continue the request.
  case restarting = 29
  /// An operator has ended the connection.
  case kicked = 30
  /// The client's token was removed or changed.
  case tokenRemoved = 31
  /// The process can serve no more connections.
  case noCapacity = 32
  /// The stream was removed.
  case removed = 33
  /// The stream that is published to has ended.
  case ended = 34
  /// The stream that is published to has another source now.
  case takesNoMoreValues = 35
  /// The stream was changed before it had stored all values.
  case valuesLost = 36
  /// Another publisher has the name, or the stream is being changed.
  case nameInUse = 37
  /// The stream is not mapped any more.
  case mapRemoved = 38
  /// The rest of the state is lost.
  case stateLost = 39
  /// The type of the stream has changed.
  case typeChanged = 40
  case invalidToken = 41
  /// The authentication of the SETUP is malformed, or of another kind.
  case invalidAuthentication = 42
  case tooManyConnections = 43
  /// The daemon has no valid configuration.
  case notConfigured = 44
  /// There are too many unprocessed bytes of the user's connections.
  case tooMuchInput = 45
  /// A request has too many bytes, and ends the connection. An ERROR with ``tooLarge`` has ended the request itself.
  case requestTooLarge = 46
  /// All streams of a template that the client could have are in use.
  case tooManyStreams = 47
  /// The stream is the answer to another request.
  case otherRequest = 48
  /// A request cannot be stored before it is made.
  case notKept = 49

  /// Whether the client may make the same request again by itself.
  public enum Retry: Sendable {
    /// The request would fail again, or the program has to decide.
    case never
    /// Soon, on the same connection.
    case later
    /// On a new connection.
    case reconnect
  }

  /// What a reason means for the ways to send it.
  package struct Meaning: Sendable {
    /// The code of RSocket for clients that do not know reasons.
    package var code: UInt32
    package var status: UInt16
    package var retry = Retry.never
  }

  private static let (setup, connection): (UInt32, UInt32) = (0x003, 0x101)
  private static let (failure, rejected, canceled, invalid, lag): (UInt32, UInt32, UInt32, UInt32, UInt32) = (
    0x201, 0x202, 0x203, 0x204, 0x301
  )

  package var meaning: Meaning {
    switch self {
    case .noStream, .noKey: Meaning(code: Self.rejected, status: 404)
    case .mayNotRead, .mayNotWrite, .mayNotCommand: Meaning(code: Self.rejected, status: 403)
    case .takesNoValues: Meaning(code: Self.rejected, status: 405)
    case .notKept, .noSpace, .noEffect, .tooManyRequests, .tooManyViews, .tooManyPublishers, .noMemory,
      .filtersTooLarge:
      Meaning(code: Self.rejected, status: 503)
    case .tooManyMaps, .noDescriptors, .tooManyStreams: Meaning(code: Self.rejected, status: 503, retry: .later)
    case .otherRequest: Meaning(code: Self.rejected, status: 409)
    case .tooManyFilters, .invalidRequest, .unknownPosition, .noState, .notMapped, .notMappable:
      Meaning(code: Self.invalid, status: 400)
    case .tooLarge: Meaning(code: Self.invalid, status: 413)
    case .notJSON: Meaning(code: Self.invalid, status: 422)
    case .failed: Meaning(code: Self.failure, status: 502)
    case .lagged, .eventLost, .stalled: Meaning(code: Self.lag, status: 502)
    case .stopping, .kicked, .tokenRemoved, .noCapacity: Meaning(code: Self.canceled, status: 503, retry: .reconnect)
    case .restarting, .valuesLost, .nameInUse, .stateLost: Meaning(code: Self.canceled, status: 503, retry: .later)
    case .typeChanged: Meaning(code: Self.canceled, status: 406)
    case .removed: Meaning(code: Self.canceled, status: 404)
    case .takesNoMoreValues: Meaning(code: Self.canceled, status: 405)
    case .ended, .mapRemoved: Meaning(code: Self.canceled, status: 503)
    case .invalidToken: Meaning(code: Self.setup, status: 401)
    case .invalidAuthentication: Meaning(code: Self.setup, status: 400)
    case .tooManyConnections, .notConfigured: Meaning(code: Self.setup, status: 503, retry: .reconnect)
    case .tooMuchInput: Meaning(code: Self.connection, status: 503)
    case .requestTooLarge: Meaning(code: Self.connection, status: 413, retry: .reconnect)
    }
  }

  /// Whether the client may make the same request again by itself.
  public var retry: Retry { meaning.retry }

  /// The name in words with hyphens, such as `no-stream`.
  public var name: String { Self.names[self] ?? "" }

  private static let names = Dictionary(uniqueKeysWithValues: allCases.map { ($0, words(of: "\($0)")) })

  private static func words(of identifier: String) -> String {
    var text = ""
    var wasCapital = false
    for letter in identifier {
      if letter.isUppercase, !wasCapital { text.append("-") }
      text += letter.lowercased()
      wasCapital = letter.isUppercase
    }
    return text
  }

  /// The `type` in a response of HTTP: a URI.
  package var type: String { "urn:streamd:\(name)" }

  // MARK: On the wire

  /// The data of the SETUP of a client that knows reasons.
  package static let announcement = Array(#"{"reasons":true}"#.utf8)

  /// Whether the data of a SETUP announces a client that knows reasons. Other data is ignored.
  package static func areAnnounced(by data: [UInt8]) -> Bool {
    guard !data.isEmpty, data.count <= announcementLimit, let members = JSONValue(data)?.members else { return false }
    return members.contains { $0.0.characters.map { $0.elementsEqual("reasons".utf8) } == true && $0.1.flag == true }
  }

  /// It is parsed on an event loop.
  private static let announcementLimit = 1024

  /// The code of an ERROR: the RSocket code in the upper 16 bits, the number in the lower ones.
  /// - Parameter code: nil: that of the reason; another one ends a connection.
  package func wireCode(over code: UInt32? = nil) -> UInt32 { (code ?? meaning.code) << 16 | UInt32(rawValue) }

  /// The reason of a received ERROR.
  ///
  /// - Parameters:
  ///   - code: as received.
  ///   - sentence: its text, which only a server of the last release makes necessary.
  /// - Returns: nil for a reason that this version does not know: the RSocket code then decides.
  package init?(code: UInt32, sentence: String) {
    guard code > 0xffff else {
      self.init(ofLastRelease: code, sentence)
      return
    }
    self.init(rawValue: UInt16(truncatingIfNeeded: code))
  }
}
