import StreamRuntime
import Events
import Reactive

// A handover has four steps. The old server reads no more, makes the streams that requests wait for, and lets its streams
// store the values that publishers have sent. It saves its connections. The new server restores them. It serves them once
// nothing can fail any more.

extension StreamServer {
  /// Saves every connection, instead of `stop`: nothing is accepted or read from now on. Input waits in the sockets,
  /// and new clients in the listening sockets, until another process restores them. Streams that requests wait for are
  /// still made, and values that publishers have sent pass into their streams, as far as these request them. After
  /// that, nothing is written any more either, and sources stop. This server must be retained as long as its
  /// descriptors are needed, because it owns them.
  ///
  /// - Parameter completed: called once, on one of the loops.
  public func save(completed: @escaping @Sendable (SavedConnections) -> Void) {
    workers[0].loop.execute { [self] in
      workers[0].stopListening()
      refusedConnections.close()
      onEachLoop({ $0.pause() }) { [self] loop in
        let deadline = EventLoop.monotonicNow() + UInt64(limits.settleTime.wholeNanoseconds)
        wait(on: loop, until: deadline, while: { self.waitingMakingCount > 0 }) { [self] in
          isEnding.store(true, ordering: .releasing)
          // Requests that waited for their streams have begun.
          onEachLoop({ $0.finishInput() }) { [self] loop in
            wait(on: loop, until: deadline, while: { self.isStoring }) { self.saveWorkers(completed: completed) }
          }
        }
      }
    }
  }

  /// - Parameter completed: called with the last loop, on it.
  private func onEachLoop(
    _ work: @escaping @Sendable (Worker) -> Void, completed: @escaping @Sendable (EventLoop) -> Void
  ) {
    let left = Countdown(workers.count)
    for worker in workers {
      worker.loop.execute {
        work(worker)
        if left.isLast() { completed(worker.loop) }
      }
    }
  }

  /// The time between two looks at what a handover waits for.
  private static let settlePeriod = Duration.milliseconds(1)

  /// No loop reads meanwhile.
  private func wait(
    on loop: EventLoop, until deadline: UInt64, while condition: @escaping @Sendable () -> Bool,
    completed: @escaping @Sendable () -> Void
  ) {
    guard condition(), EventLoop.monotonicNow() < deadline else { return completed() }
    _ = loop.schedule(after: Self.settlePeriod) { [self] in
      wait(on: loop, until: deadline, while: condition, completed: completed)
    }
  }

  /// Whether values are on their way into streams.
  private var isStoring: Bool {
    let storing = streams.unsorted.filter { stream in stream.publishSource?.settle { stream.isFull } ?? false }
    return !storing.isEmpty
  }

  private func saveWorkers(completed: @escaping @Sendable (SavedConnections) -> Void) {
    let connections = Locked<[SavedConnection]>([])
    onEachLoop({ worker in
      let saved = worker.save()
      connections.withLock { $0 += saved }
    }) { [self] _ in
      for stream in streams.unsorted { stream.shutDown() }
      completed(savedConnections(of: connections.withLock { $0 }))
    }
  }

  /// Adds the ends of the streams' ids, and the events that wait for space.
  private func savedConnections(of connections: [SavedConnection]) -> SavedConnections {
    var saved = SavedConnections(connections)
    let systemEnds = systemStreams.ends
    (saved.templates, saved.tickets) = (templates.all.map(\.saved), tokens.tickets.open)
    for stream in streams.unsorted {
      // A batch with stamps is read again from the fleet: the log's position is before it.
      let waiting = stream.log.takeOverflow().filter { $0.stamps == nil }
      let events = waiting.reduce(into: EventBatch()) { $0 += $1 }
      if events != EventBatch() { saved.waiting.append(SavedConnections.Waiting(stream: stream.name, events: events)) }
      if let left = stream.publishSource?.takeLeft(), !left.isEmpty {
        saved.left.append(SavedConnections.Waiting(stream: stream.name, events: left))
      }
      var end = stream.log.read { storage, _ in
        // Views of a system stream have their own logs.
        systemEnds[stream.name].map { StreamEnd(position: max($0, storage.endPosition)) }
          ?? StreamEnd(position: storage.endPosition, countedFrom: storage.countedFrom)
      }
      (end.freshness, end.mapGeneration) = (stream.savedFreshness, stream.savedMapGeneration)
      if stream.configuration.template != nil, let maker = templates.match(stream.name)?.template.owner(of: stream.name)
      {
        end.maker = maker.saved
      }
      saved.ends[stream.name] = end
    }
    return saved
  }

  /// Restores the saved state of another process: once, on a server created with `restores`, after adding its streams
  /// and starting its loops. The server then owns the descriptors.
  ///
  /// Nothing is read, written or appended, and no source subscribed to, before `finishRestore`: until then another
  /// process can restore the same connections.
  ///
  /// - Parameters:
  ///   - saved: the state of the other process.
  ///   - completed: called once, on one of the loops, after all connections are restored.
  public func restore(_ saved: SavedConnections, completed: @escaping @Sendable () -> Void) {
    let connections = saved.connections
    counts.accepted.store(connections.reduce(0) { max($0, $1.number) }, ordering: .relaxed)
    counts.open.add(connections.count, ordering: .relaxed)
    // This comes before any cursor is restored.
    for (name, end) in saved.ends { streams[name]?.begin(after: end) }
    for saved in saved.templates { templates.all.first { $0.name.text == saved.name }?.count(on: saved) }
    systemStreams.begin(at: saved.ends.mapValues(\.position))
    for values in saved.left { streams[values.stream]?.publishSource?.restoreLeft(values.events) }
    restoredEvents.withLock { $0 = saved.waiting }
    tokens.tickets.restore(saved.tickets)
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

  /// Begins to serve restored connections, if any, and to subscribe to sources: once, on a server created with
  /// `restores`.
  ///
  /// - Parameter completed: called once, on one of the loops, after subscribing to sources.
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
        for batch in waiting { streams[batch.stream]?.restore(batch.events, report: report) }
        sourcesWait.store(false, ordering: .releasing)
        for stream in streams.unsorted {
          stream.admitNamedPublishers()
          stream.log.resume()
        }
        completed()
      }
    }
  }
}
