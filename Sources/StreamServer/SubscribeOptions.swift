import FoundationEssentials
import ReplayLog

/// What a subscriber asks for in its request's data: a JSON object, or nothing.
struct SubscribeOptions: Equatable {
  /// Where to begin.
  enum Start: Equatable {
    case replay
    case latest
    case new
    case after(UInt64)
    /// Microseconds since the Unix epoch.
    case since(UInt64)
    /// Microseconds back from now.
    case ago(UInt64)
  }

  var start = Start.replay
  var onLag: LagPolicy?
  var ids = true
  /// Whether the first event after a gap tells how many are missing; beside its id.
  var gaps = false

  /// Many times what all options take. They are read on an event loop, and a mistake in them is repeated.
  private static let byteLimit = 4096

  init() {}

  /// - Parameter data: of the request; empty means every default.
  /// - Throws: `Mistake`, one sentence that names the option.
  init(_ data: [UInt8]) throws(Mistake) {
    guard !data.isEmpty else { return }
    guard data.count <= Self.byteLimit else {
      throw Mistake("options of \(data.count) bytes: \(Self.byteLimit) at most")
    }
    guard let options = try? JSONDecoder().decode([String: Value].self, from: Data(data)) else {
      throw Mistake("options must be a JSON object of strings, numbers and booleans")
    }
    for (name, value) in options.sorted(by: { $0.key < $1.key }) {
      switch (name, value) {
      case ("from", .string(let text)): start = try Self.start(text)
      case ("from", .number(let id)): start = .after(id)
      case ("from", _): throw Mistake("option \"from\" must be a position such as \"replay\" or an event id")
      case ("on_lag", .string(let text)):
        guard let policy = LagPolicy(rawValue: text) else { fallthrough }
        onLag = policy
      case ("on_lag", _): throw Mistake("option \"on_lag\" must be \"skip\", \"latest\" or \"fail\"")
      case ("ids", .bool(let flag)): ids = flag
      case ("ids", _): throw Mistake("option \"ids\" must be true or false")
      case ("gaps", .bool(let flag)): gaps = flag
      case ("gaps", _): throw Mistake("option \"gaps\" must be true or false")
      default: throw Mistake("unknown option \"\(name)\"")
      }
    }
  }

  struct Mistake: Error, Equatable {
    let sentence: String
    init(_ sentence: String) { self.sentence = sentence }
  }

  private static func start(_ text: String) throws(Mistake) -> Start {
    switch text {
    case "replay": return .replay
    case "latest": return .latest
    case "new": return .new
    default: break
    }
    if text.hasPrefix("-"), let microseconds = microseconds(ofDuration: text.dropFirst()) { return .ago(microseconds) }
    if let date = try? Date(text, strategy: Date.ISO8601FormatStyle(includingFractionalSeconds: text.contains("."))) {
      return .since(UInt64(max(0, (date.timeIntervalSince1970 * 1_000_000).rounded())))
    }
    throw Mistake(
      "option \"from\" must be \"replay\", \"latest\", \"new\", an event id, an RFC 3339 time or a duration such as \"-5m\""
    )
  }

  /// Durations as in the configuration file: `500ms`, `10s`, `5m`, `1h`, `1d`.
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

  private enum Value: Decodable {
    case string(String)
    case number(UInt64)
    case bool(Bool)
    case other

    init(from decoder: any Decoder) throws {
      let container = try decoder.singleValueContainer()
      if let flag = try? container.decode(Bool.self) {
        self = .bool(flag)
      } else if let number = try? container.decode(UInt64.self) {
        self = .number(number)
      } else if let text = try? container.decode(String.self) {
        self = .string(text)
      } else {
        self = .other
      }
    }
  }
}

extension SubscribeOptions.Start {
  /// Where in `log` a subscriber begins; called under the log's lock.
  ///
  /// - Parameter replay: the stream's own count of events for a newcomer.
  /// - Returns: a position in `firstPosition...endPosition`, not in the hole.
  /// - Throws: when an id is asked for that no event has yet: to treat it as "now" would hide a loss.
  func position(in log: EventLog, replay: Int) throws(SubscribeOptions.Mistake) -> UInt64 {
    log.dropExpired()
    switch self {
    case .replay: return log.position(ofLast: UInt64(clamping: replay))
    case .latest: return log.position(ofLast: 1)
    case .new: return log.endPosition
    case .after(let id):
      guard id < log.endPosition else { throw .init("no event has the id \(id) yet") }
      return log.skip(max(log.firstPosition, id + 1))
    case .since(let time): return log.position(since: time)
    case .ago(let microseconds):
      let now = EventLog.wallClock()
      return log.position(since: now - min(now, microseconds))
    }
  }

  /// What a subscriber misses that begins at `position`: what came after the id that it asked to resume from.
  func gap(before position: UInt64, in log: EventLog) -> Gap {
    guard case .after(let id) = self else { return .none }
    return Gap(log.missedEvents(from: id + 1, to: position))
  }
}
