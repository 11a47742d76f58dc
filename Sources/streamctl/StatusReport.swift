import FoundationEssentials

/// The daemon's counters from `$stats`, one per line: the most important ones first.
struct StatusReport {
  private enum Value: Decodable {
    case number(Double)
    case integer(Int64)
    case text(String)
    case other

    init(from decoder: any Decoder) throws {
      let container = try decoder.singleValueContainer()
      if let integer = try? container.decode(Int64.self) {
        self = .integer(integer)
      } else if let number = try? container.decode(Double.self) {
        self = .number(number)
      } else if let text = try? container.decode(String.self) {
        self = .text(text)
      } else {
        self = .other
      }
    }

    var text: String? {
      switch self {
      case .integer(let integer): String(integer)
      case .number(let number): String(number)
      case .text(let text): text
      case .other: nil
      }
    }

    var seconds: Int64? {
      switch self {
      case .integer(let integer): integer
      case .number(let number): Int64(exactly: number.rounded(.down))
      case .text, .other: nil
      }
    }
  }

  private let values: [String: Value]
  private let streams: StreamListing

  /// The first keys, in this order; the others follow by name.
  private static let firstKeys = [
    "version", "configuration_error", "uptime_seconds", "fleet", "connections", "subscribers", "streams", "shared",
    "events_in", "events_out", "bytes_in", "bytes_out",
  ]

  init(json: [UInt8], streams: StreamListing) throws(Stop) {
    do {
      values = try JSONDecoder().decode([String: Value].self, from: Data(json))
    } catch {
      throw .badAnswer("unexpected reply from the daemon: the counters cannot be read")
    }
    self.streams = streams
  }

  var text: String {
    let others = values.keys.filter { !Self.firstKeys.contains($0) }.sorted()
    let lines: [[String]] = (Self.firstKeys + others).compactMap { key in
      switch key {
      case "configuration_error":
        values[key]?.text.map { ["configuration", "the previous one is served: \($0)"] }
      case "streams": ["streams", streams.summary]
      case "shared": streams.fleetSummary.map { ["shared", $0] }
      case "uptime_microseconds": nil
      case "uptime_seconds": values[key]?.seconds.map { ["uptime", Self.span(seconds: $0)] }
      default: values[key]?.text.map { [key.split(separator: "_").joined(separator: " "), $0] }
      }
    }
    let failing = streams.rows.filter { $0.state == "failing" }.map { ["failing", "\($0.name): \($0.message ?? "")"] }
    let stale = streams.rows.filter { $0.isStale && $0.state != "failing" }.map {
      ["stale", "\($0.name): \($0.message ?? "")"]
    }
    return Columns.text(lines + failing + stale)
  }

  /// `1d 2h 3m 4s`, from the largest nonzero unit on.
  static func span(seconds: Int64) -> String {
    let parts = [(seconds / 86400, "d"), (seconds / 3600 % 24, "h"), (seconds / 60 % 60, "m"), (seconds % 60, "s")]
    let shown = parts.drop { $0.0 == 0 }
    return shown.isEmpty ? "0s" : shown.map { "\($0.0)\($0.1)" }.joined(separator: " ")
  }
}
