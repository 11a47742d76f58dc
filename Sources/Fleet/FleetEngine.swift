/// An address of messages between the hosts of a fleet. Messages may be lost, and have no order.
package enum FleetSubject: Hashable, Sendable {
  /// Heartbeats of leaders, to all hosts.
  case heartbeats
  /// Questions of a host that is about to claim this shard, to all hosts; each answers.
  case positions(shard: Int)
  /// Questions of this shard's leader whether any host wants the next event of a stream. A host listens only while it
  /// wants the event, and one of these hosts answers.
  case interest(shard: Int, stream: String)
  /// Messages to one host.
  case host(HostID)

  /// Whether one subscriber receives each message, instead of all.
  package var isShared: Bool { if case .interest = self { true } else { false } }
}

/// The engine of a fleet: for each shard a log that appends under a condition, and messages between hosts.
///
/// Confined to the loop with which it was created: callers call all functions there, and the engine calls all closures
/// there. It never calls a closure before the function that received it has returned. A completion is called once,
/// after `answerTimeout` at the latest, also without a connection.
///
/// Entries and messages may be hostile: any client that can write to the brokers may have sent them.
package protocol FleetEngine: AnyObject {
  /// Connects, and reconnects whenever the connection is lost. Called once.
  func start(_ observer: any FleetEngineObserver)
  /// Disconnects. No closure is called afterwards.
  func stop()

  /// Appends an entry to a shard's log if the log's last sequence number is `after`. The engine must decide this when
  /// the log applies the entry, on all of its replicas alike: this is the fence between two leaders.
  func append(
    _ entry: [UInt8], isClaim: Bool, to shard: Int, after: UInt64,
    _ done: @escaping (ShardMachine.AppendResult) -> Void)
  /// Reads entries, beginning with the first one after this sequence number: as many as are there, up to
  /// `FleetEntries.maximumCount` of them and about `FleetEntries.byteCount`. Any replica may answer.
  /// - Parameter done: called with nil after a failure. If the last entries were removed, the answer has none of them,
  ///   but a higher `last`: the replica that decides about appends does not have them either.
  func read(_ shard: Int, after: UInt64, _ done: @escaping (FleetEntries?) -> Void)
  /// Finds the last entry that was appended as a claim. Any replica may answer.
  /// - Parameter done: with nil after a failure.
  func findClaim(_ shard: Int, _ done: @escaping (FleetClaim?) -> Void)
  /// Reads the last entry from the replica that decides about appends.
  /// - Parameter done: with nil after a failure.
  func newest(_ shard: Int, _ done: @escaping (FleetNewest?) -> Void)

  /// Sends a message.
  func send(_ message: [UInt8], to subject: FleetSubject)
  /// Sends a message and collects answers, until there are `count` of them, `timeout` has passed, or it is known that
  /// no host listens.
  /// - Parameter done: called with nil without a connection, or if no answer came although a host may listen.
  func ask(
    _ message: [UInt8], to subject: FleetSubject, count: Int, timeout: Duration,
    _ done: @escaping ([[UInt8]]?) -> Void)
  /// Receives the messages to a subject, until `unsubscribe`; also after a reconnection. At most one subscription for
  /// each subject.
  /// - Parameter receive: the message. Its result is sent as the answer if one was asked for.
  func subscribe(to subject: FleetSubject, _ receive: @escaping ([UInt8]) -> [UInt8]?)
  func unsubscribe(from subject: FleetSubject)
}

/// Receives the notifications of an engine, on its loop.
package protocol FleetEngineObserver: AnyObject {
  /// The engine is connected, and the shards' logs exist. Some logs may have no deciding replica yet: requests to them
  /// fail until they do. Requests and messages from before may be lost.
  func engineConnected()
  /// There is no connection.
  /// - Parameter reason: a sentence without its full stop, without secrets.
  func engineDisconnected(_ reason: String)
  /// Messages were dropped, because they arrived faster than they were processed: answers and entries of a tail may be
  /// missing. Called once for each connection.
  func engineDropped()
  /// An entry of a shard's log was appended. Entries may come in any order, late, repeatedly, or not at all.
  func engineAppended(_ entry: [UInt8], to shard: Int, at sequence: UInt64)
}

/// Entries of a shard's log, in order.
package struct FleetEntries: Sendable {
  /// The maximum number of entries in one answer.
  package static let maximumCount = 256
  /// An answer ends with the entry that reaches this size in bytes.
  package static let byteCount = 8 << 20

  package var entries: [(sequence: UInt64, bytes: [UInt8])]
  /// The sequence number of the oldest entry in the log; 0 if it never had one.
  package var first: UInt64
  /// The sequence number of the last entry.
  package var last: UInt64

  package init(entries: [(sequence: UInt64, bytes: [UInt8])], first: UInt64, last: UInt64) {
    (self.entries, self.first, self.last) = (entries, first, last)
  }
}

/// The answer to the search for a claim.
package enum FleetClaim: Sendable {
  case found([UInt8], sequence: UInt64)
  /// The log has no claim.
  case none(last: UInt64)
}

/// The end of a shard's log.
package struct FleetNewest: Sendable {
  /// The sequence number of the last entry; 0 if there was none yet.
  package var last: UInt64
  /// The last entry; nil if it was removed, or there was none yet.
  package var entry: [UInt8]?

  package init(last: UInt64, entry: [UInt8]?) { (self.last, self.entry) = (last, entry) }
}
