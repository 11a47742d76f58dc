import Glibc

// Where a log's region comes from and who keeps it: nobody, somebody who holds its descriptor, or a file.

extension EventLog {
  /// A fresh log in memory.
  ///
  /// - Parameters:
  ///   - name: of the stream.
  ///   - firstID: the first event's id. By default the time in microseconds: higher than any id that an earlier log of
  ///     this stream gave, as long as it averaged under a million events a second.
  ///   - clock: microseconds since the Unix epoch.
  /// - Returns: nil, with `errno` set, when the region cannot be had.
  public convenience init?(
    name: String, limits: Limits, firstID: UInt64? = nil, clock: @escaping () -> UInt64 = EventLog.wallClock
  ) {
    guard let region = MappedRegion(name: "streamd:" + name, byteCount: LogLayout.byteCount(for: limits)) else {
      return nil
    }
    self.init(
      formatting: region, name: name, limits: limits, hasChecksums: false,
      state: LogState(startingAt: firstID ?? clock()), clock: clock)
  }

  /// - Parameter region: zeroes, as many as the limits need.
  convenience init(
    formatting region: MappedRegion, name: String, limits: Limits, hasChecksums: Bool, state: LogState,
    clock: @escaping () -> UInt64 = EventLog.wallClock, didGrow: (@Sendable () -> Void)? = nil
  ) {
    let layout = LogLayout(
      formatting: region.bytes, name: name, slots: LogLayout.slots(for: limits.events), ringBytes: limits.bytes,
      hasChecksums: hasChecksums, state: state)
    self.init(layout, state, limits: limits, owner: region, clock: clock, didGrow: didGrow)
  }

  /// A log in memory that begins with what fits of another.
  /// - Returns: as above.
  public convenience init?(name: String, limits: Limits, takingOver other: EventLog) {
    self.init(name: name, limits: limits)
    takeOver(other)
  }

  /// Brings a log in a file to the disk for good. Nothing may be appended any more; blocks for as long as the disk takes.
  public func close() {
    guard let region = owner as? MappedRegion, region.sync() == 0 else { return }
    noteClosed()
    _ = region.sync()
  }

  /// Of a log in a file: another goes on with its ids, and the file stays. The next process that reads it gives ids behind
  /// a gap. Nothing may be appended any more; blocks for as long as the disk takes.
  public func leaveBehind() {
    guard let region = owner as? MappedRegion else { return }
    layout.leaveBehind()
    _ = region.sync()
  }

  /// Of the memory or the file that the log is in; stays the log's.
  public var descriptor: CInt { (owner as? MappedRegion)?.descriptor ?? -1 }
}

extension LogLayout {
  static func byteCount(for limits: EventLog.Limits) -> Int {
    byteCount(slots: slots(for: limits.events), ringBytes: limits.bytes)
  }

  /// Notes that ids after its last one may be given elsewhere: it counts as cut off from now on.
  fileprivate func leaveBehind() {
    guard var state = try? state() else { return }
    (state.boot, state.isClosed) = (.unknown, false)
    write(state)
  }
}

/// What an earlier process has left of a log. All of it was checked.
public struct LogRemains {
  /// Whose log it is.
  public let stream: String
  /// What is left is what a loss of power has spared, or damage: events after it may be lost.
  public let isSalvaged: Bool
  let region: MappedRegion
  private let layout: LogLayout
  private let state: LogState

  /// Of a log in memory: an intact one.
  ///
  /// - Parameters:
  ///   - descriptor: owned by the remains from here on, also when there will be none.
  ///   - progress: called again and again while it is checked.
  /// - Throws: `LogRefusal`.
  public init(memory descriptor: CInt, progress: () -> Void = {}) throws(LogRefusal) {
    guard let region = MappedRegion(adopting: descriptor) else { throw LogRefusal("it is not the memory of a log") }
    let layout = try LogLayout(reading: region.bytes)
    (stream, isSalvaged, self.region, self.layout) = (layout.name, false, region, layout)
    state = try layout.intactState(progress: progress)
  }

  /// Of a log in a file.
  ///
  /// - Parameters:
  ///   - boot: the machine's present one; nil if that cannot be told.
  ///   - time: microseconds since the Unix epoch.
  ///   - progress: called again and again while it is checked.
  init(
    file region: MappedRegion, boot: BootID?, time: UInt64, progress: () -> Void = {}
  ) throws(LogRefusal) {
    let layout = try LogLayout(reading: region.bytes)
    guard layout.hasChecksums else { throw LogRefusal("its events have no checksums") }
    (stream, self.region, self.layout) = (layout.name, region, layout)
    let state = try layout.state()
    if state.isClosed || state.boot == boot, let intact = try? layout.intactState(progress: progress) {
      (self.state, isSalvaged) = (intact, false)
    } else {
      (self.state, isSalvaged) = (layout.salvagedState(state, at: time, progress: progress), true)
    }
  }

  /// The id that the next event would get.
  public var endPosition: UInt64 { state.end }

  /// Where the events end that are left: below `endPosition` where ids go on after a gap.
  public var eventsEnd: UInt64 { state.salvagedEnd ?? state.end }

  /// Events that are left.
  public var count: UInt64 { state.count }

  /// Whether a log of those limits can go on in the same place.
  public func fits(_ limits: EventLog.Limits) -> Bool {
    layout.isCurrent && layout.slots == LogLayout.slots(for: limits.events) && layout.ringBytes == limits.bytes
  }

  /// The log, going on in the same place.
  ///
  /// - Precondition: the limits fit.
  public func log(limits: EventLog.Limits) -> EventLog {
    EventLog(layout, state, limits: limits, owner: region)
  }

  /// As above, in a file; there is no way back to the remains.
  func log(
    limits: EventLog.Limits, boot: BootID?, didGrow: @escaping @Sendable () -> Void
  ) throws(LogRefusal) -> EventLog {
    var state = state
    if state.isClosed || isSalvaged || state.boot != boot {
      state.boot = boot ?? .unknown
      state.isClosed = false
      // Before the state, which forgets how far events are complete.
      var note = layout.checkpointNote
      _ = note?.restore(upTo: state.salvagedEnd ?? state.end)
      layout.write(state)
      // Before an id is given: the disk would say otherwise that there was none.
      let code = region.sync()
      guard code == 0 else {
        throw LogRefusal("it cannot be written: \(String(cString: strerror(code)))", .leave)
      }
    }
    return EventLog(layout, state, limits: limits, owner: region, didGrow: didGrow)
  }

  /// Of remains in a file: as `EventLog.leaveBehind()`.
  public func leaveBehind() {
    layout.leaveBehind()
    _ = region.sync()
  }

  /// The log for somebody who takes it over; nothing may be appended to it.
  public func log() -> EventLog {
    EventLog(
      layout, state, limits: EventLog.Limits(events: layout.slots, bytes: layout.ringBytes), owner: region)
  }
}
