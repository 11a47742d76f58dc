import FoundationEssentials
import StreamClient
import StreamRuntime

/// The templates of streams, from `$templates`.
struct TemplateListing {
  struct Row: Decodable {
    /// With its expressions.
    let name: String
    var source: String?
    /// The number of its streams, and the largest number.
    var streams: Int?
    var limit: Int?
    var made: UInt64?
    var forgotten: UInt64?
    var refused: UInt64?
  }

  /// What is read of `$templates`.
  private struct Snapshot: Decodable {
    let templates: [Row]
  }

  private(set) var rows: [Row] = []

  /// - Parameter event: nil: the daemon has no templates.
  init(_ event: StreamEvent?) throws(Stop) {
    guard let event else { return }
    do {
      rows = try JSONDecoder().decode(Snapshot.self, from: Data(event.data)).templates
    } catch {
      throw .badAnswer("unexpected reply from the daemon: the templates cannot be read")
    }
  }

  /// The templates that the options select: none of them fails.
  func selected(by listing: Arguments.Listing) -> TemplateListing {
    var selected = self
    selected.rows.removeAll { listing.isOfFailing || listing.streams?.includes($0.name) == false }
    return selected
  }

  /// An empty line, a header and one line per template; empty if there is none.
  var text: String {
    guard !rows.isEmpty else { return "" }
    let header = ["TEMPLATE", "SOURCE", "STREAMS", "LIMIT", "MADE", "FORGOTTEN", "REFUSED"]
    let lines = rows.map { row in
      [row.name, row.source ?? "-"]
        + [row.streams, row.limit].map { $0.map { String($0) } ?? "-" }
        + [row.made, row.forgotten, row.refused].map { $0.map { String($0) } ?? "-" }
    }
    return "\n" + Columns.text([header] + lines)
  }
}
