import CLinux
import Events
import Glibc
import HTTP
import RSocket
import TaggedFields

/// The end of a stream's ids.
struct StreamEnd: Equatable, Sendable {
  /// The id of the next event.
  var position: UInt64
  /// The first id from which on all ids before `position` were assigned to events; `nil`: unknown.
  var countedFrom: UInt64?
  /// The freshness of a stream with a limit on the time without an event.
  var freshness: FreshnessMachine.Saved?
  /// The generation of the last region of its map.
  var mapGeneration: UInt64?
  /// Who made a stream of a template, as `ClientUser.saved`; empty: unknown.
  var maker = ""
}

/// The state that a server saves for the next process: its connections, events without space in
/// the log of a stream that drops nothing, and the end of each stream's ids.
public struct SavedConnections: Equatable, Sendable {
  /// Events of one stream that wait for space.
  struct Waiting: Sendable, Equatable {
    var stream: String
    var events: EventBatch
  }

  var connections: [SavedConnection]
  var waiting: [Waiting]
  /// Values that their streams were not given, of publishers that have disconnected.
  var left: [Waiting] = []
  /// The ends of the streams' ids, by name.
  var ends: [String: StreamEnd]
  /// The counters of templates.
  var templates: [SavedTemplate] = []
  /// The open tickets.
  var tickets: [ClientTickets.Open] = []

  init(_ connections: [SavedConnection], waiting: [Waiting] = [], ends: [String: StreamEnd] = [:]) {
    self.connections = connections
    self.waiting = waiting
    self.ends = ends
  }

  /// The streams that the former process served, with those who made them.
  package var streams: [(name: String, maker: StreamOwner?)] {
    ends.sorted { $0.key < $1.key }.map { ($0.key, ClientUser(saved: $0.value.maker).map { StreamOwner(user: $0) }) }
  }

  /// The number of connections.
  public var count: Int { connections.count }

  /// One descriptor per connection; -1: the connection has none. Owned by the server that saved them, or by the caller
  /// that created this value from its parts, until they are restored.
  public var descriptors: [CInt] { connections.map(\.descriptor) }

  // MARK: State

  /// The encoded state without descriptors, for `init(state:)`; connections in the order of their descriptors.
  ///
  /// - Parameter count: includes only this number of connections.
  public func state(ofFirst count: Int) -> [UInt8] {
    var saved = self
    saved.connections = Array(connections.prefix(count))
    return SavedState.seal(RecordFields.bytes(of: saved), as: .connections)
  }

  /// Decodes the state. All descriptors are -1: see `attach`.
  ///
  /// - Parameter state: from `state(ofFirst:)` of any version with the same format.
  /// - Throws: for any other bytes, with a cost proportional to their number.
  public init(state: [UInt8]) throws(InvalidSavedState) {
    let content = try SavedState.open(state, as: .connections)
    do throws(Malformed) {
      self = try RecordFields.read(SavedConnections.self, from: content)
    } catch {
      throw InvalidSavedState(reason: error.reason)
    }
  }

  /// Decodes the state and attaches all descriptors.
  ///
  /// - Parameters:
  ///   - state: the state that another process has saved.
  ///   - descriptors: one for each connection of the state, in its order.
  /// - Throws: as above, and for another number of descriptors.
  public init(state: [UInt8], _ descriptors: [CInt]) throws(InvalidSavedState) {
    try self.init(state: state)
    guard count == descriptors.count else {
      throw InvalidSavedState(reason: "it has \(count) connections, and there are \(descriptors.count) descriptors")
    }
    for (index, descriptor) in descriptors.enumerated() { attach(descriptor, to: index) }
  }

  // MARK: Connections

  /// Sets the descriptor of a connection.
  public mutating func attach(_ descriptor: CInt, to index: Int) { connections[index].descriptor = descriptor }

  /// Removes connections without a descriptor.
  public mutating func dropDetached() { connections.removeAll { $0.descriptor < 0 } }

  /// Ends the connections from `index` on as when the daemon stops, because there was no space for them. Does not wait
  /// for their sockets.
  public func cancel(from index: Int) {
    for (index, connection) in connections.enumerated().dropFirst(index) { cancel(index, by: connection.descriptor) }
  }

  /// Ends one connection in the same way. No process can use its socket afterwards.
  ///
  /// - Parameters:
  ///   - index: the place of the connection in the state.
  ///   - descriptor: the descriptor of the connection; owned by the caller.
  public func cancel(_ index: Int, by descriptor: CInt) {
    let connection = connections[index]
    let bytes = connection.unsent + connection.ending(.restarting)
    unsafe send(descriptor, bytes, bytes.count, CInt(MSG_NOSIGNAL | MSG_DONTWAIT))
    shutdown(descriptor, CInt(SHUT_RDWR))
  }
}

extension SavedConnection {
  /// The bytes that end the connection's requests, and a connection of RSocket.
  fileprivate func ending(_ failure: RequestFailure) -> [UInt8] {
    if let http {
      return http.ending(failure, isWithinEvent: subscriptions.contains { $0.cursor.sentBytes > 0 })
    }
    var machine = ConnectionMachine(restoring: self.machine, limits: ConnectionLimits())
    for id in Set(subscriptions.map(\.id) + patterns.map(\.id) + channels.map(\.id)).sorted() {
      machine.sendError(id, ErrorCode(failure.reason), failure.sentence)
    }
    machine.close(ErrorCode(failure.reason, over: .connectionClose), failure.sentence)
    let frames = machine.takeOutput()
    return webSocket == nil ? frames : RSocketWebSocket.messages(of: frames) + WebSocketFrame.close(1001)
  }
}
