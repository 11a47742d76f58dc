import StreamRuntime
import Dispatch
import Events
import Reactive
import ReplayLog

/// A change of a stream that keeps its name, its subscriptions, and its log unless stated otherwise.
public struct StreamChange {
  /// What feeds a stream.
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
  ///   - configuration: of a stream that is served, by its name.
  ///   - feed: replaces its source; nil: the source continues. It is subscribed to anew, however, for a log
  ///     whose largest event is smaller.
  ///   - makeLog: returns the log in which the stream continues, with the limits of `configuration` and the ids of its
  ///     argument, the present log; may return that. nil: the present log, whatever the limits in `configuration`. If it
  ///     throws, the stream keeps the present log.
  public init(
    _ configuration: StreamConfiguration, feed: Feed? = nil, makeLog: ((EventLog) throws -> EventLog)? = nil
  ) {
    self.configuration = configuration
    self.feed = feed
    self.makeLog = makeLog
  }
}

extension StreamServer {
  /// Changes streams and removes others while clients use them. Clients that keep access notice nothing except events that
  /// a smaller log evicts. Requests to streams that are gone end with CANCELED, those
  /// of clients that are no longer admitted with REJECTED. Publishers get CANCELED where the stream takes no values any
  /// more, or has been given some that are lost with what led to its log.
  ///
  /// On a server that runs, from any thread but its own; one at a time. Waits for a turn of each loop; the loops wait for
  /// nothing.
  ///
  /// - Returns: the errors of streams that keep their present log, by name.
  public func change(_ changes: [StreamChange], removing names: [String]) -> [String: any Error] {
    let removed = names.compactMap { streams.remove($0) }
    for stream in removed {
      stream.shutDown()
      retired.withLock { $0.add(stream) }
    }
    let changed = changes.compactMap { change in
      streams[change.configuration.name].map { stream in
        (stream: stream, change: change, storage: stream.begin(change, report: report))
      }
    }
    reapplyVisibility()
    reapplyAccess(removed: removed, changed: changed.map(\.stream))
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
      if log !== storage { former.append(storage) }
    }
    release(former)
    return failures
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

  /// Workers know logs by their address, which may be used again only once all of them have forgotten it.
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
  /// Tells the clients of streams that are gone, or that admit them no longer. On the loop, while the logs of the changed
  /// ones are frozen.
  fileprivate func reapplyAccess(removed: [ServedStream], changed: [ServedStream]) {
    for stream in removed {
      for member in members(of: stream) where member.state != .ended {
        member.connection.fail(member, .canceled("\"\(stream.name)\" is no longer served"))
      }
    }
    for stream in changed {
      for member in members(of: stream) where member.state != .ended { member.connection.reapplyReadAccess(to: member) }
      existingLane(of: stream)?.adapt()
    }
    for connection in allConnections { connection.reapplyWriteAccess() }
  }

  private func members(of stream: ServedStream) -> [StreamSubscription] { existingLane(of: stream)?.members ?? [] }
}
