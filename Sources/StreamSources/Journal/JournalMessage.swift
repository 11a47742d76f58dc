import Events

/// What the process that reads a journal tells the daemon. The daemon sends it single bytes, of which the last one says
/// whether a batch is wanted.
enum JournalMessage: Equatable {
  /// The journal is open, and the position found.
  case opened
  /// An event of the next batch.
  case event([UInt8])
  /// The batch, of any number of events, is complete. The cursor is that of the last entry that was examined.
  case end(cursor: [UInt8])
  /// Entries may have been removed before they were read.
  case lost(EventLoss)
  /// An entry was left out, for this reason.
  case dropped(String)
  /// A limitation that the operator should know, as a sentence.
  case limited(String)
  /// The process ends for this reason.
  case failed(String)

  /// Maximum bytes of a cursor; those of systemd have about 160.
  static let cursorLimit = 1 << 10

  static let wants: UInt8 = 1
  static let wantsNothing: UInt8 = 0

  /// The message without its length.
  var encoded: [UInt8] {
    switch self {
    case .opened: [0]
    case .event(let bytes): [1] + bytes
    case .end(let cursor): [2] + cursor
    case .lost(let loss): [3, loss == .possible ? 1 : 0]
    case .dropped(let reason): [4] + reason.utf8
    case .limited(let sentence): [5] + sentence.utf8
    case .failed(let reason): [6] + reason.utf8
    }
  }

  /// - Returns: nil if the bytes are no message.
  init?(_ bytes: ArraySlice<UInt8>) {
    var rest = bytes
    guard let kind = rest.popFirst() else { return nil }
    let text = { String(decoding: rest, as: UTF8.self) }
    switch kind {
    case 0: self = .opened
    case 1: self = .event([UInt8](rest))
    case 2:
      guard rest.count <= Self.cursorLimit else { return nil }
      self = .end(cursor: [UInt8](rest))
    case 3: self = .lost(rest.first == 1 ? .possible : .unknown)
    case 4: self = .dropped(text())
    case 5: self = .limited(text())
    case 6: self = .failed(text())
    default: return nil
    }
  }
}

/// What the process that reads a journal has to know.
struct JournalSetup: Equatable {
  /// nil: this machine's journal.
  var directory: String?
  /// The last entry that was read; empty: none.
  var cursor: [UInt8] = []
  /// Where to begin without a cursor, in microseconds since the Unix epoch.
  var start: UInt64 = 0
  var eventLimit = 8 << 20
  var batchEvents = 1024
  var batchBytes = 64 << 10
  var matches: [String] = []

  init() {}

  var values: [String] {
    [
      directory ?? "", String(decoding: cursor, as: UTF8.self), "\(start)", "\(eventLimit)", "\(batchEvents)",
      "\(batchBytes)",
    ]
      + matches
  }

  init?(values: [String]) {
    guard values.count >= 6, let start = UInt64(values[2]), let eventLimit = Int(values[3]),
      let batchEvents = Int(values[4]), let batchBytes = Int(values[5])
    else { return nil }
    directory = values[0].isEmpty ? nil : values[0]
    cursor = Array(values[1].utf8)
    (self.start, self.eventLimit, self.batchEvents, self.batchBytes) = (start, eventLimit, batchEvents, batchBytes)
    matches = Array(values.dropFirst(6))
  }
}
