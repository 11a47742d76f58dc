// An input is a sequence of inputs of the machine: one byte for the kind, one for the number of bytes, and these. Entries
// are as in the input, or with bit 7 of the kind valid ones, made of the bytes.

import TaggedFields

@testable import Fleet

private struct Input {
  var bytes: UnsafeRawBufferPointer.SubSequence

  mutating func byte() -> UInt8 { bytes.popFirst() ?? 0 }

  mutating func take(_ count: Int) -> [UInt8] {
    defer { bytes = bytes.dropFirst(count) }
    return Array(bytes.prefix(count))
  }

  /// Small, or with all bits.
  mutating func number() -> UInt64 {
    let first = byte()
    return first < 0xf0 ? UInt64(first) : take(8).reduce(UInt64(first)) { $0 << 8 | UInt64($1) }
  }
}

/// Reads one input; a broken invariant traps.
func fuzzFleet(_ input: UnsafeRawBufferPointer) {
  var input = Input(bytes: input[...])
  let host = HostID([UInt8](repeating: 1, count: 16))!
  var now: UInt64 = 1_000_000_000
  var machine = ShardMachine(
    host: host, weight: Double(input.byte()) / 255, partByteCount: 16, recordByteCount: 256, now: now)
  let resumed = input.byte()
  var actions = machine.start(
    resumingAt: resumed & 1 == 0 ? nil : ShardPosition(epoch: 1, sequence: UInt64(resumed), checksum: 0, term: 1))
  var former: UInt32 = 0
  while !input.bytes.isEmpty {
    let kind = input.byte()
    now += UInt64(input.byte()) << 25
    // Appended entries come back, so that the machine also leads.
    var last: (bytes: [UInt8], after: UInt64, attempt: UInt64)?
    for case .ask(.append(let bytes, _, let after, let attempt)) in actions { last = (bytes, after, attempt) }
    switch kind & 15 {
    case 0: actions = machine.tick(at: now)
    case 1: actions = machine.receive(entry(&input, kind, former), at: input.number(), now: now)
    case 2:
      let after = input.number()
      let entries = (0..<Int(input.byte() & 7)).map { _ in (input.number(), entry(&input, kind, former)) }
      actions = machine.read(after: after, entries, first: input.number(), last: input.number(), at: now)
    case 3: actions = machine.foundClaim(entry(&input, kind | 0x80, former), at: input.number(), now: now)
    case 4: actions = machine.foundNoClaim(last: input.number(), at: now)
    case 5:
      actions = machine.gathered(
        .init(
          epoch: input.number(), sequence: input.number(), heads: [], newHeads: [1], last: input.number(),
          lastEntry: nil),
        at: now)
    case 6:
      actions = machine.hear(
        .init(
          epoch: input.number(), term: input.number(), last: input.number(), isLast: kind & 0x40 != 0),
        at: now)
    case 7: actions = machine.appended(attempt: input.number(), .refused(last: input.number()), at: now)
    case 8: actions = machine.appended(attempt: input.number(), .unknown, at: now)
    case 9: actions = machine.readFailed(at: now)
    case 10: actions = machine.reconnected()
    case 11: actions = machine.submit(input.take(Int(input.byte())), at: now)
    case 12: actions = last.map { machine.appended(attempt: $0.attempt, .stored, at: now) } ?? []
    case 13: actions = last.map { machine.receive($0.bytes, at: $0.after + 1, now: now) } ?? []
    case 14: former = UInt32(truncatingIfNeeded: input.number())
    case 15 where input.byte() & 3 != 0: actions = machine.renew(heads: input.take(4), at: now)
    default: actions = machine.leave(at: now)
    }
    for case .ask(.append(let bytes, _, _, _)) in actions {
      precondition((try? ShardEntry(bytes))?.bytes == bytes, "an entry is not read as it was written")
    }
  }
}

private func entry(_ input: inout Input, _ kind: UInt8, _ former: UInt32) -> [UInt8] {
  guard kind & 0x80 != 0 else { return input.take(Int(input.byte())) }
  let choice = input.byte()
  let content: ShardEntry.Content =
    choice & 1 == 0
    ? .claim(.init(host: HostID([UInt8](repeating: choice >> 6, count: 16))!, heads: input.take(Int(choice >> 1 & 15))))
    : .part(
      .init(
        term: max(1, input.number()), index: UInt32(choice >> 1 & 3), isLast: choice & 8 != 0,
        bytes: input.take(Int(choice >> 4))))
  return ShardEntry(epoch: input.number(), former: former, content: content).bytes
}
