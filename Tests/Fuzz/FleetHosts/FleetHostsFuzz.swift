// A host with two streams receives what an engine and other hosts send. An input is a sequence of messages: one byte for
// the kind, two for the number of bytes, and these. Records, heads and heartbeats are as in the input, or with bit 7 of
// the kind valid ones.

import Events
import TaggedFields

@testable import Fleet

private struct Input {
  var bytes: UnsafeRawBufferPointer.SubSequence

  mutating func byte() -> UInt8 { bytes.popFirst() ?? 0 }

  mutating func take() -> [UInt8] {
    let count = Int(byte()) | Int(byte() & 3) << 8
    defer { bytes = bytes.dropFirst(count) }
    return Array(bytes.prefix(count))
  }

  /// Small, or with all bits.
  mutating func number() -> UInt64 {
    let first = byte()
    guard first >= 0xf0 else { return UInt64(first) }
    return (0..<8).reduce(UInt64(first)) { number, _ in number << 8 | UInt64(byte()) }
  }
}

/// Reads one input; a broken invariant traps.
func fuzzFleetHosts(_ input: UnsafeRawBufferPointer) {
  var input = Input(bytes: input[...])
  let (host, other) = (HostID([UInt8](repeating: 1, count: 16))!, HostID([UInt8](repeating: 2, count: 16))!)
  var now: UInt64 = 1_000_000_000
  let machine = FleetMachine(host: host, hostName: "a", shardCount: 1, renewalRecordCount: 2) { values, _ in values }
  var ends: [String: UInt64] = [:]
  var actions = machine.setStreams(
    [
      .init(name: "a", definition: 1, kind: .poll, canLead: true, end: 5),
      .init(name: "b", definition: 1, kind: .publish, canLead: true, end: 0),
    ], at: now)
  actions += machine.connected(at: now)
  var (sequence, former): (UInt64, UInt32) = (0, 0)
  while !input.bytes.isEmpty {
    let kind = input.byte()
    now += UInt64(kind >> 4 & 7) << 29
    var appended: (bytes: [UInt8], attempt: UInt64)?
    for case .ask(.append(let bytes, _, let after, let attempt), _) in actions where after == sequence {
      appended = (bytes, attempt)
    }
    actions = []
    switch kind & 15 {
    case 0: actions = machine.tick(at: now, wallTime: input.number())
    case 1:  // what the host has appended is stored
      guard let appended else { break }
      (sequence, former) = (sequence &+ 1, ShardEntry.checksum(of: appended.bytes))
      actions = machine.answer(.append(attempt: appended.attempt, .stored), shard: 0, at: now, wallTime: 0)
    case 2:  // a valid entry of another host
      let isClaim = input.byte() & 1 == 0
      let content: ShardEntry.Content =
        isClaim
        ? .claim(.init(host: other, heads: heads(&input, kind)))
        : .part(.init(term: input.number(), index: 0, isLast: true, bytes: record(&input, kind)))
      let bytes = ShardEntry(epoch: input.number(), former: former, content: content).bytes
      (sequence, former) = (sequence &+ 1, ShardEntry.checksum(of: bytes))
      actions = machine.received(bytes, shard: 0, at: sequence, now: now)
    case 3: actions = machine.answer(.findClaim(FleetClaim.none(last: sequence)), shard: 0, at: now, wallTime: 0)
    case 4:
      actions = machine.answer(
        .gather([input.take()], FleetNewest(last: sequence, entry: nil)), shard: 0, at: now, wallTime: input.number())
    case 5: actions = machine.heard(input.take(), at: now)
    case 6: actions = machine.receive(input.take(), at: now, wallTime: input.number()).actions
    case 7:
      let message = FleetMessage(
        kind: .values, sender: other.bytes, stream: "b", number: input.number(), index: UInt32(input.byte()),
        isLast: input.byte() & 1 == 0, bytes: record(&input, kind))
      actions = machine.receive(RecordFields.bytes(of: message), at: now, wallTime: input.number()).actions
    case 8: actions = machine.wants("a", input.byte() & 1 == 0, at: now)
    case 9: actions = machine.learned("a", isWanted: input.byte() & 1 == 0, at: now)
    case 10:
      actions = machine.fetched([input.take()], of: "a", schedule(&input), at: now, wallTime: input.number())
      _ = machine.schedule(of: "a", at: input.number(), wallTime: input.number())
    case 11: actions = machine.publish([input.take()], to: "b", at: now, wallTime: input.number())
    case 12: actions = machine.answer(.read(after: sequence, nil), shard: 0, at: now, wallTime: 0)
    case 13: actions = machine.connected(at: now)
    case 14: former = UInt32(truncatingIfNeeded: input.number())
    default: sequence = input.number()
    }
    for case .store(let events, let stream, let firstID, _, _) in actions {
      precondition(firstID < 1 << 61 && events.count <= 1 << 61 - firstID, "an id of \(stream) is out of range")
      let end = firstID + UInt64(events.count)
      let isConflict = actions.contains(.report(.conflict(stream)))
      precondition(events.isEmpty || isConflict || end > ends[stream] ?? 0, "events of \(stream) are stored again")
      ends[stream] = max(end, ends[stream] ?? 0)
    }
  }
  _ = machine.leave(at: now)
}

private func record(_ input: inout Input, _ kind: UInt8) -> [UInt8] {
  guard kind & 0x80 != 0 else { return input.take() }
  return RecordFields.bytes(
    of: FleetRecord(
      stream: input.byte() & 1 == 0 ? "a" : "b", definition: 1, firstID: input.number(), time: input.number(),
      events: [input.take()], sender: input.byte() & 1 == 0 ? [] : [UInt8](repeating: 2, count: 16),
      number: input.number(), schedule: schedule(&input)))
}

private func schedule(_ input: inout Input) -> FleetSchedule {
  input.byte() & 3 == 0 ? FleetSchedule(slot: input.number(), rest: input.number()) : FleetSchedule()
}

private func heads(_ input: inout Input, _ kind: UInt8) -> [UInt8] {
  guard kind & 0x80 != 0 else { return input.take() }
  var head = StreamHead(stream: "a", definition: 1, nextID: input.number(), time: input.number())
  (head.schedule, head.scheduledAt) = (schedule(&input), input.number())
  return ShardHeads([head]).bytes()
}
