import Glibc
import StreamRuntime

// How a log's region is created, and what keeps it: this process, a holder of its descriptor, or a file.

extension EventLog {
  /// An empty log in memory.
  ///
  /// - Parameters:
  ///   - name: the stream's name.
  ///   - firstID: the first event's id. By default the time in microseconds: higher than any id of an earlier log of
  ///     this stream, as long as that averaged under a million events a second.
  ///   - followsFleet: whether the first batches have stamps, with any ids from 1 on; `firstID` is then the least id of
  ///     an event without a stamp.
  ///   - clock: microseconds since the Unix epoch.
  /// - Returns: nil, with `errno` set, when the region cannot be allocated.
  public convenience init?(
    name: String, limits: Limits, firstID: UInt64? = nil, followsFleet: Bool = false,
    clock: @escaping () -> UInt64 = EventLoop.wallClock
  ) {
    guard let region = MappedRegion(name: "streamd:" + name, byteCount: LogLayout.byteCount(for: limits)) else {
      return nil
    }
    self.init(
      formatting: region, name: name, limits: limits, hasChecksums: false,
      extent: LogExtent(startingAt: firstID ?? clock()), followsFleet: followsFleet, clock: clock)
  }

  /// - Parameters:
  ///   - region: zeroed, of the size that the limits require.
  ///   - followsFleet: as above, with the first position of `extent`.
  convenience init(
    formatting region: MappedRegion, name: String, limits: Limits, hasChecksums: Bool, extent: LogExtent,
    followsFleet: Bool = false, clock: @escaping () -> UInt64 = EventLoop.wallClock,
    didGrow: (@Sendable () -> Void)? = nil
  ) {
    let firstOwnID = extent.first
    let extent = followsFleet ? LogExtent(startingAt: 1, boot: extent.boot) : extent
    let layout = unsafe LogLayout(
      formatting: region.bytes, name: name, slots: LogLayout.slots(for: limits.events), ringBytes: limits.bytes,
      hasChecksums: hasChecksums, extent: extent, keyed: limits.state)
    let keyed = limits.state.flatMap { KeyedState.empty(layout, $0, begin: extent.end) }
    keyed?.use(upTo: extent.end)
    if followsFleet {
      var note = layout.fleetNote
      note?.write([], end: extent.end)
    }
    self.init(
      layout, extent, keyed, limits: limits, owner: region, firstOwnID: firstOwnID, clock: clock, didGrow: didGrow)
  }

  /// A log in memory with the newest events of another that fit.
  /// - Returns: nil, with `errno` set, when the region cannot be allocated.
  public convenience init?(name: String, limits: Limits, takingOver other: EventLog) {
    self.init(name: name, limits: limits)
    takeOver(other)
  }

  /// Writes a log in a file to the disk and marks it as closed. No append may follow; blocks until the disk has
  /// finished.
  public func close() {
    guard let region = owner as? MappedRegion, region.sync() == 0 else { return }
    noteClosed()
    _ = region.sync()
  }

  /// Marks a log in a file as superseded: another log continues its ids, and the file stays. A later process that reads
  /// it continues after a gap. No append may follow; blocks until the disk has finished.
  public func leaveBehind() {
    guard let region = owner as? MappedRegion else { return }
    layout.leaveBehind()
    _ = region.sync()
  }

  /// Whether it is the log in a region.
  public func isStored(in region: MappedRegion) -> Bool { owner === region }

  /// The descriptor of the log's own memory or file; owned by the log. -1 in a shared region.
  public var descriptor: CInt { (owner as? MappedRegion)?.descriptor ?? -1 }
}

extension LogLayout {
  /// Records that ids after its last one may be assigned elsewhere: the log counts as truncated from now on.
  fileprivate func leaveBehind() {
    guard var extent = try? extent() else { return }
    (extent.boot, extent.isClosed) = (.unknown, false)
    write(extent)
  }
}

/// A log that an earlier process left, completely checked.
public struct LogRemains {
  /// The log's stream.
  public let stream: String
  /// Whether the log was truncated by a power failure or by damage: events after it may be lost.
  public let isSalvaged: Bool
  let region: MappedRegion
  let layout: LogLayout
  /// Keeps the region mapped, or the place in use.
  private let owner: AnyObject
  private let extent: LogExtent
  private let firstOwnID: UInt64

  /// An intact log in memory.
  ///
  /// - Parameters:
  ///   - descriptor: owned by the value from here on, also if the initializer throws.
  ///   - progress: called repeatedly during the check.
  /// - Throws: `LogRefusal`.
  public init(memory descriptor: CInt, progress: () -> Void = {}) throws(LogRefusal) {
    guard let region = MappedRegion(adopting: descriptor) else { throw LogRefusal("it is not the memory of a log") }
    let layout = try unsafe LogLayout(reading: region.bytes)
    (stream, isSalvaged, self.region, self.layout, firstOwnID) = (layout.name, false, region, layout, 0)
    owner = region
    extent = try layout.intactExtent(progress: progress)
  }

  /// A log in a shared region.
  init(in place: LogPlace) throws(LogRefusal) {
    let layout = try unsafe LogLayout(readingCompact: place.bytes)
    (stream, isSalvaged, region, self.layout, firstOwnID) = (layout.name, false, place.region.memory, layout, 0)
    owner = place
    extent = try layout.intactExtent()
  }

  /// It rises with each move of a log in a shared region.
  var generation: UInt64 { layout.generation }

  /// Whether the log is in a shared region; nil: in memory of its own.
  public func isStored(in region: SharedRegion?) -> Bool { (owner as? LogPlace)?.region === region }

  /// As `EventLog.discard()`.
  public func discard() { (owner as? LogPlace)?.discard() }

  /// A log in a file.
  ///
  /// - Parameters:
  ///   - boot: the present boot; nil if unknown.
  ///   - time: microseconds since the Unix epoch.
  ///   - progress: called repeatedly during the check.
  init(
    file region: MappedRegion, boot: BootID?, time: UInt64, progress: () -> Void = {}
  ) throws(LogRefusal) {
    let layout = try unsafe LogLayout(reading: region.bytes)
    guard layout.hasChecksums else { throw LogRefusal("its events have no checksums") }
    (stream, self.region, self.layout, firstOwnID) = (layout.name, region, layout, time)
    owner = region
    let extent = try layout.extent()
    if extent.isClosed || extent.boot == boot, let intact = try? layout.intactExtent(progress: progress) {
      (self.extent, isSalvaged) = (intact, false)
    } else {
      (self.extent, isSalvaged) = (layout.salvagedExtent(extent, at: time, progress: progress), true)
    }
  }

  /// The next event's id.
  public var endPosition: UInt64 { extent.end }

  /// The end of the stored events: below `endPosition` where ids continue after a gap.
  public var eventsEnd: UInt64 { extent.salvagedEnd ?? extent.end }

  /// The number of stored events.
  public var count: UInt64 { extent.count }

  /// Whether its events have the ids of a fleet.
  public var followsFleet: Bool { layout.fleetNote?.exists ?? false }

  /// Whether a log of those limits can continue in the same region.
  public func fits(_ limits: EventLog.Limits) -> Bool { layout.fits(limits) }

  /// The log, continued in the same region.
  ///
  /// - Precondition: the limits fit.
  public func log(limits: EventLog.Limits, progress: () -> Void = {}) -> EventLog {
    var extent = extent
    let keyed = KeyedState.restored(layout, &extent, limits.state, progress: progress)
    return EventLog(layout, extent, keyed, limits: limits, owner: owner)
  }

  /// The log, continued in the same file; the remains cannot be used afterwards.
  func log(
    limits: EventLog.Limits, boot: BootID?, progress: () -> Void = {}, didGrow: @escaping @Sendable () -> Void
  ) throws(LogRefusal) -> EventLog {
    var extent = extent
    // This precedes writing the extent: until the extent is written, the next process repeats this.
    let keyed = KeyedState.restored(layout, &extent, limits.state, progress: progress)
    if extent.isClosed || isSalvaged || extent.boot != boot {
      extent.boot = boot ?? .unknown
      extent.isClosed = false
      // Restored before the extent is written: the new extent does not record how far events are complete.
      var note = layout.checkpointNote
      _ = note?.restore(upTo: extent.salvagedEnd ?? extent.end)
      _ = layout.restoredFleetNote(extent)
      layout.write(extent)
      // The sync precedes the first assigned id: otherwise the file could state that no id was assigned.
      let code = region.sync()
      guard code == 0 else {
        throw LogRefusal(unsafe "it cannot be written: \(String(cString: strerror(code)))", .leave)
      }
    }
    if keyed?.durable?.end == 0 { try noteFirstMark(keyed) }
    region.marks = keyed?.marks
    return EventLog(layout, extent, keyed, limits: limits, owner: region, firstOwnID: firstOwnID, didGrow: didGrow)
  }

  /// Until the disk has a mark, a power failure loses the state.
  private func noteFirstMark(_ keyed: KeyedState?) throws(LogRefusal) {
    var code = region.sync()
    keyed?.noteFirstMark(layout)
    if code == 0 { code = region.sync() }
    guard code == 0 else {
      throw LogRefusal(unsafe "it cannot be written: \(String(cString: strerror(code)))", .leave)
    }
  }

  /// Whether the log has stored an event that another log of the stream, which is not known to be a continuation of it, lacks.
  /// False for the logs of a fleet, which repeats lost events.
  public func hasEvents(lackedBy other: LogRemains) -> Bool {
    guard count > 0, !followsFleet else { return false }
    let newest = extent.salvagedEnd ?? (extent.holeEnd == extent.end ? extent.holeStart : extent.end)
    return !other.hasAssigned(newest - 1, at: layout.time(at: layout.offset(of: newest - 1)))
  }

  /// Whether the log has assigned an id; of an event that it has, also the time is compared.
  private func hasAssigned(_ id: UInt64, at time: UInt64) -> Bool {
    guard id >= extent.historyStart, id < extent.end, id < extent.holeStart || id >= extent.holeEnd else {
      return false
    }
    return id < extent.first || layout.time(at: layout.offset(of: id)) == time
  }

  /// As `EventLog.leaveBehind()`, for remains in a file.
  func leaveBehind() {
    layout.leaveBehind()
    _ = region.sync()
  }

  /// A read-only log, from which another takes over; must not be appended to.
  public func log() -> EventLog {
    EventLog(
      layout, extent, KeyedState.read(layout, extent),
      limits: EventLog.Limits(events: layout.slots, bytes: layout.ringBytes), owner: owner, firstOwnID: firstOwnID)
  }
}
