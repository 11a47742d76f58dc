import StreamRuntime
import Events
import Reactive

// From one process to the next, in three steps: the former server saves its connections, the next one restores them, and
// once nothing can fail any more it begins to serve them.

extension StreamServer {
  /// Saves every connection, in place of `stop`: nothing is accepted, read or written from now on, and sources stop.
  /// Clients wait in their sockets, and new ones in the listening sockets, until another process restores them.
  /// This server has to live until then, as it holds the descriptors.
  ///
  /// - Parameter completed: called once, on one of the loops.
  public func save(completed: @escaping @Sendable (SavedConnections) -> Void) {
    workers[0].loop.execute { [self] in
      workers[0].stopListening()
      let left = Countdown(workers.count)
      let connections = Locked<[SavedConnection]>([])
      for worker in workers {
        worker.loop.execute { [self] in
          let saved = worker.save()
          connections.withLock { $0 += saved }
          guard left.isLast() else { return }
          for stream in streams.all { stream.shutDown() }
          completed(savedConnections(of: connections.withLock { $0 }))
        }
      }
    }
  }

  /// With what the streams leave.
  private func savedConnections(of connections: [SavedConnection]) -> SavedConnections {
    var saved = SavedConnections(connections)
    let systemEnds = systemStreams.ends
    for stream in streams.all {
      let events = stream.log.takeOverflow().reduce(into: EventBatch()) { $0 += $1 }
      if events != EventBatch() { saved.waiting.append(SavedConnections.Waiting(stream: stream.name, events: events)) }
      saved.ends[stream.name] = stream.log.read { storage, _ in
        // Views of a system stream have logs of their own.
        systemEnds[stream.name].map { StreamEnd(position: max($0, storage.endPosition)) }
          ?? StreamEnd(position: storage.endPosition, countedFrom: storage.countedFrom)
      }
    }
    return saved
  }

  /// Restores what another process saved: once, on a server that was made to, when its streams are there and its loops
  /// have started. The descriptors are the server's from now on.
  ///
  /// Nothing is read, written or appended, and no source subscribed to, before `finishRestore`: until then another process
  /// can restore the same connections.
  ///
  /// - Parameter completed: called once, on one of the loops: every connection is at its place.
  public func restore(_ saved: SavedConnections, completed: @escaping @Sendable () -> Void) {
    let connections = saved.connections
    counts.accepted.store(connections.reduce(0) { max($0, $1.number) }, ordering: .relaxed)
    counts.open.add(connections.count, ordering: .relaxed)
    // Before any cursor is looked at.
    for (name, end) in saved.ends { streams[name]?.begin(after: end) }
    systemStreams.begin(at: saved.ends.mapValues(\.position))
    restoredEvents.withLock { $0 = saved.waiting }
    let left = Countdown(workers.count)
    for (index, worker) in workers.enumerated() {
      worker.loop.execute { [self] in
        for saved in stride(from: index, to: connections.count, by: workers.count).map({ connections[$0] }) {
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
  public func finishRestore(completed: @escaping @Sendable () -> Void = {}) {
    let left = Countdown(workers.count)
    for worker in workers {
      worker.loop.execute { [self] in
        worker.finishRestore()
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
