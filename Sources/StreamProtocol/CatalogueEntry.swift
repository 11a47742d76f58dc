/// One stream in `$streams`. Only the name is required, so that client and daemon can have different versions.
package struct CatalogueEntry: Codable, Equatable, Sendable {
  /// The fleet's view of a stream that hosts share.
  package struct Fleet: Codable, Equatable, Sendable {
    /// `leader`: this host runs the source for all hosts, or orders published values; otherwise `follower`.
    package var role: String?
    /// The host name of the leader; absent without a known leader, and for clients that do not see other clients.
    package var leader: String?
    /// The number of the leadership.
    package var term: UInt64?
    /// Rises when ids continue above a gap, because brokers have lost events.
    package var epoch: UInt64?
    /// Entries of the stream's shard that the leader has announced and this host has not read.
    package var lag: UInt64?
    /// Since when the host does not know whether it has the newest event, in microseconds since the Unix epoch; absent
    /// while it knows.
    package var staleSince: UInt64?
    /// The number of hosts that are known to define the stream otherwise; absent: none is.
    package var otherHosts: UInt64?

    package init(
      role: String? = nil, leader: String? = nil, term: UInt64? = nil, epoch: UInt64? = nil, lag: UInt64? = nil,
      staleSince: UInt64? = nil, otherHosts: UInt64? = nil
    ) {
      (self.role, self.leader, self.term, self.epoch) = (role, leader, term, epoch)
      (self.lag, self.staleSince, self.otherHosts) = (lag, staleSince, otherHosts)
    }

    private enum CodingKeys: String, CodingKey {
      case role, leader, term, epoch, lag
      case staleSince = "stale_since"
      case otherHosts = "other_hosts"
    }
  }

  /// The map of a stream that local clients may map.
  package struct Map: Codable, Equatable, Sendable {
    /// The number of the present region; absent if there is no memory for one.
    package var generation: UInt64?
    /// Requests for demand by readers of the map.
    package var readers: Int?

    package init(generation: UInt64? = nil, readers: Int? = nil) {
      (self.generation, self.readers) = (generation, readers)
    }
  }

  package var name: String
  package var description: String?
  /// The media type of its events.
  package var type: String?
  package var source: String?
  /// `idle`, `running`, `blocked` (by a subscriber), `waiting` (for its host), `failing` (and retried, or its pipeline
  /// failed on the last event), `finished` or `failed` (permanently).
  package var state: String?
  /// The reason for blocked, waiting, failing and failed, and what else is wrong.
  package var message: String?
  /// Events on which its pipeline failed, as in `$stats`.
  package var errors: UInt64?
  /// Events and published values that are not JSON, as in `$stats`.
  package var malformed: UInt64?
  /// Events that its bases had evicted before it read them; absent for a stream that is not derived.
  package var missed: UInt64?
  package var subscribers: Int?
  package var lastID: UInt64?
  /// The number of keys in its state; absent for a stream without keys.
  package var keys: Int?
  /// The JSON Pointer of the key, as in filters; absent if the key is not a value at a path.
  package var key: String?
  /// As `key`, for the value that is true in an event that removes its key.
  package var tombstone: String?
  /// The first event that its state lacks; absent while it is complete.
  package var incompleteSince: UInt64?
  /// Since when neither an event nor a successful fetch has come for longer than `expect_every`, in microseconds since the
  /// Unix epoch; absent while one has.
  package var staleSince: UInt64?
  /// How often an event or a successful fetch is expected, in microseconds; absent: at any time.
  package var expectEvery: UInt64?
  /// This host's part in a stream that hosts share; absent for others.
  package var fleet: Fleet?
  /// Absent for a stream that is not mapped.
  package var map: Map?
  /// Whether its events are on disk; absent for a stream whose events are not meant to be.
  package var onDisk: Bool?
  /// The name of the template that has made it, with its expressions; absent for a configured stream.
  package var template: String?

  package init(
    name: String, description: String? = nil, type: String? = nil, source: String? = nil, state: String? = nil,
    message: String? = nil, errors: UInt64? = nil, malformed: UInt64? = nil, missed: UInt64? = nil,
    subscribers: Int? = nil, lastID: UInt64? = nil,
    keys: Int? = nil, key: String? = nil, tombstone: String? = nil, incompleteSince: UInt64? = nil,
    staleSince: UInt64? = nil, expectEvery: UInt64? = nil, fleet: Fleet? = nil, map: Map? = nil, onDisk: Bool? = nil,
    template: String? = nil
  ) {
    (self.map, self.onDisk, self.template) = (map, onDisk, template)
    (self.name, self.description, self.type, self.source) = (name, description, type, source)
    (self.state, self.message, self.errors, self.malformed) = (state, message, errors, malformed)
    (self.missed, self.expectEvery) = (missed, expectEvery)
    (self.subscribers, self.lastID, self.staleSince, self.fleet) = (subscribers, lastID, staleSince, fleet)
    (self.keys, self.key, self.tombstone, self.incompleteSince) = (keys, key, tombstone, incompleteSince)
  }

  private enum CodingKeys: String, CodingKey {
    case name, description, type, source, state, message, errors, malformed, missed, subscribers, keys, key, tombstone
    case fleet, map, template
    case lastID = "last_id"
    case onDisk = "on_disk"
    case incompleteSince = "incomplete_since"
    case staleSince = "stale_since"
    case expectEvery = "expect_every"
  }
}
