/// One stream in `$streams`. Only the name is required, so that client and daemon can have different versions.
package struct CatalogueEntry: Codable, Equatable, Sendable {
  package var name: String
  package var description: String?
  /// The media type of its events.
  package var type: String?
  package var source: String?
  /// `idle`, `running`, `blocked` (by a subscriber), `waiting` (for its host), `failing` (and retried, or its pipeline
  /// failed on the last event), `finished` or `failed` (permanently).
  package var state: String?
  /// The reason for blocked, waiting, failing and failed; otherwise a remark.
  package var message: String?
  /// Events on which its pipeline failed, as in `$stats`.
  package var errors: UInt64?
  package var subscribers: Int?
  package var lastID: UInt64?

  package init(
    name: String, description: String? = nil, type: String? = nil, source: String? = nil, state: String? = nil,
    message: String? = nil, errors: UInt64? = nil, subscribers: Int? = nil, lastID: UInt64? = nil
  ) {
    (self.name, self.description, self.type, self.source) = (name, description, type, source)
    (self.state, self.message, self.errors) = (state, message, errors)
    (self.subscribers, self.lastID) = (subscribers, lastID)
  }

  private enum CodingKeys: String, CodingKey {
    case name, description, type, source, state, message, errors, subscribers
    case lastID = "last_id"
  }
}
