import Events
import Fleet
import Reactive

extension Configuration {
  /// A source to which clients publish. Always active.
  struct Publish: SourceSection {
    static let name = "publish"
  }
}

extension Configuration.Publish {
  /// `true`, or a table without keys.
  static func read(_ table: ConfigurationTable) -> Self? {
    guard let isMeant = table.flag(name) else {
      return table.table(name, expecting: "true or {}") { _ in Self() }
    }
    if !isMeant { table.addError("expected true or {}; omit publish if clients do not publish", at: name) }
    return isMeant ? Self() : nil
  }

  static func check(_ table: ConfigurationTable) {
    guard table.holds(name) else {
      guard !Configuration.HTTP.takesRequests(table) else { return }
      return table.refuse(
        ["write"], onlyWith: "publish: no other source accepts values from clients", lacking: [name])
    }
    for key in ["start", "linger", "retry"] where table.holds(key) {
      table.addError("expected no \(key) with publish: clients may publish at any time", at: key)
    }
  }

  var definition: [DefinitionField] { [(Self.name, "true")] }
  var isPublished: Bool { true }
  var hasUpstream: Bool { false }
  var fleetKind: FleetMachine.Stream.Kind { .publish }
  var descriptorCount: Int { 0 }

  func sharingErrors(of stream: Configuration.Stream) -> [(text: String, key: String)] {
    let keys = (stream.distinct == .no ? [] : ["distinct"]) + (stream.throttle == nil ? [] : ["throttle"])
    return keys.map {
      ("expected no \($0) with publish and share = \"fleet\": it would apply to the values of each host alone", $0)
    }
  }

  func publisher(of stream: Configuration.Stream, in context: SectionContext) -> AnyPublisher<EventBatch, Never> {
    context.publishSource.eraseToAnyPublisher()
  }
}
