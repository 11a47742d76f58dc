import CLinux
import CRegion
import Glibc

/// A region as one of its readers sees it, in a mapping of its own: `region.h`, which has the rules, as a class.
///
/// A region may have any content at any moment. What it has costs its reader the map, and no more.
///
/// One thread at a time reads; `wakeAll` is for any thread.
@safe package final class RegionReader: @unchecked Sendable {
  /// A fault of a region, or of its descriptors.
  package struct Damage: Error, Equatable {
    package let sentence: String
    /// Whether an event is larger than the reader takes, and nothing is damaged.
    package let isTooLarge: Bool

    init(_ sentence: String, isTooLarge: Bool = false) { (self.sentence, self.isTooLarge) = (sentence, isTooLarge) }
  }

  /// The result of a copy from a position on.
  package enum Found: Equatable {
    /// Events were copied: see `copied`.
    case events
    /// No event has this position yet.
    case nothing
    /// The events from `first` up to `end` are held.
    case overtaken(first: UInt64, end: UInt64)
    /// The events were overwritten meanwhile.
    case again
  }

  package let generation: UInt64
  /// Positions of regions with one epoch are comparable.
  package let epoch: UInt64

  private let region: UnsafeMutablePointer<CRegion.region>
  private let events: UnsafeMutablePointer<CRegion.copy>
  private let wakeWord: UnsafeRawPointer

  /// - Parameters:
  ///   - region: stays the caller's, as `page`.
  ///   - page: of the readers of this user; nil: they are woken for each batch.
  ///   - byteCount: from the reply, as `generation`.
  ///   - maximumEventBytes: an event with more is not copied, so that no content makes this process take more memory.
  package init(
    region descriptor: CInt, page: CInt?, byteCount: UInt64, generation: UInt64, maximumEventBytes: Int
  ) throws(Damage) {
    var opened = unsafe CRegion.region()
    var sentence: UnsafePointer<CChar>?
    guard unsafe region_open(&opened, [descriptor, page ?? -1], byteCount, generation, &sentence) == 0 else {
      throw Damage(unsafe sentence.map { unsafe String(cString: $0) } ?? "")
    }
    unsafe opened.event_limit = UInt32(min(maximumEventBytes, 1 << 30))
    (self.generation, epoch) = unsafe (generation, opened.epoch)
    unsafe wakeWord = unsafe region_wake_word(&opened)
    unsafe region = .allocate(capacity: 1)
    unsafe events = .allocate(capacity: 1)
    unsafe region.initialize(to: opened)
    unsafe events.initialize(to: CRegion.copy())
  }

  deinit {
    unsafe region_close(region)
    unsafe free(events.pointee.bytes)
    unsafe region.deallocate()
    unsafe events.deallocate()
  }

  // MARK: Reading

  /// The position of the next event.
  package var end: UInt64 { unsafe region_end(region) }

  /// Nil: damaged.
  package var state: MapState? { unsafe MapState(rawValue: region_state(region)) }

  /// Copies events from `position` on that lie side by side.
  package func copy(from position: UInt64, atMost most: Int) throws(Damage) -> Found {
    var (first, end) = (UInt64(0), UInt64(0))
    switch unsafe region_copy(region, position, UInt64(max(1, most)), events, &first, &end) {
    case FOUND_EVENTS:
      let missed = unsafe UInt64(events.pointee.next)
      return missed == 0 ? .events : .overtaken(first: position + missed, end: end)
    case FOUND_NOTHING: return .nothing
    case FOUND_OVERTAKEN: return .overtaken(first: first, end: end)
    case FOUND_AGAIN: return .again
    case FOUND_TOO_LARGE:
      throw Damage(unsafe "an event has more than \(region.pointee.event_limit) bytes", isTooLarge: true)
    case FOUND_NO_MEMORY: throw Damage("no memory is left for an event")
    case _: throw Damage("the region is damaged")
    }
  }

  /// The number of copied events.
  package var copiedCount: Int { unsafe Int(events.pointee.count - events.pointee.next) }

  /// A copied event.
  /// - Parameter index: below `copiedCount`.
  package func copied(_ index: Int) -> (id: UInt64, time: UInt64, data: [UInt8]) {
    precondition(index < copiedCount, "event \(index) of \(copiedCount)")
    let event = unsafe copied_event(events, UInt32(index))
    let data = unsafe UnsafeRawBufferPointer(start: event.data, count: Int(event.size))
    return unsafe (event.id, event.time, [UInt8](data))
  }

  // MARK: Waiting

  /// Waits until there is more than `position`, another state than `live`, or a wake-up.
  package func wait(at position: UInt64, milliseconds: CInt) {
    _ = unsafe region_wait(region, position, UInt64(milliseconds) * 1000)
  }

  /// Wakes all readers of the region, of which this one has news.
  package func wakeAll() { _ = unsafe wake_some(wakeWord, .max) }
}
