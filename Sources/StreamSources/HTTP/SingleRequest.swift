import Events

/// A request that is made once, with a body that comes when it is to be sent. Its response is the whole stream, which ends with it.
///
/// Nothing is repeated, whatever the failure is: only who has made the request knows whether it may be made again.
public struct SingleRequest: Sendable {
  /// With true the request begins, and may wait for its token and its host. With false the stream ends.
  public typealias Begin = @Sendable (Bool) -> Void
  /// With the body the request is sent. With nil the stream ends.
  public typealias Send = @Sendable (HTTPBody?) -> Void

  /// A response that is not the stream.
  public struct Refusal: Sendable, Equatable {
    /// Its status.
    public let status: Int
    /// The media type; empty: the response has none.
    public let type: String
    /// Without the values of secrets.
    public let body: [UInt8]

    /// Creates one.
    public init(status: Int, type: String, body: [UInt8]) {
      (self.status, self.type, self.body) = (status, type, body)
    }
  }

  /// Asks for the turn of the request, on the source thread. Calls its argument once, on any thread.
  public var turn: @Sendable (@escaping Begin) -> Void
  /// Asks for the body, once, when the request is to be sent at once, on the source thread. Calls its argument once, on any
  /// thread.
  public var body: @Sendable (@escaping Send) -> Void
  /// Called before the stream ends, on the source thread.
  ///
  /// - Parameters:
  ///   - failure: one sentence; nil: the response is complete.
  ///   - refusal: the response, if it is not the stream and is short.
  public var ended: @Sendable (_ failure: String?, _ refusal: Refusal?) -> Void
  /// The type of a body that has none.
  public var standardType = "application/json"
  /// The texts that are replaced in what the upstream says.
  public var secrets: [String]

  /// Creates one with the type of JSON.
  public init(
    secrets: [String] = [], turn: @escaping @Sendable (@escaping Begin) -> Void,
    body: @escaping @Sendable (@escaping Send) -> Void,
    ended: @escaping @Sendable (_ failure: String?, _ refusal: Refusal?) -> Void
  ) {
    (self.secrets, self.turn, self.body, self.ended) = (secrets, turn, body, ended)
  }
}

/// The response to a single request, as far as it is not the stream.
struct RefusedRequest {
  /// Why it is not; nil: its status says it.
  var reason: String?
  private let head: UpstreamResponse
  private var body: [UInt8] = []
  /// Whether the body is longer than the limit.
  private var isCut = false

  /// A body of more bytes is not kept.
  static let bodyLimit = 64 << 10
  /// The bytes of the body in a sentence.
  private static let quoteLimit = 1 << 10

  init(_ head: UpstreamResponse, reason: String? = nil) { (self.head, self.reason) = (head, reason) }

  /// - Returns: whether more bytes are of interest.
  mutating func append(_ bytes: UnsafeRawBufferPointer) -> Bool {
    let room = Self.bodyLimit - body.count
    unsafe body.append(contentsOf: bytes.prefix(room))
    if bytes.count > room { isCut = true }
    return !isCut
  }

  /// A sentence, with the beginning of the body.
  func sentence(without secrets: [String]) -> String {
    let reason = reason ?? SourceFailure.status(head.status, retryAfter: head.retryAfter).sentence
    // A secret that the limit would cut is replaced before.
    let text = String(decoding: body.without(secrets).prefix(Self.quoteLimit), as: UTF8.self)
    let line = text.split { character in
      character.isWhitespace || character.unicodeScalars.allSatisfy { $0.properties.generalCategory == .control }
    }
    return line.isEmpty ? reason : "\(reason): \(line.joined(separator: " "))"
  }

  /// nil: the body is too long.
  func refusal(without secrets: [String]) -> SingleRequest.Refusal? {
    isCut ? nil : .init(status: head.status, type: head.contentType ?? "", body: body.without(secrets))
  }
}

extension [UInt8] {
  /// The bytes with an ellipsis in place of each secret.
  func without(_ secrets: [String]) -> [UInt8] {
    let secrets = secrets.map { Array($0.utf8) }.filter { !$0.isEmpty }.sorted { $0.count > $1.count }
    guard !secrets.isEmpty else { return self }
    var result: [UInt8] = []
    var index = 0
    while index < count {
      if let secret = secrets.first(where: { self[index...].starts(with: $0) }) {
        result += "…".utf8
        index += secret.count
      } else {
        result.append(self[index])
        index += 1
      }
    }
    return result
  }
}
