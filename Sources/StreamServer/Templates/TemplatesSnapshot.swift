import StreamRuntime
import TaggedFields

/// The object of `$templates`. Source of the meanings: `docs/WIRE.md`, "System streams".
struct TemplatesSnapshot: Encodable {
  struct Template: Encodable {
    let name: String
    let source: String
    let type: String
    let parameters: [String: Parameter]
    /// The number of its streams.
    let streams: Int
    let limit: Int
    /// In microseconds.
    let forget: UInt64?
    let made: UInt64
    let forgotten: UInt64
    let refused: UInt64
    let unrouted: UInt64
  }

  /// What the values of a parameter may be.
  struct Parameter: Encodable {
    let characters: String
    let length: Int
    let values: [String]?
  }

  /// Sorted by name.
  let templates: [Template]
}

/// The counters of a template for the next process.
struct SavedTemplate: TaggedRecord, Equatable {
  var name = ""
  var made: UInt64 = 0
  var forgotten: UInt64 = 0
  var refused: UInt64 = 0
  var unrouted: UInt64 = 0

  mutating func visit(_ fields: inout RecordFields) throws(Malformed) {
    try fields.field(1, &name)
    try fields.field(2, &made)
    try fields.field(3, &forgotten)
    try fields.field(4, &refused)
    try fields.field(5, &unrouted)
  }
}

extension ServedTemplate {
  var snapshot: TemplatesSnapshot.Template {
    let terms = terms
    let parameters = zip(terms.name.parameterNames, terms.name.parameters).map { name, parameter in
      (
        name,
        TemplatesSnapshot.Parameter(
          characters: "\(parameter.characters)", length: parameter.length, values: parameter.values)
      )
    }
    return .init(
      name: terms.name.text, source: terms.source, type: terms.type,
      parameters: Dictionary(uniqueKeysWithValues: parameters), streams: count, limit: terms.limit,
      forget: terms.forgetTime.map { UInt64(max(0, $0 / .microseconds(1))) },
      made: madeCount.load(ordering: .relaxed), forgotten: forgottenCount.load(ordering: .relaxed),
      refused: refusedCount.load(ordering: .relaxed), unrouted: unroutedCount.load(ordering: .relaxed))
  }

  var saved: SavedTemplate {
    let snapshot = snapshot
    return SavedTemplate(
      name: snapshot.name, made: snapshot.made, forgotten: snapshot.forgotten, refused: snapshot.refused,
      unrouted: snapshot.unrouted)
  }

  /// Continues the counters of the former process, which has counted the streams that were made again so far.
  func count(on saved: SavedTemplate) {
    madeCount.store(max(saved.made, madeCount.load(ordering: .relaxed)), ordering: .relaxed)
    forgottenCount.add(saved.forgotten, ordering: .relaxed)
    refusedCount.add(saved.refused, ordering: .relaxed)
    unroutedCount.add(saved.unrouted, ordering: .relaxed)
  }
}
