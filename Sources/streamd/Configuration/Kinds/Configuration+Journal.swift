import Events
import FoundationEssentials
import Reactive
import StreamSources

extension Configuration {
  /// A source that reads a journal of systemd.
  struct JournalEntries: Sendable, Equatable {
    /// `FIELD=value`, without ranges; at most 256, of at most 4096 bytes each.
    var matches: [String] = []
    /// Where a stream begins that has read nothing yet.
    var since = JournalConfiguration.Beginning.before(.zero)
    /// Absolute; `nil`: the journal of the machine.
    var directory: String?
    /// Maximum bytes of one event; larger entries are dropped. `nil`: see `Configuration.Stream.maxPageBytes(_:)`.
    var maxBodyBytes: Int?
  }
}

extension Configuration.JournalEntries: SourceTable {
  static let name = "journal"
  static let example = #"{ match = ["_SYSTEMD_UNIT=NAME.service"] }"#

  static let keys: [ConfigurationKey<Self>] = [
    .init(["match"], \.matches) { table, matches in
      let given = table.values("match", .journalMatch, mayBeEmpty: false).map { $0.flatMap(\.self) }
      if let given, given.count > 256 { table.addError("expected at most 256 matches", at: "match") }
      matches = given ?? matches
    },
    .init(["since"], \.since) { table, since in since = table.value("since", .journalBeginning) ?? since },
    .init("directory", \.directory, .path(upTo: 1024)),
    .init("max_body", \.maxBodyBytes, .size(1...1 << 30)),
  ]
}

extension Configuration.JournalEntries {
  var definition: [DefinitionField] {
    var fields: [DefinitionField] = [("journal", "true")] + matches.map { ("journal.match", $0) }
    if let directory { fields.append(("journal.directory", directory)) }
    if let maxBodyBytes, maxBodyBytes != 8 << 20 { fields.append(("journal.max_body", "\(maxBodyBytes)")) }
    return fields
  }

  var descriptorCount: Int { 4 }
  var isJSON: Bool { true }
  var countsMissed: Bool { true }
  var eventLimit: (key: String, bytes: Int)? { maxBodyBytes.map { ("journal.max_body", $0) } }
  func sharingErrors(of stream: Configuration.Stream) -> [(text: String, key: String)] { localError("journal") }

  /// Its batches have the size of the log.
  func limits(in stream: Configuration.Stream) -> [Int] { [stream.buffer.events, stream.buffer.bytes] }

  func publisher(of stream: Configuration.Stream, in context: SectionContext) -> AnyPublisher<EventBatch, Never> {
    Source(JournalSource(JournalConfiguration(self, of: stream)), in: context.source).eraseToAnyPublisher()
  }
}

extension JournalConfiguration {
  init(_ journal: Configuration.JournalEntries, of stream: Configuration.Stream) {
    self.init(
      directory: journal.directory, matches: journal.matches, beginning: journal.since,
      maximumEventBytes: stream.maxPageBytes(journal.maxBodyBytes), retry: stream.retry)
    // The log stores a batch as a whole, with its position. A program can make many events of each entry.
    batchEvents = stream.jq == nil ? min(batchEvents, max(1, stream.buffer.events / 4)) : 1
    batchBytes = min(batchBytes, stream.buffer.bytes / 4)
  }
}

extension ConfigurationShape where Value == [String] {
  /// `FIELD=value`, or a range of priorities, which is several.
  fileprivate static var journalMatch: Self {
    let match = Self { node throws(Expected) in
      let form = "a match such as \"_SYSTEMD_UNIT=nginx.service\" or \"PRIORITY=0..4\""
      guard case .string(let text) = node.value, let end = text.utf8.firstIndex(of: UInt8(ascii: "=")),
        text.utf8.count <= 4096, !text.utf8.contains(0), isField(text[..<end])
      else { throw Expected(form) }
      guard text.hasPrefix("PRIORITY=") else { return [text] }
      let bounds = text.dropFirst("PRIORITY=".count).split(separator: "..", omittingEmptySubsequences: false)
      let numbers = bounds.compactMap { $0.utf8.count == 1 ? Int($0) : nil }.filter { (0...7).contains($0) }
      guard numbers.count == bounds.count, numbers.count <= 2, let first = numbers.first, let last = numbers.last,
        first <= last
      else { throw Expected("PRIORITY= with a number from 0 to 7, or a range such as \"PRIORITY=0..4\"") }
      return (first...last).map { "PRIORITY=\($0)" }
    }
    return match.expanding(.match)
  }

  /// A name of journald's: capital letters, digits and underscores, not a digit first. Two underscores are for what is
  /// no field.
  private static func isField(_ name: Substring) -> Bool {
    (1...64).contains(name.utf8.count) && !name.hasPrefix("__") && !(0x30...0x39).contains(name.utf8.first ?? 0)
      && name.utf8.allSatisfy { (0x41...0x5A).contains($0) || (0x30...0x39).contains($0) || $0 == 0x5F }
  }
}

extension ConfigurationShape where Value == JournalConfiguration.Beginning {
  /// A time before the first start, such as `-1h`, or a point in time.
  fileprivate static var journalBeginning: Self {
    Self { node throws(Expected) in
      let form = "a time such as \"-1h\" or 2026-01-02T03:04:05Z"
      switch node.value {
      case .string(let text) where text.hasPrefix("-"):
        let rest = ConfigurationNode(line: node.line, value: .string(String(text.dropFirst())))
        do throws(Expected) {
          return .before(try ConfigurationShape<Duration>.duration(from: .zero).read(rest))
        } catch {
          throw Expected("\(form); \(error.text.replacing("\"30s\"", with: "\"-1h\""))")
        }
      case .string(let text), .date(let text):
        let style = Date.ISO8601FormatStyle(includingFractionalSeconds: text.contains("."))
        guard let date = try? style.parse(text), (0...1e11).contains(date.timeIntervalSince1970) else {
          throw Expected("\(form), which has the offset to UTC")
        }
        return .at(UInt64(date.timeIntervalSince1970 * 1e6))
      default: throw Expected(form)
      }
    }
  }
}
