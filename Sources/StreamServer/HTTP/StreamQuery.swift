import HTTP
import StreamProtocol
import StreamRuntime

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
  /// Whether the messages of a WebSocket are published.
  var publishes = false

  private static let names: Set = [
    "as", "from", "last", "count", "follow", "on_lag", "ids", "where", "marker", "wait", "key", "publish",
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
    "ticket",  // which has admitted the request, or is ignored like a token
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
    if let member = Self.flags[name] {
      guard value == "0" || value == "1" else { throw mistake("0 or 1") }
      self[keyPath: member] = value == "1"
      return
    }
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
    case "on_lag":
      guard let policy = LagPolicy(rawValue: value) else { throw mistake("skip, latest or fail") }
      onLag = policy
    case "where":
      do throws(SubscribeOptions.Malformed) {
        filter = try EventFilter(json: Array(value.utf8))
      } catch {
        throw Rejection(of: .init(error))
      }
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

  /// Whether it has no parameter that is for events.
  var isOnlyForPublishing: Bool {
    var other = Self()
    (other.format, other.publishes) = (format, true)
    return self == other
  }

  private init() {}

  /// The start in one of the streams.
  func from(ofStream index: Int) -> SubscribeOptions.Start? { from.count > 1 ? from[index] : from.first }

  private static let flags: [String: WritableKeyPath<StreamQuery, Bool> & Sendable] = [
    "follow": \.follows, "ids": \.ids, "marker": \.marker, "publish": \.publishes,
  ]

  private static func duration(_ text: String) -> Duration? {
    for (suffix, unit) in [("ms", Duration.milliseconds(1)), ("s", .seconds(1)), ("m", .seconds(60))]
    where text.hasSuffix(suffix) {
      guard let count = UInt32(text.dropLast(suffix.count)) else { return nil }
      return unit * Int(count)
    }
    return nil
  }
}
