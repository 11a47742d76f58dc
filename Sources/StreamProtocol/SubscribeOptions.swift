import Events

/// What happens to a subscription whose next event was evicted.
public enum LagPolicy: String, CaseIterable, Sendable {
  /// Continues with the oldest stored event; the ids show the gap.
  case skip
  /// Continues with the newest event.
  case latest
  /// The request ends with `ErrorCode.lagged` and the number of lost events.
  case fail
}

/// The start of a subscription, and its lag policy: the data of its request. Source: WIRE.md, "Options of a
/// subscription".
public struct SubscribeOptions: Equatable, Sendable {
  /// The position of the first event.
  public enum Start: Equatable, Sendable {
    /// The last `replay` events of the stream's configuration, then new ones.
    case replay
    /// The newest event, then new ones.
    case latest
    /// Only new events.
    case new
    /// At most this many of the last stored events, then new ones. A filter does not change the number: it is applied
    /// to these events.
    case last(UInt64)
    /// The stored events after this id.
    case after(id: UInt64)
    /// The newest event of each key, then every later event. Only for a stream with keys.
    case state
    /// The stored events since an RFC 3339 time, or since a duration before the present: `"-5m"`.
    case since(String)
  }

  /// The server's defaults.
  public typealias LagPolicy = StreamProtocol.LagPolicy

  /// The start position.
  public var from: Start
  /// `nil`: the stream's default.
  public var onLag: LagPolicy?
  /// Whether events have their id and time; 16 bytes each on the wire.
  public var ids: Bool
  /// Whether the first event after a gap has the number of missing events; only together with ids.
  package var gaps = false
  /// Only events that it fits; `nil`: all.
  public var filter: EventFilter?
  /// Whether a payload without data shows that the subscription is current: after the events that exist at its
  /// beginning, and every 10 s while there is nothing else. The payload costs one credit. Only together with ids.
  public var marker: Bool
  /// For a pattern: whether each payload has the name of its stream, and the position to resume from. Then each has the number
  /// of missing events, too, which is 0 as a rule. Only together with ids.
  package var names = false
  /// For a request for one value: the key whose newest event is requested; see `EventKeyReader.keys(namedBy:)`.
  package var key: String?
  /// Whether a request for one value is for the stream's map, and one for a stream has the demand of its reader.
  package var map = false
  /// For the demand of a map's reader: the position in the reply to its request for the map.
  package var position: UInt64?

  /// The defaults are the server's.
  public init(
    from: Start = .replay, onLag: LagPolicy? = nil, ids: Bool = true, filter: EventFilter? = nil, marker: Bool = false
  ) {
    (self.from, self.onLag, self.ids, self.filter, self.marker) = (from, onLag, ids, filter, marker)
  }
}

/// The start time of a subscription.
package enum StartTime: Equatable, Sendable {
  /// Microseconds since the Unix epoch.
  case at(UInt64)
  /// Microseconds before the present.
  case ago(UInt64)

  /// - Parameter text: an RFC 3339 time, or a negative duration as in the configuration file: `-500ms`, `-10s`, `-5m`,
  ///   `-1h`, `-1d`.
  package init?(_ text: String) {
    if text.hasPrefix("-"), let microseconds = Self.microseconds(ofDuration: text.dropFirst()) {
      self = .ago(microseconds)
    } else {
      var time = RFC3339Time(text)
      guard let microseconds = time.microsecondsSinceEpoch() else { return nil }
      self = .at(UInt64(max(0, microseconds)))
    }
  }

  private static func microseconds(ofDuration text: Substring) -> UInt64? {
    let units: [(String, UInt64)] = [
      ("ms", 1000), ("s", 1_000_000), ("m", 60_000_000), ("h", 3_600_000_000), ("d", 86_400_000_000),
    ]
    for (suffix, factor) in units where text.hasSuffix(suffix) {
      guard let number = UInt64(text.dropLast(suffix.count)) else { return nil }
      let (product, overflow) = number.multipliedReportingOverflow(by: factor)
      return overflow ? nil : product
    }
    return nil
  }
}

// MARK: On the wire

extension SubscribeOptions {
  /// Invalid options: one sentence that names the option.
  package struct Malformed: Error, Equatable {
    package let sentence: String
    package let reason: FailureReason

    package init(_ sentence: String, _ reason: FailureReason = .invalidRequest) {
      (self.sentence, self.reason) = (sentence, reason)
    }
  }

  /// Maximum bytes: a filter and many times the size of all other options. They are parsed on an event loop, and errors
  /// quote them.
  private static let byteLimit = 8192

  /// The request data: a JSON object of the options that differ from their defaults; empty if none does.
  package var json: [UInt8] {
    var members: [String] = []
    switch from {
    case .replay: break
    case .latest: members.append(#""from":"latest""#)
    case .new: members.append(#""from":"new""#)
    case .last(let count): members.append(#""from":-\#(max(1, count))"#)
    case .after(let id): members.append(#""from":\#(id)"#)
    case .state: members.append(#""from":"state""#)
    case .since(let time): members.append(#""from":\#(JSONScalar.quoted(time))"#)
    }
    if let onLag { members.append(#""on_lag":"\#(onLag.rawValue)""#) }
    if !ids { members.append(#""ids":false"#) } else if gaps { members.append(#""gaps":true"#) }
    if marker { members.append(#""marker":true"#) }
    if names { members.append(#""names":true"#) }
    if map { members.append(#""map":true"#) }
    if let position { members.append(#""position":\#(position)"#) }
    if let key { members.append(#""key":\#(JSONScalar.quoted(key))"#) }
    if let filter { members.append(#""where":"# + String(decoding: filter.json, as: UTF8.self)) }
    return members.isEmpty ? [] : Array("{\(members.joined(separator: ","))}".utf8)
  }

  /// - Parameter data: the request's data; empty means every default.
  package init(json data: [UInt8]) throws(Malformed) {
    self.init()
    guard !data.isEmpty else { return }
    guard data.count <= Self.byteLimit else {
      throw Malformed("options of \(data.count) bytes: \(Self.byteLimit) at most")
    }
    guard let members = JSONValue(data)?.members else { throw Malformed("options must be a JSON object") }
    var names: Set<String> = []
    for (key, value) in members {
      let name = String(decoding: key.characters ?? [], as: UTF8.self)
      guard names.insert(name).inserted else { throw Malformed("option \(JSONScalar.quoted(name)) is given twice") }
      try read(name, value)
    }
    guard ids || !marker else { throw Malformed("option \"marker\" requires ids") }
    guard ids || !self.names else { throw Malformed("option \"names\" requires ids") }
    guard map || position == nil else { throw Malformed("option \"position\" requires \"map\"") }
    if map, let name = names.subtracting(Self.mapOptions).min() {
      throw Malformed("option \(JSONScalar.quoted(name)) is not for maps")
    }
    guard !map || from != .state else { throw Malformed("option \"from\" must not be \"state\" for maps") }
  }

  private static let mapOptions: Set = ["map", "from", "on_lag", "position"]

  private mutating func read(_ name: String, _ value: JSONValue) throws(Malformed) {
    switch name {
    case "from":
      if let text = value.string {
        from = try Start(position: text)
      } else if let number = EventFilter.Number(value),
        // The description of a large number has an exponent.
        let start = Start(number: String(decoding: value.bytes, as: UTF8.self)) ?? Start(number: number.description)
      {
        from = start
      } else {
        throw Malformed(
          "option \"from\" must be a position such as \"replay\", an event id or a number of last events such as -10")
      }
    case "on_lag":
      guard let policy = value.string.flatMap({ LagPolicy(rawValue: $0) }) else {
        throw Malformed("option \"on_lag\" must be \"skip\", \"latest\" or \"fail\"")
      }
      onLag = policy
    case "ids": ids = try flag(name, value)
    case "gaps": gaps = try flag(name, value)
    case "marker": marker = try flag(name, value)
    case "names": names = try flag(name, value)
    case "map": map = try flag(name, value)
    case "position":
      guard let number = EventFilter.Number(value), case .after(let id)? = Start(number: number.description) else {
        throw Malformed("option \"position\" must be a position of a map")
      }
      position = id
    case "key":
      guard let text = value.string else { throw Malformed("option \"key\" must be a string") }
      key = text
    case "where": filter = try EventFilter(value)
    default: throw Malformed("unknown option \(JSONScalar.quoted(name))")
    }
  }

  private func flag(_ name: String, _ value: JSONValue) throws(Malformed) -> Bool {
    guard let flag = value.flag else { throw Malformed("option \"\(name)\" must be true or false") }
    return flag
  }
}

extension SubscribeOptions.Start {
  /// - Parameter text: an event id, or a number of last events with a minus sign, in decimal digits.
  package init?(number text: String) {
    let digits = text.hasPrefix("-") ? text.dropFirst() : text[...]
    // `UInt64` also takes a plus sign.
    guard digits.utf8.first != UInt8(ascii: "+"), let number = UInt64(digits) else { return nil }
    guard text.hasPrefix("-") else {
      self = .after(id: number)
      return
    }
    guard number > 0 else { return nil }
    self = .last(number)
  }

  /// - Parameter text: `replay`, `latest`, `new`, `state`, an RFC 3339 time or a duration such as `-5m`.
  package init(position text: String) throws(SubscribeOptions.Malformed) {
    switch text {
    case "replay": self = .replay
    case "latest": self = .latest
    case "new": self = .new
    case "state": self = .state
    default:
      guard StartTime(text) != nil else {
        throw SubscribeOptions.Malformed(
          "option \"from\" must be \"replay\", \"latest\", \"new\", \"state\", an event id, a number of last events such as -10, "
            + "an RFC 3339 time or a duration such as \"-5m\"")
      }
      self = .since(text)
    }
  }

  /// - Parameter text: also a number, as in a URL.
  package init(text: String) throws(SubscribeOptions.Malformed) {
    if let start = Self(number: text) { self = start } else { try self.init(position: text) }
  }
}
