// Appends to a log until it is killed; stored events are acknowledged on standard output, as the id
// of the next one, 8 bytes in host order. For the tests of kills.
//
// Each batch has a checkpoint: the id of its last event, in digits; in one of three batches 5,000 of them.
//
//     logwriter memory PATH    a memfd of another process, such as /proc/PID/fd/7
//     logwriter shared PATH    a shared region of another process, in which the log grows anew, and others come and go
//     logwriter disk FOLDER    the log of the stream "killed" in there
//
// With the third argument "stamps" the events have stamps, some of them after a hole, and the checkpoint is the position,
// too; with "keys" they have keys.

import Glibc
import Events
import ReplayLog

/// The data of the event with an id; the tests know it, too.
func content(of id: UInt64) -> [UInt8] {
  var state = id &* 0x9E37_79B9_7F4A_7C15 | 1
  func next() -> UInt64 {
    state ^= state << 13
    state ^= state >> 7
    state ^= state << 17
    return state
  }
  let count = Int(next() % (next() % 16 == 0 ? 3000 : 200))
  return [UInt8](repeating: UInt8(truncatingIfNeeded: next()), count: count)
}

let hasKeys = CommandLine.arguments.count > 3 && CommandLine.arguments[3] == "keys"
let limits = EventLog.Limits(
  events: 300, bytes: 32 << 10, state: hasKeys ? KeyedState.Settings(keys: 40, bytes: 256 << 10) : nil)

/// The key of the event with an id; the tests know it, too.
func key(of id: UInt64) -> EventKey? { EventKey([1, UInt8(id &* 7 % 40)], isTombstone: id % 5 == 0) }

/// The region in which other logs come and go.
nonisolated(unsafe) var shared: SharedRegion?
var others: [EventLog] = []

func open(_ kind: String, _ path: String) throws -> EventLog {
  if kind == "memory" {
    return try LogRemains(memory: Glibc.open(path, O_RDWR | O_CLOEXEC)).log(limits: limits)
  }
  if kind == "shared" {
    let (region, logs) = try SharedRegion.adopted(
      Glibc.open(path, O_RDWR | O_CLOEXEC), damaged: { fatalError("\($0)") })
    for log in logs where log.stream != "killed" { log.discard() }
    let former = logs.first { $0.stream == "killed" }
    let log = former.map { EventLog(in: region, name: "killed", limits: limits, takingOver: $0.log()) }
    former?.discard()
    shared = region
    if let log = log ?? EventLog(in: region, name: "killed", limits: limits) { return log }
  }
  let folder = LogFolder(path: path, boot: BootID.current()) { _, reason, _ in fatalError(reason) }
  return try folder.remains(of: "killed").map { try folder.log(of: $0, limits: limits) }
    ?? folder.makeLog(of: "killed", limits: limits, takingOver: nil)
}

let log = try open(CommandLine.arguments[1], CommandLine.arguments[2])
let hasStamps = CommandLine.arguments.count > 3 && !hasKeys
var batch = 1
while true {
  let first = log.endPosition + (hasStamps && log.endPosition % 11 == 0 ? log.endPosition % 7 : 0)
  var events = EventBatch((0..<UInt64(batch)).map { content(of: first + $0) })
  let last = Array(String(first + UInt64(batch) - 1).utf8)
  let zeros = batch % 3 == 0 ? 5000 - last.count : 0
  events.checkpoint = Checkpoint(Array(repeating: UInt8(ascii: "0"), count: zeros) + last)
  if hasKeys {
    var keys = EventKeys()
    for index in 0..<UInt64(batch) { keys.append(key(of: first + index)) }
    events.setKeys(keys)
  }
  if hasStamps {
    let times = (0..<UInt64(batch)).map { first + $0 }
    let stamps = EventStamps(firstID: first, times: times, position: last)
    guard let stamps, events.setStamps(stamps) else { break }
  }
  log.append(events)
  if let shared {
    if others.count < 5, let other = EventLog(in: shared, name: "\(others.count)", limits: limits) {
      others.append(other)
    }
    let other = others[batch % others.count]
    other.append(EventBatch(repeating: content(of: first), count: batch))
    if other.appendedEvents > 40 {
      other.discard()
      others.removeAll { $0 === other }
    }
  }
  batch = batch % 7 + 1
  var end = log.endPosition
  guard write(STDOUT_FILENO, &end, 8) == 8 else { break }
}
