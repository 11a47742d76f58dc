import CLinux
import Events
import Glibc
import RSocket
import Reactive

/// What a server leaves to the one that takes its place in another process: its connections, events that had no room in
/// the log of a stream that drops nothing, and how far the ids of each stream have got.
public struct SavedConnections: Sendable {
  /// Why another process cannot go on with it.
  public struct Useless: Error, Equatable {
    /// One sentence.
    public let reason: String
  }

  /// Events of one stream that wait for room.
  struct Waiting: Sendable, Equatable {
    let stream: String
    let events: EventBatch
  }

  private(set) var sessions: [SavedSession]
  let waiting: [Waiting]
  /// The id that the next event of each stream would have got, by the stream's name.
  let ends: [String: UInt64]

  private static let magic: UInt32 = 0x5354_524D  // "STRM"
  private static let version: UInt32 = 3

  init(_ sessions: [SavedSession], waiting: [Waiting] = [], ends: [String: UInt64] = [:]) {
    self.sessions = sessions
    self.waiting = waiting
    self.ends = ends
  }

  /// How many connections there are.
  public var count: Int { sessions.count }

  /// One per connection, -1 for one without. They belong to the server that saved them, or to the caller that makes this
  /// of its parts, until they are restored.
  public var descriptors: [CInt] { sessions.map(\.descriptor) }

  /// All but the descriptors: a magic number, a version, how many processes have begun to restore it (u8), and the
  /// connections in the order of their descriptors.
  ///
  /// - Parameter count: of the first connections alone.
  public func state(ofFirst count: Int) -> [UInt8] {
    var state = StateWriter()
    state.write(Self.magic)
    state.write(Self.version)
    state.write(UInt8(0))
    state.write(UInt32(waiting.count))
    for batch in waiting {
      state.write(batch.stream)
      state.write(UInt32(batch.events.count))
      for event in batch.events { state.write(event) }
      state.write(batch.events.checkpoint != nil)
      if let checkpoint = batch.events.checkpoint { state.write(checkpoint.bytes) }
    }
    state.write(UInt32(ends.count))
    for (stream, end) in ends.sorted(by: { $0.key < $1.key }) {
      state.write(stream)
      state.write(end)
    }
    state.write(UInt32(count))
    for session in sessions.prefix(count) { session.write(to: &state) }
    return state.bytes
  }

  /// Where a state says how many processes have begun to restore it, for the caller to count.
  public static let triesOffset = 8

  /// How many processes have begun to restore a state.
  public static func tries(in state: [UInt8]) -> UInt8 { state.count > triesOffset ? state[triesOffset] : 0 }

  /// All but the descriptors, which are -1: see `attach`.
  ///
  /// - Parameters:
  ///   - state: as `state(ofFirst:)` gave it; any other bytes are refused, and cost no more than they are.
  ///   - limits: of the server that is to restore the connections.
  /// - Throws: for a state of another version, or one that no server saved.
  public init(state: [UInt8], for limits: ServerLimits) throws(Useless) {
    var reader = StateReader(state)
    do throws(StateReader.Broken) {
      let (magic, version): (UInt32, UInt32) = (try reader.number(), try reader.number())
      guard magic == Self.magic, version == Self.version else { throw .init() }
      _ = try reader.number(UInt8.self)
      var waiting: [Waiting] = []
      for _ in 0..<(try reader.number(UInt32.self)) {
        let stream = try reader.text()
        var events = EventBatch()
        for _ in 0..<(try reader.number(UInt32.self)) { events.append(try reader.data()) }
        if try reader.flag() { events.checkpoint = Checkpoint(try reader.data()) }
        waiting.append(Waiting(stream: stream, events: events))
      }
      var ends: [String: UInt64] = [:]
      for _ in 0..<(try reader.number(UInt32.self)) { ends[try reader.text()] = try reader.number() }
      var sessions: [SavedSession] = []
      for _ in 0..<(try reader.number(UInt32.self)) {
        sessions.append(try SavedSession(reading: &reader, descriptor: -1, limits: limits.ofConnection))
      }
      guard reader.isAtEnd else { throw .init() }
      self.init(sessions, waiting: waiting, ends: ends)
    } catch {
      throw Useless(reason: "the saved state is of another version, or damaged")
    }
  }

  /// With all descriptors.
  ///
  /// - Parameter descriptors: as many as the state has connections, in its order.
  /// - Throws: as above, and for another number of descriptors.
  public init(state: [UInt8], _ descriptors: [CInt], for limits: ServerLimits) throws(Useless) {
    try self.init(state: state, for: limits)
    guard count == descriptors.count else {
      throw Useless(reason: "the saved state has \(count) connections, and there are \(descriptors.count) descriptors")
    }
    for (index, descriptor) in descriptors.enumerated() { attach(descriptor, to: index) }
  }

  /// Gives a connection its descriptor, in place of the one that it has.
  public mutating func attach(_ descriptor: CInt, to index: Int) { sessions[index].descriptor = descriptor }

  /// Takes out the connections that have no descriptor.
  public mutating func dropDetached() { sessions.removeAll { $0.descriptor < 0 } }

  /// Tells the connections from the one at `index` on that they end here: there was no room for them. As far as their
  /// sockets take it at once.
  public func cancel(from index: Int) {
    for (index, session) in sessions.enumerated().dropFirst(index) { cancel(index, by: session.descriptor) }
  }

  /// The same of one connection. Its socket can be used by no process afterwards.
  ///
  /// - Parameter descriptor: the connection's; stays the caller's.
  public func cancel(_ index: Int, by descriptor: CInt) {
    let session = sessions[index]
    var machine = session.machine
    for id in session.subscriptions.map(\.id) + session.publications.map(\.id) {
      machine.sendError(id, .canceled, "streamd is restarting")
    }
    machine.close(.connectionClose, "streamd is restarting")
    let bytes = session.unsent + machine.takeOutput()
    send(descriptor, bytes, bytes.count, CInt(MSG_NOSIGNAL | MSG_DONTWAIT))
    shutdown(descriptor, CInt(SHUT_RDWR))
  }
}

extension StreamServer {
  /// Gives every connection away, instead of `stop`: nothing is accepted, read or written from now on, and sources stop.
  /// Clients wait in their sockets, and those that connect in the listening ones, until another process goes on with them.
  /// This server has to live until then, as it holds the descriptors.
  ///
  /// - Parameter completed: called once, on one of the loops.
  public func handOver(completed: @escaping @Sendable (SavedConnections) -> Void) {
    workers[0].loop.execute { [self] in
      workers[0].stopListening()
      let left = Countdown(workers.count)
      let sessions = Guarded<[SavedSession]>([])
      for worker in workers {
        worker.loop.execute { [self] in
          let saved = worker.handOver()
          sessions.withLock { $0 += saved }
          guard left.isLast() else { return }
          for stream in streams.all { stream.shutDown() }
          let waiting = streams.all.map { stream in
            SavedConnections.Waiting(
              stream: stream.name, events: stream.log.takeOverflow().reduce(into: EventBatch()) { $0 += $1 })
          }
          var ends = systemStreams.ends
          for stream in streams.all {
            ends[stream.name] = max(ends[stream.name] ?? 0, stream.log.read { storage, _ in storage.endPosition })
          }
          completed(
            SavedConnections(
              sessions.withLock { $0 }, waiting: waiting.filter { $0.events != EventBatch() }, ends: ends))
        }
      }
    }
  }

  /// Puts back in its place what another process gave away: once, on a server that was made to, when its streams are there
  /// and its loops have started. The descriptors are the server's from now on.
  ///
  /// Nothing is read, written or appended, and no source subscribed to, before `resume`: until then another process can
  /// restore the same connections.
  ///
  /// - Parameter completed: called once, on one of the loops: every connection is at its place.
  public func restore(_ saved: SavedConnections, completed: @escaping @Sendable () -> Void) {
    let sessions = saved.sessions
    counts.accepted.store(sessions.reduce(0) { max($0, $1.number) }, ordering: .relaxed)
    counts.open.add(sessions.count, ordering: .relaxed)
    // Before any cursor is looked at.
    for (name, end) in saved.ends { streams[name]?.begin(at: end) }
    systemStreams.begin(at: saved.ends)
    restoredEvents.withLock { $0 = saved.waiting }
    let left = Countdown(workers.count)
    for (index, worker) in workers.enumerated() {
      worker.loop.execute { [self] in
        for saved in stride(from: index, to: sessions.count, by: workers.count).map({ sessions[$0] }) {
          worker.restore(saved)
        }
        if left.isLast() { completed() }
      }
    }
  }

  /// Begins to serve what was restored, if anything was, and to subscribe to sources: once, on a server that was made to
  /// restore.
  ///
  /// - Parameter completed: called once, on one of the loops: sources were subscribed to.
  public func resume(completed: @escaping @Sendable () -> Void = {}) {
    let left = Countdown(workers.count)
    for worker in workers {
      worker.loop.execute { [self] in
        worker.resume()
        guard left.isLast() else { return }
        let waiting = restoredEvents.withLock { events in
          defer { events = [] }
          return events
        }
        for batch in waiting { streams[batch.stream]?.append(batch.events, report: report) }
        sourcesWait.store(false, ordering: .releasing)
        for stream in streams.all {
          stream.admitNamedPublishers()
          stream.log.resume()
        }
        completed()
      }
    }
  }
}
