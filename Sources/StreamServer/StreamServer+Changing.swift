import StreamRuntime
import Dispatch
import Events
import Reactive
import ReplayLog

/// A change of a stream that keeps its name, its subscriptions, and its log unless stated otherwise.
public struct StreamChange {
  /// What fills a stream's log: its source with the pipeline, its publishers, and their status.
  public struct Feed {
    let source: AnyPublisher<EventBatch, StreamFailure>
    let publishSource: PublishSource?
    let status: SourceStatus

    /// The parameters of `StreamServer.add`. With the stream's present publish source, its publishers stay.
    public init(
      source: some Publisher<EventBatch, StreamFailure>, publishSource: PublishSource? = nil,
      status: SourceStatus = SourceStatus()
    ) {
      self.source = source.eraseToAnyPublisher()
      self.publishSource = publishSource
      self.status = status
    }
  }

  let configuration: StreamConfiguration
  let feed: Feed?
  let makeLog: ((EventLog) throws -> EventLog)?

  /// - Parameters:
  ///   - configuration: the new configuration of the served stream with its name.
  ///   - feed: replaces its source; nil: the source continues. It is resubscribed to, however, for a log
  ///     whose largest event is smaller.
  ///   - makeLog: returns the log in which the stream continues, with the limits of `configuration` and the ids of its
  ///     argument, the present log; it may return that one. nil: the stream keeps the present log, regardless of the
  ///     limits in `configuration`. If it throws, the stream keeps the present log as well.
  public init(
    _ configuration: StreamConfiguration, feed: Feed? = nil, makeLog: ((EventLog) throws -> EventLog)? = nil
  ) {
    self.configuration = configuration
    self.feed = feed
    self.makeLog = makeLog
  }
}

extension StreamServer {
  /// Changes streams and removes others while clients use them. Clients that keep access notice nothing except events
  /// that a smaller log evicts. HTTP responses that cannot continue with events of another type end. Requests to removed
  /// streams end with CANCELED, requests without access with REJECTED. Publishers get CANCELED if the stream accepts no
  /// values any more, or if some of their values are lost with the replaced pipeline.
  ///
  /// On a running server, from any thread except its own; one call at a time. Waits for a turn of each loop; the loops
  /// do not wait.
  ///
  /// - Returns: the errors of streams that keep their present log, by name.
  public func change(_ changes: [StreamChange], removing names: [String]) -> [String: any Error] {
    let removed = remove(names)
    end(removed)
    // The bases of a derived stream wait for it while its source is replaced.
    let holds = changes.flatMap { change in
      streams[change.configuration.name]?.status.derivation?.holds() ?? []
    }
    defer { holds.forEach { $0.end() } }
    let changed = changes.compactMap { change in
      streams[change.configuration.name].map { stream in
        (stream: stream, change: change, storage: begin(change, of: stream))
      }
    }
    reapplyVisibility()
    reapplyAccess(removed: removed, changed: changed.map(\.stream))
    retire(removed)
    var failures: [String: any Error] = [:]
    var former: [EventLog] = []
    for (stream, change, storage) in changed {
      var log: EventLog?
      do {
        log = try change.makeLog?(storage)
      } catch {
        failures[stream.name] = error
      }
      stream.finishChange(in: log === storage ? nil : log, report: report)
      stream.watchFreshness(on: freshnessLoop, report: report)
      stream.watchState(report: report)
      if log !== storage { former.append(storage) }
    }
    release(former)
    return failures
  }

  /// Begins the change of a stream. If it is no longer one of its template, or one of another, the former template keeps
  /// what it has counted.
  private func begin(_ change: StreamChange, of stream: ServedStream) -> EventLog {
    guard stream.template != nil, stream.template != change.configuration.template else {
      return stream.begin(change, report: report)
    }
    return retired.withLock { retired in
      retired.addToTemplate(stream)
      return stream.begin(change, report: report)
    }
  }

  /// Takes streams out of the table. They are counted as if they were in it, until they are retired.
  func remove(_ names: [String]) -> [ServedStream] {
    retired.withLock { retired in
      let removed = names.compactMap { streams.remove($0) }
      retired.begin(removed)
      return removed
    }
  }

  /// Puts streams into the table again.
  func putBack(_ removed: [ServedStream]) {
    guard !removed.isEmpty else { return }
    retired.withLock { retired in
      for stream in removed { _ = streams.insert(stream) }
      retired.restore(removed)
    }
  }

  /// Keeps the counters of streams that have ended, as their requests have.
  func retire(_ ended: [ServedStream]) {
    guard !ended.isEmpty else { return }
    retired.withLock { $0.add(ended) }
  }

  /// Ends streams that were removed from the table, but not their requests.
  func end(_ streams: [ServedStream]) {
    for stream in streams {
      stream.endWatch()
      stream.shutDown()
      stream.loseOverflow(report)
    }
  }

  /// Ends the requests to streams that were removed. Waits for a turn of each loop.
  func endRequests(to removed: [ServedStream]) { reapplyAccess(removed: removed, changed: []) }

  /// Waits until each loop has ended its present turn.
  /// - Returns: false if one has not, because it is stuck, or has stopped.
  func awaitTurns() -> Bool {
    let done = DispatchSemaphore(value: 0)
    for worker in workers { worker.loop.execute { done.signal() } }
    let deadline = DispatchTime.now() + .seconds(2)
    return workers.allSatisfy { _ in done.wait(timeout: deadline) == .success }
  }

  private func reapplyAccess(removed: [ServedStream], changed: [ServedStream]) {
    let done = DispatchSemaphore(value: 0)
    for worker in workers {
      worker.loop.execute {
        worker.reapplyAccess(removed: removed, changed: changed)
        done.signal()
      }
    }
    for _ in workers { done.wait() }
  }

  /// Workers cache logs by address, so an address must not be reused before all of them have dropped it.
  private func release(_ logs: [EventLog]) {
    guard !logs.isEmpty else { return }
    let kept = Locked(logs)
    for worker in workers {
      worker.loop.execute {
        worker.forgetLogs()
        withExtendedLifetime(kept) {}
      }
    }
  }
}

extension Worker {
  /// Ends requests to removed streams, requests without access, and responses to which events of another type do not
  /// fit. On the loop, while the logs of the changed streams are frozen.
  fileprivate func reapplyAccess(removed: [ServedStream], changed: [ServedStream]) {
    for stream in removed {
      for member in members(of: stream) where member.phase != .ended {
        member.connection.fail(member, .removed(stream.name))
      }
    }
    for stream in changed {
      for member in members(of: stream) where member.phase != .ended {
        member.connection.reapplyReadAccess(to: member)
        member.connection.reapplyType(to: member)
        member.connection.reapplyMap(to: member)
      }
      existingLane(of: stream)?.adapt()
      // Clients may read it that could not before.
      offer(stream, from: stream.log.read { storage, _ in storage.endPosition })
    }
    for connection in allConnections where connection.phase == .open { connection.speaker?.reapplyWriteAccess() }
  }

  private func members(of stream: ServedStream) -> [StreamSubscription] { existingLane(of: stream)?.members ?? [] }
}
