import CLinux
import Events
import Glibc
import RSocket

/// How far the ids of a stream have got.
struct StreamEnd: Equatable, Sendable {
  /// The id that the next event would have got.
  var position: UInt64
  /// From which id on every one before `position` was given to an event; `nil` where that is unknown.
  var countedFrom: UInt64?
}

/// What a server leaves to the one that takes its place in another process: its connections, events that had no room in
/// the log of a stream that drops nothing, and how far the ids of each stream have got.
public struct SavedConnections: Equatable, Sendable {
  /// Events of one stream that wait for room.
  struct Waiting: Sendable, Equatable {
    var stream: String
    var events: EventBatch
  }

  var connections: [SavedConnection]
  var waiting: [Waiting]
  /// By the stream's name.
  var ends: [String: StreamEnd]

  init(_ connections: [SavedConnection], waiting: [Waiting] = [], ends: [String: StreamEnd] = [:]) {
    self.connections = connections
    self.waiting = waiting
    self.ends = ends
  }

  /// How many connections there are.
  public var count: Int { connections.count }

  /// One per connection, -1 for one without. They belong to the server that saved them, or to the caller that makes this
  /// of its parts, until they are restored.
  public var descriptors: [CInt] { connections.map(\.descriptor) }

  // MARK: State

  /// All but the descriptors, for `init(state:)`; connections in the order of their descriptors.
  ///
  /// - Parameter count: of the first connections alone.
  public func state(ofFirst count: Int) -> [UInt8] {
    var saved = self
    saved.connections = Array(connections.prefix(count))
    return SavedState.seal(StateFields.bytes(of: saved), as: .connections)
  }

  /// All but the descriptors, which are -1: see `attach`.
  ///
  /// - Parameter state: as `state(ofFirst:)` returned it, in this version or another that has the same format.
  /// - Throws: for any other bytes; that costs no more than they are.
  public init(state: [UInt8]) throws(InvalidSavedState) {
    let content = try SavedState.open(state, as: .connections)
    do throws(Malformed) {
      self = try StateFields.read(SavedConnections.self, from: content)
    } catch {
      throw InvalidSavedState(reason: error.reason)
    }
  }

  /// With all descriptors.
  ///
  /// - Parameter descriptors: as many as the state has connections, in its order.
  /// - Throws: as above, and for another number of descriptors.
  public init(state: [UInt8], _ descriptors: [CInt]) throws(InvalidSavedState) {
    try self.init(state: state)
    guard count == descriptors.count else {
      throw InvalidSavedState(reason: "it has \(count) connections, and there are \(descriptors.count) descriptors")
    }
    for (index, descriptor) in descriptors.enumerated() { attach(descriptor, to: index) }
  }

  // MARK: Connections

  /// Gives a connection its descriptor, in place of the one that it has.
  public mutating func attach(_ descriptor: CInt, to index: Int) { connections[index].descriptor = descriptor }

  /// Takes out the connections that have no descriptor.
  public mutating func dropDetached() { connections.removeAll { $0.descriptor < 0 } }

  /// Ends the connections from the one at `index` on with CANCELED: there was no room for them. As far as their sockets take
  /// it at once.
  public func cancel(from index: Int) {
    for (index, connection) in connections.enumerated().dropFirst(index) { cancel(index, by: connection.descriptor) }
  }

  /// The same of one connection. Its socket can be used by no process afterwards.
  ///
  /// - Parameter descriptor: the connection's; stays the caller's.
  public func cancel(_ index: Int, by descriptor: CInt) {
    let connection = connections[index]
    defer { shutdown(descriptor, CInt(SHUT_RDWR)) }
    // A client that speaks HTTP sees that its response is not complete.
    guard connection.http == nil, connection.webSocket == nil else { return }
    var machine = ConnectionMachine(restoring: connection.machine, limits: ConnectionLimits())
    for id in connection.subscriptions.map(\.id) + connection.channels.map(\.id) {
      machine.sendError(id, .canceled, "streamd is restarting")
    }
    machine.close(.connectionClose, "streamd is restarting")
    let bytes = connection.unsent + machine.takeOutput()
    unsafe send(descriptor, bytes, bytes.count, CInt(MSG_NOSIGNAL | MSG_DONTWAIT))
  }
}
