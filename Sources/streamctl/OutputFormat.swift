import Events
import FoundationEssentials
import StreamClient
import StreamRuntime

/// The output format of an event.
enum OutputFormat: String, CaseIterable {
  /// The data and a line break, unless it ends with one. Line breaks in JSON, which can only occur between tokens,
  /// become spaces; those in other text stay. On a terminal, characters that control it are escaped, as in ``json``.
  case data
  /// An object on its own line: id, time in UTC with microseconds, data. JSON data is embedded unchanged; text
  /// in UTF-8 is a string, and other data is `data_base64`. A marker has `caught_up` in place of data.
  case json
  /// The data, unchanged.
  case raw

  /// - Parameters:
  ///   - event: an event, or for ``json`` a marker.
  ///   - stream: the name of the event's stream, shown before ``data`` and in ``json``; nil: not shown.
  func append(_ event: StreamEvent, of stream: String? = nil, to output: inout Output) throws(Stop) {
    switch self {
    case .data:
      if let stream { try output.write("\(Terminal.isOutput ? stream.escapedForReading : stream)\t".utf8) }
      let isBroken = event.data.dropLast().contains(lineFeed)
      let isJSON = (isBroken || Terminal.isOutput) && JSONSyntax.holds(for: event.data.span)
      let line = Terminal.shown(isJSON ? JSONText.onOneLine(event.data) : event.data, isJSON: isJSON)
      try output.write(line)
      if line.last != lineFeed { try output.write([lineFeed]) }
    case .json:
      let id = event.id.map { String($0) } ?? "null"
      let time = event.time.map { "\"\(UTCTime(microsecondsSinceEpoch: $0))\"" } ?? "null"
      try output.write("{".utf8)
      if let stream { try output.write("\"stream\":\(JSONText.string(stream)),".utf8) }
      guard event.kind == .event else {
        try output.write("\"id\":\(id),\"time\":\(time),\"caught_up\":true}\n".utf8)
        return
      }
      try output.write(#""id":\#(id),"time":\#(time),"#.utf8)
      if JSONSyntax.holds(for: event.data.span) {
        try output.write("\"data\":".utf8)
        try output.write(Terminal.shown(JSONText.onOneLine(event.data), isJSON: true))
      } else if let text = String(validating: event.data, as: UTF8.self) {
        try output.write("\"data\":\(JSONText.string(text))".utf8)
      } else {
        try output.write("\"data_base64\":\"\(Data(event.data).base64EncodedString())\"".utf8)
      }
      try output.write("}\n".utf8)
    case .raw: try output.write(event.data)
    }
  }
}

private let lineFeed = UInt8(ascii: "\n")
