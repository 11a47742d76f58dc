import CLinux
import Glibc
import Synchronization

@testable import MappedLog

/// Reads a region as `streamd-map.h` says, through its own read-only mapping: another process would do the same.
final class MapReader {
  struct Event: Equatable {
    var id: UInt64
    var time: UInt64
    var data: [UInt8]
  }

  enum Outcome: Equatable {
    case event(Event)
    /// So many events were overwritten.
    case gap(UInt64)
    case nothing(MapState)
    case damage(String)
  }

  private typealias Word = UnsafePointer<Atomic<UInt64>>

  private let memory: UnsafeRawPointer
  private let byteCount: Int
  private let slots, indexOffset, ringOffset, ringBytes: UInt64
  /// The next event's.
  var position: UInt64
  /// What was copied and not validated yet.
  private var copy: [UInt8] = []

  /// - Parameter descriptor: stays the caller's.
  init(_ descriptor: CInt, byteCount: Int, from position: UInt64? = nil) {
    memory = UnsafeRawPointer(mmap(nil, byteCount, PROT_READ, MAP_SHARED, descriptor, 0)!)
    self.byteCount = byteCount
    let memory = memory
    func word(_ offset: Int) -> UInt64 { memory.load(fromByteOffset: offset, as: UInt64.self) }
    precondition(
      word(MapLayout.Offset.magic) == MapLayout.magic && word(MapLayout.Offset.regionBytes) == UInt64(byteCount))
    (slots, indexOffset) = (word(MapLayout.Offset.slots), word(MapLayout.Offset.indexOffset))
    (ringOffset, ringBytes) = (word(MapLayout.Offset.ringOffset), word(MapLayout.Offset.ringBytes))
    precondition(ringOffset + ringBytes <= UInt64(byteCount) && indexOffset + slots * 8 <= ringOffset)
    self.position = 0
    self.position = position ?? first.pointee.load(ordering: .acquiring)
  }

  convenience init(_ region: MapRegion, from position: UInt64? = nil) {
    self.init(region.descriptor, byteCount: region.byteCount, from: position)
  }

  deinit { munmap(UnsafeMutableRawPointer(mutating: memory), byteCount) }

  var generation: UInt64 { memory.load(fromByteOffset: MapLayout.Offset.generation, as: UInt64.self) }
  var epoch: UInt64 { memory.load(fromByteOffset: MapLayout.Offset.epoch, as: UInt64.self) }

  private func atomic<Value>(at offset: Int, _: Value.Type) -> UnsafePointer<Atomic<Value>> {
    (memory + offset).assumingMemoryBound(to: Atomic<Value>.self)
  }

  private var first: Word { atomic(at: MapLayout.Offset.first, UInt64.self) }
  private var end: Word { atomic(at: MapLayout.Offset.end, UInt64.self) }

  var state: MapState {
    MapState(rawValue: atomic(at: MapLayout.Offset.state, UInt32.self).pointee.load(ordering: .acquiring))!
  }

  /// The next event, or why there is none; on_lag is `skip`.
  func next() -> Outcome {
    while true {
      let e = end.pointee.load(ordering: .acquiring)
      guard position != e else {
        let state = state
        if end.pointee.load(ordering: .acquiring) == position { return .nothing(state) }
        continue
      }
      let f = first.pointee.load(ordering: .acquiring)
      if position < f {
        defer { position = f }
        return .gap(f - position)
      }
      guard position < e else { return .damage("\(position) is after the end, \(e)") }
      let fault = copyEvent()
      atomicMemoryFence(ordering: .acquiring)
      guard first.pointee.load(ordering: .relaxed) <= position else { continue }
      if let fault { return .damage(fault) }
      defer { position += 1 }
      return .event(parsedCopy())
    }
  }

  /// - Returns: what is wrong, if the event was not overwritten.
  private func copyEvent() -> String? {
    let slot = Int(indexOffset + 8 * (position & (slots - 1)))
    let o = atomic(at: slot, UInt64.self).pointee.load(ordering: .relaxed)
    guard o % 8 == 0, o <= ringBytes, ringBytes - o >= 24 else { return "offset \(o)" }
    let record = memory + Int(ringOffset + o)
    let size = UInt64(record.load(as: UInt32.self))
    guard size <= ringBytes - o - 24 else { return "size \(size)" }
    copy = Array(UnsafeRawBufferPointer(start: record, count: 24 + Int(size)))
    // The size in the copy may be another one by now; then the event is overwritten.
    copy.withUnsafeMutableBytes { $0.storeBytes(of: UInt32(size), as: UInt32.self) }
    return nil
  }

  private func parsedCopy() -> Event {
    copy.withUnsafeBytes {
      Event(
        id: $0.load(fromByteOffset: MapLayout.RecordOffset.id, as: UInt64.self),
        time: $0.load(fromByteOffset: MapLayout.RecordOffset.time, as: UInt64.self), data: Array($0[24...]))
    }
  }

  /// The events up to the end, and the number of those that were overwritten.
  func readAll() -> (events: [Event], missed: UInt64, damage: String?) {
    var (events, missed) = ([Event](), UInt64(0))
    while true {
      switch next() {
      case .event(let event): events.append(event)
      case .gap(let count): missed += count
      case .nothing: return (events, missed, nil)
      case .damage(let fault): return (events, missed, fault)
      }
    }
  }

  /// Waits for an event, or another state than `live`.
  /// - Returns: false if nothing has come within the time.
  func wait(noting page: WaitingWord?, milliseconds: CInt) -> Bool {
    page?.note()
    let w = atomic(at: MapLayout.Offset.wake, UInt32.self).pointee.load(ordering: .sequentiallyConsistent)
    if page?.value == 0 { return false }  // the wake-up may have come before the sleep
    if end.pointee.load(ordering: .acquiring) != position || state != .live { return true }
    wait_while(memory + MapLayout.Offset.wake, w, milliseconds)
    return end.pointee.load(ordering: .acquiring) != position || state != .live
  }
}

/// A reader's own mapping of a waiting page.
final class WaitingWord {
  private let memory: UnsafeMutableRawPointer
  private static let byteCount = 4096

  init(_ descriptor: CInt) {
    memory = mmap(nil, Self.byteCount, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0)!
  }

  deinit { munmap(memory, Self.byteCount) }

  private var word: UnsafeMutablePointer<Atomic<UInt32>> { memory.assumingMemoryBound(to: Atomic<UInt32>.self) }

  func note() { word.pointee.store(1, ordering: .sequentiallyConsistent) }
  func write(_ value: UInt32) { word.pointee.store(value, ordering: .sequentiallyConsistent) }
  var value: UInt32 { word.pointee.load(ordering: .sequentiallyConsistent) }
}
