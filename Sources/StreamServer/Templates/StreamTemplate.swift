import Locks
import StreamRuntime
import Synchronization

/// Streams whose names have parameters: each exists because a client asks for it, and is forgotten when nobody uses it.
package struct StreamTemplate: Sendable {
  /// The names of its streams.
  package var name: NameTemplate
  /// The most streams at a time.
  package var limit: Int
  /// The time without a subscriber, a publisher, a waiting value, and a derived stream that reads it, after which a stream is
  /// forgotten with its events; nil: never.
  package var forgetTime: Duration?
  /// The kind of source, such as `http` or `publish`; shown in `$templates`.
  package var source: String
  /// MIME type of the events of its streams.
  package var type: String
  /// Whether clients publish to its streams.
  package var takesValues: Bool
  /// Whether its streams are the answers to requests of clients, and exist only because of them.
  package var takesRequests = false
  /// The clients that see the template in `$templates`: those that may have a stream of it.
  package var shownTo: AccessRules
  /// Whether the metrics show each of its streams; if not, they show the sums.
  package var hasMetricsOfEach: Bool
  /// Whether `access` may wait, for example for a name service. It is called on the maker's queue then, else on event loops.
  package var accessWaits: Bool
  /// The clients that may read a stream with these values, and those that may publish to it. Called from any thread.
  package var access: @Sendable (NameValues) -> (read: AccessRules, write: AccessRules)

  /// The defaults of the daemon's configuration file.
  package init(
    _ name: NameTemplate, limit: Int = 1000, forgetTime: Duration? = .seconds(600), source: String = "publisher",
    type: String = "application/json", takesValues: Bool = false, shownTo: AccessRules = AccessRules(),
    hasMetricsOfEach: Bool = false, accessWaits: Bool = false,
    access: @escaping @Sendable (NameValues) -> (read: AccessRules, write: AccessRules) = { _ in (AccessRules(), .owner)
    }
  ) {
    (self.name, self.limit, self.forgetTime, self.source) = (name, limit, forgetTime, source)
    (self.type, self.takesValues, self.shownTo) = (type, takesValues, shownTo)
    (self.hasMetricsOfEach, self.accessWaits, self.access) = (hasMetricsOfEach, accessWaits, access)
  }
}

/// Makes the streams of a server's templates, and releases what belongs to them. Its functions are called on its queue.
package protocol StreamMaker: Sendable {
  /// Everything that adds or removes streams of templates runs on it.
  var queue: WorkQueue { get }

  /// Whether to make a stream of a template needs no wait now: neither for a disk nor for another process, whatever its
  /// name is. An event loop then makes it itself, as work of the queue.
  func makesAtOnce(_ template: NameTemplate) -> Bool

  /// Whether there is memory for another stream. If not, unused ones are forgotten.
  var hasMemory: Bool { get }

  /// Adds a stream to the server, with `StreamServer.add`.
  ///
  /// - Parameter maker: who the stream is made for, and for whom bases of it are made with `StreamServer.makeStream`.
  /// Names its bases with `StreamServer.setBases` before it makes them, so that none makes room for another one.
  /// - Returns: the names of the streams of which it is derived. They are in use while it exists.
  /// - Throws: `StreamFailure`, with a sentence for the client.
  func make(
    _ name: String, of template: NameTemplate, _ values: NameValues, for maker: StreamOwner?
  ) throws(StreamFailure) -> [String]

  /// These streams are not served any more, and nobody uses them. Their events end with them.
  func forget(_ names: [String])

  /// Stores the request of a client, before the stream of its answer is made.
  /// - Throws: with a sentence for the client.
  func store(
    _ request: StreamRequest, for name: String, of template: NameTemplate, by owner: StreamOwner
  ) throws(StreamFailure)

  /// What a request is to the one whose answer a stream is.
  func relation(of request: StreamRequest, to name: String) -> RequestRelation

  /// The stream of an answer has ended. From any thread.
  /// - Parameter lastID: the id of its last event; 0: it has none.
  func answerEnded(_ name: String, lastID: UInt64)

  /// An answer waits for a reader, or may not wait any more.
  func answerWaits(_ name: String, _ waits: Bool)
}

extension StreamMaker {
  package func store(
    _ request: StreamRequest, for name: String, of template: NameTemplate, by owner: StreamOwner
  ) throws(StreamFailure) { throw StreamFailure("\"\(name)\" takes no requests") }
  package func relation(of request: StreamRequest, to name: String) -> RequestRelation { .other }
  package func answerEnded(_ name: String, lastID: UInt64) {}
  package func answerWaits(_ name: String, _ waits: Bool) {}
}

/// What a client asks the upstream of a template.
package struct StreamRequest: Sendable, Equatable {
  /// Not empty.
  package var body: [UInt8]
  /// The type of the body, for the upstream; nil: the configured one.
  package var type: String?

  package init(body: [UInt8], type: String?) { (self.body, self.type) = (body, type) }
}

/// What a request is to the one whose answer a stream is.
package enum RequestRelation: Sendable {
  case same
  /// The same, and the former one has failed.
  case again
  case other
}

/// When a stream of a template was in use last. Thread-safe.
final class StreamUse: Sendable {
  /// The names of streams whose use has ended since they were looked at. Thread-safe.
  final class Ends: Sendable {
    private struct State {
      var names: [String] = []
      var first: (@Sendable () -> Void)?
    }

    private let state = Locked(State())

    /// - Parameter first: called for the first name after `take`, on any thread.
    func notify(_ first: @escaping @Sendable () -> Void) { state.withLock { $0.first = first } }

    fileprivate func add(_ name: String) {
      let first = state.withLock { state in
        state.names.append(name)
        return state.names.count == 1 ? state.first : nil
      }
      first?()
    }

    func take() -> [String] {
      state.withLock { state in
        defer { state.names = [] }
        return state.names
      }
    }
  }

  private let name: String
  private let ends: Ends
  private let lastEnd: Atomic<UInt64>
  private let isListed = Atomic(false)
  private let holds = Atomic(0)

  init(_ name: String, _ ends: Ends) {
    (self.name, self.ends) = (name, ends)
    lastEnd = Atomic(EventLoop.monotonicNow())
  }

  /// The end of the last use, in nanoseconds of the monotonic clock.
  var time: UInt64 { lastEnd.load(ordering: .acquiring) }

  /// Whether a request that the stream was made for has not begun yet.
  var isHeld: Bool { holds.load(ordering: .sequentiallyConsistent) > 0 }

  /// A request will use the stream.
  func hold() { holds.add(1, ordering: .sequentiallyConsistent) }

  /// It uses the stream now, or never will.
  func release() {
    holds.subtract(1, ordering: .sequentiallyConsistent)
    end()
  }

  /// Holds the stream while it exists, on one thread.
  final class Hold {
    private let use: StreamUse
    init(_ use: StreamUse) {
      self.use = use
      use.hold()
    }
    /// - Parameter use: held already.
    init(taking use: StreamUse) { self.use = use }
    deinit { use.release() }
  }

  /// A use ends.
  func end() {
    lastEnd.store(EventLoop.monotonicNow(), ordering: .releasing)
    if !isListed.exchange(true, ordering: .acquiringAndReleasing) { ends.add(name) }
  }

  /// The name was taken from the list. Called before `time` is read.
  func wasTaken() { _ = isListed.exchange(false, ordering: .acquiringAndReleasing) }
}
