import FoundationEssentials
import StreamProtocol
import StreamRuntime

/// The daemon's catalogue, from `$streams`.
struct StreamListing {
  private(set) var rows: [CatalogueEntry]

  init(json: [UInt8]) throws(Stop) {
    do {
      rows = try JSONDecoder().decode([CatalogueEntry].self, from: Data(json))
    } catch {
      throw .badAnswer("unexpected reply from the daemon: the catalogue cannot be read")
    }
  }

  /// The streams that the options select.
  /// - Throws: a name is none of a stream, and of no template either.
  func selected(
    by listing: Arguments.Listing, besides templates: TemplateListing
  ) throws(Stop) -> StreamListing {
    let known = Set(rows.map(\.name)).union(templates.rows.map(\.name))
    if let name = listing.streams?.names.first(where: { !known.contains($0) }) {
      throw .noStream(name, meant: nearest(to: name, among: known))
    }
    var selected = self
    selected.rows.removeAll { row in
      listing.streams?.includes(row.name) == false || listing.isOfFailing && !row.needsPerson
    }
    return selected
  }

  /// A header and one line per stream: columns two spaces apart, the description last. The fleet's column exists if a
  /// stream is shared, that of templates if one has made a stream, and that of reasons if a stream has one.
  /// - Parameters:
  ///   - time: the time of the counters, in microseconds since the Unix epoch.
  ///   - isLong: whether the id of the newest event is shown besides its age, and the template of the stream.
  func text(_ counters: StatisticsSnapshot, at time: UInt64?, isLong: Bool) -> String {
    let header = [
      "NAME", "STATE", "SOURCE", "FLEET", "SUBSCRIBERS", "AGE", "LAST ID", "TEMPLATE", "DESCRIPTION", "REASON",
    ]
    let isShared = rows.contains { $0.fleet != nil }
    let hasReasons = rows.contains { $0.remarks != nil }
    let hasTemplates = isLong && rows.contains { $0.template != nil }
    let hidden = [
      isShared ? "" : "FLEET", isLong ? "" : "LAST ID", hasTemplates ? "" : "TEMPLATE", hasReasons ? "" : "REASON",
    ]
    var lines = [header.filter { !hidden.contains($0) }]
    let newest = Dictionary((counters.byStream ?? []).map { ($0.name, $0.newest) }) { first, _ in first }
    for row in rows {
      var line = [row.name, row.state ?? "-", row.source ?? "-"]
      if isShared { line.append(row.fleet?.text ?? "-") }
      line.append(row.subscribers.map { String($0) } ?? "-")
      let age = newest[row.name]?.flatMap { newest in time.map { $0 > newest ? $0 - newest : 0 } }
      line.append(Quantity.age(microseconds: age))
      if isLong { line.append(row.lastID.map { String($0) } ?? "-") }
      if hasTemplates { line.append(row.template ?? "-") }
      line.append(row.description ?? "")
      if hasReasons { line.append(row.remarks ?? "") }
      lines.append(line)
    }
    return Columns.text(lines, statesAt: 1)
  }

  /// The number of streams that the fleet shares, and of their roles: `3 (1 leader, 2 follower, 1 stale)`; nil if there
  /// are none.
  var fleetSummary: String? {
    let shared = rows.compactMap(\.fleet)
    let counts = [
      ("leader", shared.count { $0.role == "leader" }), ("follower", shared.count { $0.role == "follower" }),
      ("stale", shared.count { $0.staleSince != nil }),
    ]
    let parts = counts.filter { $0.1 > 0 }.map { "\($0.1) \($0.0)" }.joined(separator: ", ")
    return shared.isEmpty ? nil : parts.isEmpty ? String(shared.count) : "\(shared.count) (\(parts))"
  }

  /// The number of streams, and of their states: `3 (2 running, 1 failing)`.
  var summary: String {
    var counts: [(state: String, count: Int)] = []
    for state in rows.compactMap(\.state) {
      if let index = counts.firstIndex(where: { $0.state == state }) {
        counts[index].count += 1
      } else {
        counts.append((state, 1))
      }
    }
    let states = counts.map { "\($0.count) \($0.state)" }.joined(separator: ", ")
    return states.isEmpty ? String(rows.count) : "\(rows.count) (\(states))"
  }
}

/// Plain text in columns.
enum Columns {
  /// Every line ends with its last column's text, without padding.
  /// - Parameter states: the column that has states, in colors if the terminal shows them.
  static func text(_ lines: [[String]], statesAt states: Int? = nil) -> String {
    let lines = lines.map { $0.map(\.escapedForReading) }
    let states = Terminal.hasColors ? states : nil
    let widths = (lines.first ?? []).indices.map { column in lines.map { $0[column].count }.max() ?? 0 }
    return lines.map { line in
      var text = ""
      for (column, cell) in line.enumerated() {
        text += column == states ? Terminal.colored(cell, asState: cell) : cell
        if column < line.count - 1 { text += String(repeating: " ", count: widths[column] - cell.count + 2) }
      }
      while text.last == " " { text.removeLast() }
      return text + "\n"
    }.joined()
  }
}

extension CatalogueEntry {
  /// Whether its newest event may not be the present one: nothing has come for too long, or the fleet has no leader.
  var isStale: Bool { staleSince != nil || fleet?.staleSince != nil }

  /// Whether it does not do what it is for: it fails, is blocked or stale, or is not on disk where it should be.
  var needsPerson: Bool { isStale || state == "failed" || message != nil }

  /// What is to be said of the stream's state.
  fileprivate var remarks: String? {
    let failed = errors.flatMap { $0 == 0 ? nil : "\($0) event\($0 == 1 ? "" : "s") failed" }
    let lost = missed.flatMap { $0 == 0 ? nil : "\($0) event\($0 == 1 ? "" : "s") missed" }
    let remarks = [message, failed, lost].compactMap { $0 }
    return remarks.isEmpty ? nil : remarks.joined(separator: "; ")
  }
}

extension CatalogueEntry.Fleet {
  /// The role of the host, `leader` or `follower of n2`, and its lag.
  fileprivate var text: String {
    var text = role ?? "-"
    if role == "follower", let leader { text += " of \(leader)" }
    if let lag, lag > 0 { text += ", \(lag) behind" }
    return text
  }
}
