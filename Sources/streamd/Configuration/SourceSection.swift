import Events
import Fleet
import Reactive
import StreamServer
import StreamSources

/// A kind of source: the content of its table, and all that the daemon has to know of it.
///
/// A kind is a driver in StreamSources, a file in `Configuration/Kinds`, an element of `SourceKind.all`, and a section of
/// streamd.toml(5). Nothing else names it.
protocol SourceSection: Equatable, Sendable {
  /// The key of a stream that declares it, which is its kind in `$streams`.
  static var name: String { get }
  /// - Returns: `nil` when the key is absent or, after recording an error, there is no source.
  static func read(_ table: ConfigurationTable) -> Self?
  /// Whether a text at these keys of the source may be a secret, besides those that always are.
  /// - Parameter index: of an element of a list; `nil`: the text is in none.
  static func hides(_ keys: ArraySlice<String>, at index: Int?) -> Bool

  /// Checks the other keys of a stream, whose source may be of another kind.
  static func check(_ table: ConfigurationTable)

  /// The keys and values that determine the events, in a fixed order, without keys that have their default. The hosts of a
  /// fleet compare them (`Configuration.Stream.definitionDigest`).
  var definition: [DefinitionField] { get }
  /// The publisher at the start of the stream's pipeline.
  func publisher(of stream: Configuration.Stream, in context: SectionContext) -> AnyPublisher<EventBatch, Never>

  /// Whether clients publish the events.
  var isPublished: Bool { get }
  /// Whether its events are the answer to a request of a client.
  var takesRequests: Bool { get }
  /// Whether its events are JSON objects with the names and the data of the events of its upstream.
  var hasEnvelopes: Bool { get }
  /// Whether that request is made again after a restart or a kill.
  var repeatsRequests: Bool { get }
  /// The names of the streams from which the events come.
  var bases: [String] { get }
  /// Whether it asks an upstream for its events: a server, a device or a program.
  var hasUpstream: Bool { get }
  var fleetKind: FleetMachine.Stream.Kind { get }
  /// Whether each JSON text of what it receives is an event.
  var splitsTexts: Bool { get }
  /// Whether all that it makes is JSON.
  var isJSON: Bool { get }
  /// Whether its position goes on with each answer, and is stored also if the pipeline has removed all events of one.
  var advances: Bool { get }
  /// Whether it reports events that were lost before it could read them.
  var countsMissed: Bool { get }
  /// Maximum descriptors: its processes, transfers, idle connections, and name lookups.
  var descriptorCount: Int { get }
  /// The size limit of an event if it is set, as key and size.
  var eventLimit: (key: String, bytes: Int)? { get }
  /// The limits that depend on the stream's other settings, such as its buffer.
  func limits(in stream: Configuration.Stream) -> [Int]
  /// A place that only one source can have, and its key in the source; `nil`: none.
  var exclusivePlace: (place: String, key: String)? { get }
  /// The errors of a stream that hosts share, each with its key in the stream.
  func sharingErrors(of stream: Configuration.Stream) -> [(text: String, key: String)]
  /// Whether all streams of a template have its upstream together.
  var isTogether: Bool { get }
  /// The jq programs whose results leave the daemon, each with its key.
  var programs: [(key: String, program: String)] { get }
  /// The program that it runs, as a name or a path; `nil`: none.
  var executable: String? { get }
}

/// A key and a value that the digest of a stream covers.
typealias DefinitionField = (key: String, value: String)

/// The parts of the daemon that a source uses.
struct SectionContext {
  let source: SourceContext
  /// The source of a stream to which clients publish.
  let publishSource: PublishSource
  /// The request of a client, if the events are the answer to one.
  var single: SingleRequest?
  /// What it has together with others, if a template has made the stream.
  var union: UnionContext?
  /// Makes the source of a derived stream.
  let derived: (_ bases: [String], _ filter: EventFilter?) -> AnyPublisher<EventBatch, Never>
}

extension SourceSection {
  static func hides(_ keys: ArraySlice<String>, at index: Int?) -> Bool { false }
  static func check(_ table: ConfigurationTable) {}

  var isPublished: Bool { false }
  var isTogether: Bool { false }
  var takesRequests: Bool { false }
  var repeatsRequests: Bool { false }
  var hasEnvelopes: Bool { false }
  var bases: [String] { [] }
  var hasUpstream: Bool { true }
  var fleetKind: FleetMachine.Stream.Kind { .continuous }
  var splitsTexts: Bool { false }
  var isJSON: Bool { false }
  var advances: Bool { false }
  var countsMissed: Bool { false }
  var eventLimit: (key: String, bytes: Int)? { nil }
  func limits(in stream: Configuration.Stream) -> [Int] { [] }
  var exclusivePlace: (place: String, key: String)? { nil }
  func sharingErrors(of stream: Configuration.Stream) -> [(text: String, key: String)] { [] }
  var programs: [(key: String, program: String)] { [] }
  var executable: String? { nil }

  /// The error of a stream that hosts share, with a place of each host.
  func localError(_ place: String) -> [(text: String, key: String)] {
    [("expected no share = \"fleet\" with \(place): each host has its own", "share")]
  }
}

/// A kind that has a table.
protocol SourceTable: SourceSection, ConfigurationSection {
  /// The defaults of its keys.
  init()
  /// An example of the table, for the message that the value is none.
  static var example: String { get }
}

extension SourceTable {
  static func read(_ table: ConfigurationTable) -> Self? { table.section(name, Self(), suchAs: example) }
}

extension Configuration {
  /// The source of the events.
  struct Source: Sendable, Equatable {
    let section: any SourceSection

    init(_ section: any SourceSection) { self.section = section }

    /// The source's kind in `$streams`.
    var kind: String { type(of: section).name }

    static func == (one: Self, other: Self) -> Bool { equals(one.section, other.section) }

    private static func equals<Section: SourceSection>(_ one: Section, _ other: any SourceSection) -> Bool {
      one == other as? Section
    }
  }

  /// What an event of a source without messages or lines of its own is.
  enum Split: String, CaseIterable, Sendable {
    /// A message, a page, a line or the output of a program, as the source has it.
    case none
    /// A JSON text in that.
    case json
  }

  /// A header, a parameter of a URL, or a variable of an environment.
  struct NamedValue: Sendable, Equatable {
    var name: String
    var value: Value

    enum Value: Sendable, Equatable {
      case plain(String)
      case secret(Secret)

      /// The value itself, which may be a secret.
      var content: String {
        switch self {
        case .plain(let value): value
        case .secret(let secret): secret.content
        }
      }
    }
  }
}

extension [Configuration.NamedValue] {
  /// Named values in the order of their names. Their order in the file depends on how a table is written.
  func definition(_ key: String) -> [DefinitionField] {
    sorted { $0.name.utf8.lexicographicallyPrecedes($1.name.utf8) }.flatMap {
      [(key, $0.name)] + $0.value.definition("value")
    }
  }
}

extension Configuration.NamedValue.Value {
  func definition(_ key: String) -> [DefinitionField] {
    switch self {
    case .plain(let text): [(key, text)]
    case .secret(let secret): [("credential", secret.name)]
    }
  }
}

extension Duration {
  /// The duration in milliseconds. The durations of the file have no fraction of them.
  var definition: String { "\(wholeMilliseconds)" }
}
