import CLinux
import Events
import Glibc
import RSocket
import Reactive

/// What a server leaves to the one that takes its place in another process: its connections, and events that had no room
/// in the log of a stream that drops nothing.
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

  let sessions: [SavedSession]
  let waiting: [Waiting]

  private static let magic: UInt32 = 0x5354_524D  // "STRM"
  private static let version: UInt32 = 2

  init(_ sessions: [SavedSession], waiting: [Waiting]) {
    self.sessions = sessions
    self.waiting = waiting
  }

  /// One per connection. They belong to the server that saved them, or to who makes this of its parts, until it is gone
  /// on with.
  public var descriptors: [CInt] { sessions.map(\.descriptor) }

  /// All but the descriptors: a magic number, a version, and the connections in the order of their descriptors.
  ///
  /// - Parameter count: of the first connections alone.
  public func state(ofFirst count: Int) -> [UInt8] {
    var state = StateWriter()
    state.write(Self.magic)
    state.write(Self.version)
    state.write(UInt32(waiting.count))
    for batch in waiting {
      state.write(batch.stream)
      state.write(UInt32(batch.events.count))
      for event in batch.events { state.write(event) }
      state.write(batch.events.checkpoint != nil)
      if let checkpoint = batch.events.checkpoint { state.write(checkpoint.bytes) }
    }
    state.write(UInt32(count))
    for session in sessions.prefix(count) { session.write(to: &state) }
    return state.bytes
  }

  /// - Parameters:
  ///   - descriptors: as many as the state tells of, in its order.
  ///   - limits: of the server that is to go on.
  /// - Throws: for a state of another version, or one that makes no sense.
  public init(state: [UInt8], _ descriptors: [CInt], for limits: ServerLimits) throws(Useless) {
    var reader = StateReader(state)
    do throws(StateReader.Broken) {
      let (magic, version): (UInt32, UInt32) = (try reader.number(), try reader.number())
      guard magic == Self.magic, version == Self.version else { throw .init() }
      var waiting: [Waiting] = []
      for _ in 0..<(try reader.number(UInt32.self)) {
        let stream = try reader.text()
        var events = EventBatch()
        for _ in 0..<(try reader.number(UInt32.self)) { events.append(try reader.data()) }
        if try reader.flag() { events.checkpoint = Checkpoint(try reader.data()) }
        waiting.append(Waiting(stream: stream, events: events))
      }
      guard Int(try reader.number(UInt32.self)) == descriptors.count else { throw .init() }
      var sessions: [SavedSession] = []
      for descriptor in descriptors {
        sessions.append(try SavedSession(reading: &reader, descriptor: descriptor, limits: limits.ofConnection))
      }
      guard reader.isAtEnd else { throw .init() }
      self.init(sessions, waiting: waiting)
    } catch {
      throw Useless(reason: "what was saved of \(descriptors.count) connections is another version's, or broken")
    }
  }

  /// Tells the connections from the one at `index` on that they end here: there was no room for them. As far as their
  /// sockets take it at once.
  public func cancel(from index: Int) {
    for session in sessions.dropFirst(index) {
      var machine = session.machine
      for id in session.subscriptions.map(\.id) + session.publications.map(\.id) {
        machine.sendError(id, .canceled, "streamd is restarting")
      }
      machine.close(.connectionClose, "streamd is restarting")
      let bytes = session.unsent + machine.takeOutput()
      send(session.descriptor, bytes, bytes.count, CInt(MSG_NOSIGNAL))
      shutdown(session.descriptor, CInt(SHUT_RDWR))
    }
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
          completed(SavedConnections(sessions.withLock { $0 }, waiting: waiting.filter { $0.events != EventBatch() }))
        }
      }
    }
  }

  /// Goes on with what another process gave away, and then begins with the sources: once, on a server that was made to,
  /// when its streams are there and its loops have started. The descriptors are the server's from now on.
  ///
  /// - Parameters:
  ///   - saved: nil: there is nothing to go on with.
  ///   - completed: called once, on one of the loops: the sources have been begun with.
  public func goOn(with saved: SavedConnections?, completed: @escaping @Sendable () -> Void = {}) {
    let sessions = saved?.sessions ?? []
    counts.accepted.store(sessions.reduce(0) { max($0, $1.number) }, ordering: .relaxed)
    counts.open.add(sessions.count, ordering: .relaxed)
    let left = Countdown(workers.count)
    for (index, worker) in workers.enumerated() {
      worker.loop.execute { [self] in
        for saved in stride(from: index, to: sessions.count, by: workers.count).map({ sessions[$0] }) {
          worker.adopt(saved)
        }
        guard left.isLast() else { return }
        // Only now does everybody hold what is to be kept.
        for batch in saved?.waiting ?? [] { streams[batch.stream]?.log.append(batch.events) }
        sourcesWait.store(false, ordering: .releasing)
        for stream in streams.all { stream.log.resume() }
        completed()
      }
    }
  }
}
