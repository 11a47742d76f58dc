import CLinux
import Dispatch
import Glibc
import StreamRuntime
import Synchronization

/// The thread that wakes the readers of maps.
///
/// A client with a map can let hundreds of thousands of waiters wait on its word, or on words of its own that the kernel
/// has in the same list. The call that wakes them takes as long as there are waiters: 30 ms for 400,000. A thread that
/// publishes therefore never makes it: it queues the region, once for all that it publishes meanwhile. Each region has
/// turns in which a few waiters are woken, so that those of one region delay the readers of another for one turn.
package final class MapWaker: Sendable {
  /// For the process. The thread begins with the first region, and waits without cost.
  package static let shared = MapWaker()
  /// The number of threads that one call wakes.
  static let turn = 64

  private struct State {
    var queue: [MapRegion] = []
    var hasThread = false
  }

  private let state = Locked(State())
  private let news = DispatchSemaphore(value: 0)

  init() {}

  /// Begins the thread, unless it runs.
  /// - Throws: when the process may have no more threads.
  func start() throws(SystemError) {
    try state.withLock { state throws(SystemError) in
      guard !state.hasThread else { return }
      try BackgroundThread.start(name: "map waker") { self.run() }
      state.hasThread = true
    }
  }

  /// Queues a region, unless it waits for its turn already. Any thread.
  func add(_ region: MapRegion) {
    guard !region.isQueued.exchange(true, ordering: .acquiringAndReleasing) else { return }
    let isFirst = state.withLock { state in
      state.queue.append(region)
      return state.queue.count == 1
    }
    if isFirst { news.signal() }
  }

  private func run() {
    while true {
      news.wait()
      while takeTurns() { sched_yield() }
    }
  }

  /// Gives each queued region a turn.
  /// - Returns: whether readers are left.
  func takeTurns() -> Bool {
    for region in state.withLock({ $0.queue }) {
      // What is published from here on needs another turn.
      region.isQueued.store(false, ordering: .sequentiallyConsistent)
      let isDone = region.wakeSome(Self.turn) < Self.turn
      state.withLock { state in
        state.queue.removeFirst()
        guard !isDone, !region.isQueued.exchange(true, ordering: .acquiringAndReleasing) else { return }
        state.queue.append(region)
      }
    }
    return state.withLock { !$0.queue.isEmpty }
  }
}
