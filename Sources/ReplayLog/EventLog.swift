import Glibc
import Reactive

/// An event as it stands in the log.
public struct LoggedEvent: Equatable, Sendable {
  /// Its position: rises by 1 from event to event, for ever.
  public let id: UInt64
  /// When it was taken in, microseconds since the Unix epoch. Never less than the event before it.
  public let time: UInt64
  /// Its bytes, exactly.
  public let data: [UInt8]
}

/// The last events of one stream, encoded, in one mapped region: a ring of bytes and a ring of offsets.
///
/// A position is an event's id. Positions only rise, so a cursor is a number, finding an event is arithmetic, and dropping
/// the oldest changes no cursor. What is held is bounded by count, bytes and age, whichever is reached first.
///
/// The region, version 1 (host byte order but where said otherwise):
///
///     0     header: magic, version, capacities, first and end position, offset of the next record
///     4096  index: for each position modulo the event capacity, its record's offset in the ring (u64)
///     …     ring: records, each in one piece, aligned to 8
///           record: u32 data bytes, u32 zero, u64 id (big endian), u64 time (big endian), data
///
/// Id, time and data stand together because that is what a payload on the wire carries. A record is complete before the
/// header's end position covers it. Not thread-safe: `SharedLog` guards it.
public final class EventLog: ReplayStorage {
  /// What is held, at most.
  public struct Limits: Equatable, Sendable {
    /// Number of events, at least 1.
    public var events: Int
    /// Bytes of the ring; an event takes its data and 24 more, rounded up to 8.
    public var bytes: Int
    /// Nil: no age is too great.
    public var age: Duration?

    /// The limits of a stream whose configuration gives none: 65,536 events, 8 MiB, any age.
    public init(events: Int = 65536, bytes: Int = 8 << 20, age: Duration? = nil) {
      self.events = max(1, events)
      self.bytes = max(4096, bytes) & ~7
      self.age = age
    }

    /// Data bytes of the largest event that fits.
    public var maximumEventBytes: Int { bytes - EventLog.recordHeaderBytes }
  }

  /// Bytes of id and time before the data of `record(at:)`.
  public static let stampBytes = 16
  static let recordHeaderBytes = 24
  private static let headerBytes = 4096
  private static let magic: UInt64 = 0x474F_4C44_4D52_5453  // "STRMDLOG" in a little endian dump
  private static let version: UInt32 = 1

  /// As given.
  public let limits: Limits
  /// The oldest event held; `endPosition` when none is.
  public private(set) var firstPosition: UInt64
  /// The id that the next event gets.
  public private(set) var endPosition: UInt64
  /// Data bytes of the events appended since the start.
  public private(set) var appendedBytes: UInt64 = 0
  /// When the newest event was taken in, whether or not it is still held; microseconds since the Unix epoch. Nil before
  /// the first.
  public var newestTime: UInt64? { lastTime > 0 ? lastTime : nil }
  /// How much of the ring is used, from its start; the rest keeps what it holds until its turn to be dropped comes, and
  /// takes no memory while it was never written. At most `limits.bytes`, which it is at first.
  public var usedBytes: Int {
    didSet { usedBytes = min(usedBytes, limits.bytes) }
  }

  private let region: MappedRegion
  private let clock: () -> UInt64
  private var lastTime: UInt64 = 0
  private var heldPosition = UInt64.max
  private var nextOffset = 0

  /// - Parameters:
  ///   - name: of the stream; for whoever looks at the process's maps.
  ///   - firstID: the first event's id. By default the time in microseconds: higher than any id that an earlier log of
  ///     this stream gave, as long as it averaged under a million events a second.
  ///   - clock: microseconds since the Unix epoch.
  /// - Returns: nil, with `errno` set, when the region cannot be had.
  public init?(
    name: String, limits: Limits, firstID: UInt64? = nil, clock: @escaping () -> UInt64 = EventLog.wallClock
  ) {
    let indexBytes = limits.events * 8
    guard let region = MappedRegion(name: "streamd:" + name, byteCount: Self.headerBytes + indexBytes + limits.bytes)
    else { return nil }
    self.region = region
    self.limits = limits
    usedBytes = limits.bytes
    self.clock = clock
    firstPosition = firstID ?? clock()
    endPosition = firstPosition
    writeHeader()
  }

  /// Appends a batch, dropping the oldest where a limit asks for it. An event over `limits.maximumEventBytes` must have
  /// been turned away before. A log of which something is held takes only `appendWhatFits`.
  public func append(_ batch: [[UInt8]]) {
    let rest = appendWhatFits(batch)
    precondition(rest == nil, "\(rest?.count ?? 0) events would have been dropped from \(heldPosition) on")
  }

  /// Nothing from `position` on is dropped from now on, not for its age either; `.max`: anything may.
  public func hold(from position: UInt64) {
    heldPosition = position
  }

  /// As `append`, up to the first event that has no room beside what is held.
  public func appendWhatFits(_ batch: [[UInt8]]) -> [[UInt8]]? {
    lastTime = max(lastTime, clock())
    var count = 0
    for data in batch {
      let place = place(for: data.count)
      guard place.first <= heldPosition else { break }
      data.withUnsafeBytes { append($0, at: place, time: lastTime) }
      count += 1
    }
    dropExpired()
    writeHeader()
    return count == batch.count ? nil : Array(batch[count...])
  }

  /// Whether as many events are held as there may be.
  public var isFull: Bool { endPosition >= heldPosition && endPosition - heldPosition >= UInt64(limits.events) }

  /// The event's stamp (id and time, big endian, 16 bytes) followed by its data; valid until the next append.
  public func record(at position: UInt64) -> UnsafeRawBufferPointer {
    precondition(
      position >= firstPosition && position < endPosition, "\(position) not in \(firstPosition)..<\(endPosition)")
    let record = ring.baseAddress! + offset(of: position)
    let count = Int(record.load(as: UInt32.self))
    return UnsafeRawBufferPointer(start: record + 8, count: Self.stampBytes + count)
  }

  /// A copy of the event.
  public func element(at position: UInt64) -> LoggedEvent {
    let record = record(at: position)
    return LoggedEvent(id: position, time: time(of: position), data: Array(record.dropFirst(Self.stampBytes)))
  }

  /// The first event taken in at `time` or later; `endPosition` when there is none.
  /// - Complexity: O(log n).
  public func position(since time: UInt64) -> UInt64 {
    var low = firstPosition
    var high = endPosition
    while low < high {
      let middle = low + (high - low) / 2
      if self.time(of: middle) < time { low = middle + 1 } else { high = middle }
    }
    return low
  }

  /// Drops what is older than the age limit. Appending does so too; a quiet stream needs it before it is read.
  public func dropExpired() {
    guard let age = limits.age else { return }
    let oldest =
      Int64(clamping: clock()) - age.components.seconds * 1_000_000 - age.components.attoseconds / 1_000_000_000_000
    let end = min(endPosition, heldPosition)
    while firstPosition < end, Int64(clamping: time(of: firstPosition)) < oldest { firstPosition += 1 }
  }

  /// Microseconds since the Unix epoch.
  public static func wallClock() -> UInt64 {
    var time = timespec()
    clock_gettime(CLOCK_REALTIME, &time)
    return UInt64(time.tv_sec) * 1_000_000 + UInt64(time.tv_nsec) / 1000
  }

  private var index: UnsafeMutableRawPointer { region.bytes.baseAddress! + Self.headerBytes }
  private var ring: UnsafeMutableRawBufferPointer {
    UnsafeMutableRawBufferPointer(rebasing: region.bytes[(Self.headerBytes + limits.events * 8)...])
  }

  private func offset(of position: UInt64) -> Int {
    Int(index.load(fromByteOffset: Int(position % UInt64(limits.events)) * 8, as: UInt64.self))
  }

  private func time(of position: UInt64) -> UInt64 {
    UInt64(bigEndian: ring.load(fromByteOffset: offset(of: position) + 16, as: UInt64.self))
  }

  /// Where the next record goes, and what is the oldest event then.
  private func place(for dataBytes: Int) -> (offset: Int, byteCount: Int, first: UInt64) {
    precondition(dataBytes <= limits.maximumEventBytes, "an event of \(dataBytes) bytes in a ring of \(limits.bytes)")
    let byteCount = (Self.recordHeaderBytes + dataBytes + 7) & ~7
    var (offset, first) = (nextOffset, firstPosition)
    if endPosition - first == UInt64(limits.events) { first += 1 }
    if offset + byteCount > max(usedBytes, byteCount) {
      // No record is split: what stands between here and the end is the oldest, and goes.
      while first < endPosition, self.offset(of: first) >= offset { first += 1 }
      offset = 0
    }
    while first < endPosition, (offset..<offset + byteCount).contains(self.offset(of: first)) { first += 1 }
    return (offset, byteCount, first)
  }

  private func append(
    _ data: UnsafeRawBufferPointer, at place: (offset: Int, byteCount: Int, first: UInt64), time: UInt64
  ) {
    firstPosition = place.first
    let record = ring.baseAddress! + place.offset
    record.storeBytes(of: UInt32(data.count), as: UInt32.self)
    record.storeBytes(of: endPosition.bigEndian, toByteOffset: 8, as: UInt64.self)
    record.storeBytes(of: time.bigEndian, toByteOffset: 16, as: UInt64.self)
    if let base = data.baseAddress { (record + Self.recordHeaderBytes).copyMemory(from: base, byteCount: data.count) }
    index.storeBytes(
      of: UInt64(place.offset), toByteOffset: Int(endPosition % UInt64(limits.events)) * 8, as: UInt64.self)
    nextOffset = place.offset + place.byteCount
    endPosition += 1
    appendedBytes += UInt64(data.count)
  }

  private func writeHeader() {
    let header = region.bytes.baseAddress!
    header.storeBytes(of: Self.magic, as: UInt64.self)
    header.storeBytes(of: Self.version, toByteOffset: 8, as: UInt32.self)
    header.storeBytes(of: UInt64(limits.events), toByteOffset: 16, as: UInt64.self)
    header.storeBytes(of: UInt64(limits.bytes), toByteOffset: 24, as: UInt64.self)
    header.storeBytes(of: firstPosition, toByteOffset: 32, as: UInt64.self)
    header.storeBytes(of: UInt64(nextOffset), toByteOffset: 40, as: UInt64.self)
    header.storeBytes(of: endPosition, toByteOffset: 48, as: UInt64.self)
  }
}
