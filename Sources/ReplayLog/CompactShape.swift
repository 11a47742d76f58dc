/// The sizes of the parts of a log in a shared region, which grow with its content up to its limits.
struct CompactShape: Equatable {
  /// A power of two.
  var slots: Int
  var ringBytes: Int
  /// Bytes of each of the two slots of the checkpoint; 0: there are none.
  var noteBytes: Int

  init(slots: Int, ringBytes: Int, noteBytes: Int) {
    (self.slots, self.ringBytes, self.noteBytes) = (slots, ringBytes, noteBytes)
  }

  private static let leastSlots = 4
  /// Room for an event of 8 bytes.
  static let leastRingBytes = 32
  static let leastNoteBytes = 64

  static func headerBytes(nameBytes: Int) -> Int { (289 + nameBytes + 7) & ~7 }

  func byteCount(nameBytes: Int) -> Int {
    Self.headerBytes(nameBytes: nameBytes) + slots * 8 + ringBytes + 2 * noteBytes
  }

  /// What a log needs.
  struct Need {
    /// Events, at least, and a power of two of slots, at least.
    var events = 0
    var slots = 1
    /// Bytes of records.
    var bytes = 0
    /// Bytes of each slot of the checkpoint.
    var noteBytes = 0
  }

  /// The largest shape in a place; nil if it is too small.
  ///
  /// The room is divided so that index and ring are full at about the same time, with events of the same size as those
  /// that there are.
  init?(in placeBytes: Int, nameBytes: Int, for need: Need, limits: EventLog.Limits) {
    let room = placeBytes - Self.headerBytes(nameBytes: nameBytes) - 2 * need.noteBytes
    let most = LogLayout.slots(for: limits.events)
    noteBytes = need.noteBytes
    if room >= most * 8 + limits.bytes {
      (slots, ringBytes) = (most, limits.bytes)
    } else {
      let recordBytes =
        need.events == 0 ? LogLayout.recordHeaderBytes + 8 : max(LogLayout.recordHeaderBytes, need.bytes / need.events)
      let count = max(need.events, room / (recordBytes + 8))
      slots = min(most, max(need.slots, Self.leastSlots, LogLayout.slots(for: max(1, count))))
      if slots * 8 > room / 2, slots / 2 >= max(need.events, need.slots, Self.leastSlots) { slots /= 2 }
      ringBytes = min(limits.bytes, (room - slots * 8) & ~7)
    }
    guard slots >= min(need.events, most), ringBytes >= max(need.bytes, Self.leastRingBytes) else { return nil }
  }
}

extension EventLog.Limits {
  /// Whether the log can be in a shared region: its largest shape fits a place, with a large checkpoint.
  public var isSmall: Bool {
    let shape = CompactShape(
      slots: LogLayout.slots(for: events), ringBytes: bytes, noteBytes: LogNote.largestSlotBytes)
    return state == nil && shape.byteCount(nameBytes: 255) <= 1 << SharedRegion.placeBits.upperBound
  }
}
