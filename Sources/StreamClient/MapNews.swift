import CLinux
import MappedLog
import Reactive
import StreamProtocol
import StreamRuntime
import Synchronization

/// The news that a map's reader, on its thread, and the map's requests, on the loop, exchange.
@safe final class MapNews: @unchecked Sendable {  // a lock, and an atomic word in memory of its own
  /// A region that a reply has brought.
  struct Opening {
    let region: RegionReader
    let reply: MapReply
    /// The id after which it was requested.
    let askedID: UInt64?
    /// Whether it was requested because the one before had been replaced.
    let isSuccessor: Bool
  }

  struct State {
    // From the loop:
    var opening: Opening?
    /// Why there is no other region.
    var refusal: StreamError?
    /// How the demand has ended, which is how the stream has.
    var end: Subscribers.Completion<StreamError>?
    /// Whether the connection was restored and no event has followed.
    var isRestored = false

    // From the reader:
    /// The region for whose next event it waits.
    var waitsFor: RegionReader?
    /// Events that are requested and not delivered.
    var demand = Subscribers.Demand.none
    /// Events that were delivered or overwritten: their demand is used up at the source.
    var usedCount: UInt64 = 0
    /// The position after these, and the region's epoch.
    var position: UInt64?
    var epoch: UInt64 = 0
    /// The id of the newest event before the position.
    var lastID: UInt64?
    /// Whether the region was replaced, and all of its events were read.
    var needsSuccessor = false
  }

  private let state = Locked(State())
  private let counter: UnsafeMutablePointer<Atomic<UInt32>>

  init() {
    unsafe counter = .allocate(capacity: 1)
    unsafe counter.initialize(to: Atomic(0))
  }

  deinit {
    unsafe counter.deinitialize(count: 1)
    unsafe counter.deallocate()
  }

  func withLock<Result>(_ body: (inout State) -> Result) -> Result { state.withLock { body(&$0) } }

  /// Changes with each `announce`.
  var number: UInt32 { unsafe counter.pointee.load(ordering: .sequentiallyConsistent) }

  /// Wakes the reader.
  /// - Parameter endsWaitForEvents: also if it waits for events: all readers of the region then look for some.
  func announce(endsWaitForEvents: Bool = true) {
    unsafe counter.pointee.wrappingAdd(1, ordering: .sequentiallyConsistent)
    _ = unsafe wake_some(counter, .max)
    if endsWaitForEvents, let region = withLock({ $0.waitsFor }) { region.wakeAll() }
  }

  /// Waits until there are news after those of `number`; may also return without.
  func wait(after number: UInt32, milliseconds: CInt) {
    unsafe wait_while(counter, number, milliseconds)
  }
}
