/// The counters of streams that are not served any more, so that totals never decrease.
struct RetiredStreams {
  private(set) var eventsIn: UInt64 = 0
  private(set) var bytesIn: UInt64 = 0
  private(set) var failedEvents: UInt64 = 0
  private(set) var malformed: UInt64 = 0
  /// The streams that were removed from the table, and whose counters are not added yet.
  private var leavingStreams: [ObjectIdentifier: ServedStream] = [:]
  /// The figures of the streams of a template, by the text of its name, and by the clients to which they were visible.
  private var byTemplate: [String: [Set<AccessRules.Rule>: StreamFigures]] = [:]

  /// The most sets of clients for a template. The figures of others are visible to the server's own user and root only.
  private static let accessLimit = 1024

  /// The streams that still count beside those of the table.
  var leaving: some Collection<ServedStream> { leavingStreams.values }

  /// The rules of the clients that see the figures of retired streams, or will.
  var rules: Set<AccessRules.Rule> {
    var rules = Set(byTemplate.values.flatMap { $0.keys.joined() })
    for stream in leaving where stream.template != nil { rules.formUnion(stream.access.visibleTo) }
    return rules
  }

  /// The figures of a template's retired streams.
  func figures(of template: String, _ visibility: Visibility) -> [StreamFigures] {
    (byTemplate[template] ?? [:]).filter { visibility.matches($0.key) }.map(\.value)
  }

  /// The streams are being removed from the table.
  mutating func begin(_ streams: [ServedStream]) {
    for stream in streams { leavingStreams[ObjectIdentifier(stream)] = stream }
  }

  /// The streams are in the table again.
  mutating func restore(_ streams: [ServedStream]) {
    for stream in streams { leavingStreams[ObjectIdentifier(stream)] = nil }
  }

  /// The counters of streams that were removed do not change any more.
  mutating func add(_ streams: [ServedStream]) {
    restore(streams)
    for stream in streams {
      let counts = addToTemplate(stream).counts
      eventsIn &+= counts.eventsIn
      bytesIn &+= counts.bytesIn
      failedEvents &+= counts.errors
      malformed &+= counts.malformed
    }
  }

  /// The template that has made a stream keeps its figures, because the stream is no longer one of it.
  @discardableResult mutating func addToTemplate(_ stream: ServedStream) -> StreamFigures {
    var survey = BaseSurvey()
    let figures = StreamFigures(stream, hasLag: false, &survey)
    guard let template = stream.template else { return figures }
    var access = stream.access.visibleTo
    let known = byTemplate[template] ?? [:]
    if known[access] == nil, known.count >= Self.accessLimit { access = [] }
    byTemplate[template, default: [:]][access, default: StreamFigures(hasLag: false)].add(figures.withoutPresent())
    return figures
  }

  /// Drops the figures of templates that are no longer served.
  mutating func keep(_ templates: Set<String>) { byTemplate = byTemplate.filter { templates.contains($0.key) } }
}
