import HTTP
import Reactive
import ReplayLog
import StreamProtocol
import StreamRuntime

/// The parts of a request that its response needs.
struct HTTPRequest {
  /// Whether the response has no body.
  let isHead: Bool
  /// Whether a further request may follow on the connection.
  let keepsConnection: Bool
  /// Whether the body may be chunked.
  let allowsChunks: Bool
  /// The origin of the pages that may read the response; nil: no other site's page may.
  let allowedOrigin: String?

  init(_ head: RequestHead, allowedOrigin: String?) {
    isHead = head.method == .head
    // A body that nothing reads would be taken for the next request.
    keepsConnection = head.keepsConnection && (head.method == .post || head.framing.isEmpty)
    allowsChunks = head.version == .http11
    self.allowedOrigin = allowedOrigin
  }

  init(isHead: Bool, keepsConnection: Bool, allowsChunks: Bool, allowedOrigin: String?) {
    (self.isHead, self.keepsConnection) = (isHead, keepsConnection)
    (self.allowsChunks, self.allowedOrigin) = (allowsChunks, allowedOrigin)
  }

  /// Whether the response would be server-sent events, as far as the request alone shows it.
  static func isForEvents(_ head: RequestHead) -> Bool {
    guard head.method == .get, head.target.path.hasPrefix("/streams") || head.target.path == "/stats" else {
      return false
    }
    if let format = head.target.parameters.first(where: { $0.name == "as" }) { return format.value == "sse" }
    let types = ["application/json", EventEncoding.Format.serverSentEvents.mediaType].compactMap { MediaType($0) }
    return MediaType.preferred(head["Accept"], among: types) == 1
  }

  /// A request for the answer to input that is not a request, or not a complete one. The connection ends.
  ///
  /// - Parameter head: the bytes that have arrived, or the first ``startByteCount`` of them. A response to HEAD has no
  ///   body, even if the request has errors.
  init(malformed head: [UInt8]) {
    let line = head.drop { $0 == UInt8(ascii: "\r") || $0 == UInt8(ascii: "\n") }
    self.init(
      isHead: line.starts(with: Self.headMethod), keepsConnection: false, allowsChunks: true, allowedOrigin: nil)
  }

  private static let headMethod = "HEAD ".utf8
  /// The number of bytes that show the method: empty lines may precede it.
  static let startByteCount = 2 * RequestParser.maximumEmptyLineCount + headMethod.count
}

extension ResponseHead {
  /// The fields that every response has.
  ///
  /// - Parameters:
  ///   - date: the time, for the Date field.
  ///   - idleTime: the longest time until the next request of the connection; nil: it takes none. A client that sends one
  ///     later may find it closed.
  init(_ status: Status, to request: HTTPRequest, date: String, idleTime: Duration?) {
    self.init(status)
    add("Date", date)
    if let idleTime {
      add("Connection", "keep-alive")
      add("Keep-Alive", "timeout=\(idleTime.components.seconds)")
    } else {
      add("Connection", "close")
    }
    add("X-Content-Type-Options", "nosniff")
    if let origin = request.allowedOrigin {
      add("Access-Control-Allow-Origin", origin)
      add("Access-Control-Expose-Headers", "ETag, Last-Event-ID, Retry-After")
      add("Vary", "Origin")
    }
  }

  /// The fields of an error.
  mutating func addFields(of rejection: Rejection) {
    add("Cache-Control", "no-store")
    if rejection.status == .serviceUnavailable { add("Retry-After", "10") }
    if rejection.status == .unauthorized { addChallenge() }
  }

  /// Adds the field that asks for a token: credentials might affect the response. Source: RFC 9110, 11.6.1.
  mutating func addChallenge() { add("WWW-Authenticate", "Bearer realm=\"streamd\"") }

  /// Adds the field for a body that a publisher or an upstream has written. A browser then runs no script in it, which
  /// would have the rights of the page at `/`. It loads no resource that the body names, because that would tell others
  /// who reads the stream.
  mutating func addSandbox() {
    add("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; sandbox")
  }

  /// The fields of a response whose body is events, except for those of its length.
  mutating func addFields(ofEventsAs mediaType: String) {
    add("Content-Type", mediaType)
    addSandbox()
    add("Cache-Control", "no-store, no-transform")
    add("X-Accel-Buffering", "no")
  }
}

extension ServerSentEvents {
  /// The body for a client that is to connect again later: an EventSource stops at any status but 200.
  static func retryLater(_ rejection: Rejection) -> [UInt8] {
    Array((retry(milliseconds: 10_000) + end(reason: rejection.detail, type: rejection.type)).utf8)
  }
}

/// The parameters of a request for streams. Source: docs/HTTP.md, "Parameters".
struct StreamQuery: Equatable {
  /// The format of the events; nil: the Accept field decides.
  var format: EventEncoding.Format?
  /// The start in all streams, or one for each of them; empty: the beginning of each stream's replay.
  var from: [SubscribeOptions.Start] = []
  var lastEventID: String?
  /// The number of events in the response; nil: without a limit.
  var count: Int?
  /// False: the response ends with the newest event that there is.
  var follows = true
  var onLag: LagPolicy?
  /// Whether each event is in an envelope with its id and time.
  var ids = false
  /// The filter of the events; nil: the response has all.
  var filter: EventFilter?
  /// Whether the response has markers.
  var marker = false
  /// The time to wait for a newer event; nil: no wait.
  var wait: Duration?
  /// The key whose newest event is requested; nil: the newest event of the stream.
  var key: String?

  private static let names: Set = [
    "as", "from", "last", "count", "follow", "on_lag", "ids", "where", "marker", "wait", "key",
  ]

  /// The longest wait.
  static let longestWait = Duration.seconds(60)

  /// - Throws: 400 for a parameter that is unknown, repeated or malformed. Of several last event IDs the last one counts.
  init(_ parameters: [RequestTarget.Parameter]) throws(Rejection) {
    var seen: Set<String> = []
    for parameter in parameters where !Self.isIgnored(parameter) {
      guard !Self.isLastEventID(parameter.name) else {
        // A library adds its own parameter to the URL that it was given, also before the first event.
        if let id = Self.lastEventID(parameter.value) { lastEventID = id }
        continue
      }
      guard seen.insert(parameter.name).inserted else {
        throw Rejection(.badRequest, "parameter \"\(parameter.name)\" occurs twice")
      }
      try read(parameter.name, parameter.value)
    }
    guard !seen.isSuperset(of: ["from", "last"]) else {
      throw Rejection(.badRequest, "parameters \"from\" and \"last\" exclude each other")
    }
  }

  /// Whether libraries add this parameter by themselves, for old browsers or against caches: a name of their own, a
  /// name that begins with an underscore, or a number alone.
  static func isIgnored(_ parameter: RequestTarget.Parameter) -> Bool {
    ignored.contains(parameter.name) || parameter.name.hasPrefix("_")
      || parameter.value.isEmpty && UInt64(parameter.name) != nil
  }

  private static let ignored: Set = [
    "r", "evs_buffer_size_limit", "evs_preamble", "org.htmx.cache-buster", "dojo.preventCache",
  ]

  /// Whether a parameter is `lastEventID`, which each library spells in its own way: `lastEventId`, `Last-Event-ID`,
  /// `evs_last_event_id`.
  private static func isLastEventID(_ name: String) -> Bool {
    let letters = name.lowercased().filter { $0 != "-" && $0 != "_" }
    return letters == "lasteventid" || letters == "evslasteventid"
  }

  /// The value of `Last-Event-ID`; nil before the first event, for which JavaScript may write `null` or `undefined`.
  static func lastEventID(_ text: String?) -> String? {
    text.flatMap { ["", "null", "undefined"].contains($0) ? nil : $0 }
  }

  private mutating func read(_ name: String, _ value: String) throws(Rejection) {
    func mistake(_ what: String) -> Rejection { Rejection(.badRequest, "parameter \"\(name)\" must be \(what)") }
    switch name {
    case "as":
      switch value {
      case "sse": format = .serverSentEvents
      case "ndjson": format = .ndjson
      case "json-seq": format = .jsonSequence
      case "raw": format = .raw
      default: throw mistake("sse, ndjson, json-seq or raw")
      }
    case "from":
      do throws(SubscribeOptions.Malformed) {
        for part in value.split(separator: ",", omittingEmptySubsequences: false) {
          // A space other than that between date and time was the sign of an offset, as in 2026-01-02T03:04:05+01:00.
          let signed = part.enumerated().map { $0.element == " " && $0.offset != 10 ? "+" : $0.element }
          from.append(try SubscribeOptions.Start(text: String(signed)))
        }
      } catch {
        throw Rejection(of: .init(error))
      }
    case "last":
      guard let count = UInt64(value), count > 0, !value.hasPrefix("+") else {
        throw mistake("a number of events, at least 1")
      }
      from = [.last(count)]
    case "count":
      guard let count = Int(value), count > 0 else { throw mistake("a number of events, at least 1") }
      self.count = count
    case "follow":
      guard let flag = Self.flag(value) else { throw mistake("0 or 1") }
      follows = flag
    case "on_lag":
      guard let policy = LagPolicy(rawValue: value) else { throw mistake("skip, latest or fail") }
      onLag = policy
    case "ids":
      guard let flag = Self.flag(value) else { throw mistake("0 or 1") }
      ids = flag
    case "where":
      do throws(SubscribeOptions.Malformed) {
        filter = try EventFilter(json: Array(value.utf8))
      } catch {
        throw Rejection(of: .init(error))
      }
    case "marker":
      guard let flag = Self.flag(value) else { throw mistake("0 or 1") }
      marker = flag
    case "wait":
      guard let duration = Self.duration(value), duration <= Self.longestWait else {
        throw mistake("a duration such as 500ms or 30s, at most \(Self.longestWait.components.seconds)s")
      }
      wait = duration
    case "key": key = value
    default:
      let meant = nearest(to: name, among: Self.names).map { "; did you mean \"\($0)\"?" } ?? ""
      throw Rejection(.badRequest, "unknown parameter \"\(name)\"\(meant)")
    }
  }

  /// The start in one of the streams.
  func from(ofStream index: Int) -> SubscribeOptions.Start? { from.count > 1 ? from[index] : from.first }

  private static func flag(_ text: String) -> Bool? { text == "1" ? true : text == "0" ? false : nil }

  private static func duration(_ text: String) -> Duration? {
    for (suffix, unit) in [("ms", Duration.milliseconds(1)), ("s", .seconds(1)), ("m", .seconds(60))]
    where text.hasSuffix(suffix) {
      guard let count = UInt32(text.dropLast(suffix.count)) else { return nil }
      return unit * Int(count)
    }
    return nil
  }
}

extension EventEncoding.Format {
  var mediaType: String {
    switch self {
    case .serverSentEvents: "text/event-stream"
    case .ndjson: "application/x-ndjson"
    case .jsonSequence: "application/json-seq"
    case .raw: "application/octet-stream"
    }
  }
}

extension EventEncoding.Content {
  /// The content of events with a media type.
  init(ofType type: String) {
    let type = MediaType(type)
    self = type?.isJSON == true ? .json : type?.name.hasPrefix("text/") == true ? .text : .binary
  }
}
