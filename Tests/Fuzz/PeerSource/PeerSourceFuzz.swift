// An input is one byte of choices, one that seeds the splits, and then what another streamd sends.

import Events
import StreamProtocol

// Tests/Fuzz/run compiles the sources under test into the module of this file.
#if canImport(StreamSources)
  @testable import StreamSources
#endif

/// Reads one input; a broken invariant traps.
func fuzzPeerSource(_ input: UnsafeRawBufferPointer) {
  guard input.count >= 2 else { return }
  let (choice, bytes) = (input[0], [UInt8](input[2...]))
  let whole = PeerContent(bytes, choice) { $0 }
  var state = UInt32(input[1]) | 1
  let pieces = PeerContent(bytes, choice) { left in
    state = state &* 1_664_525 &+ 1_013_904_223
    return min(left, Int(state >> 24 & 15) + 1)
  }
  precondition(whole.events == pieces.events, "a split made a difference to the events")
  precondition(whole.losses == pieces.losses, "a split made a difference to the losses")
  precondition(whole.lastID == pieces.lastID, "a split made a difference to the position")
  precondition(whole.ending == pieces.ending, "a split made a difference to the end")
}

/// What a connection has received.
private struct PeerContent {
  private(set) var events: [[UInt8]] = []
  /// The losses, each with the number of events before it.
  private(set) var losses: [Int: EventLoss] = [:]
  private(set) var lastID: UInt64?
  private(set) var ending: PeerMachine.Ending?

  init(_ bytes: [UInt8], _ choice: UInt8, _ size: (_ left: Int) -> Int) {
    var configuration = PeerConfiguration(address: .unix("/s"), stream: "s")
    configuration.maximumEventBytes = choice & 1 == 0 ? 20 : 100_000
    if choice & 2 != 0 { configuration.filter = try? EventFilter(.init("/a", .equals(1))) }
    configuration.batchLimit = choice & 4 == 0 ? (events: 1024, bytes: 64 << 10) : (events: 2, bytes: 10)
    let start: UInt64? = choice & 8 == 0 ? 7 : nil
    let window = choice & 16 == 0 ? 1000 : 2
    var machine = PeerMachine(
      configuration, after: start, hasLostPosition: choice & 32 != 0, window: window, at: .zero)
    lastID = start
    var (offset, sent) = (0, machine.session.machine.takeOutput().count)
    while offset < bytes.count, ending == nil {
      let end = offset + max(1, size(bytes.count - offset))
      bytes[offset..<end].withUnsafeBytes { machine.receive($0, at: .zero) }
      offset = end
      precondition((0...window).contains(machine.credit), "more is received than requested")
      while let part = machine.takePart() { take(part, configuration) }
      ending = machine.ending
      sent += machine.session.machine.takeOutput().count
    }
    // Answers to KEEPALIVE frames, refusals of requests, and at last an ERROR frame.
    precondition(sent <= 40 * bytes.count + 2000, "more is sent than was asked for")
    machine.session.setReading(false, at: .zero)
    _ = try? machine.next(at: .seconds(5))
    precondition((0...window).contains(machine.credit), "credit is granted without demand")
  }

  private mutating func take(_ part: PeerMachine.Part, _ configuration: PeerConfiguration) {
    precondition(lastID.map { $0 <= part.lastID } ?? true, "positions fall")
    precondition(part.events.count <= configuration.batchLimit.events, "a batch over the limit")
    precondition(part.events.largestByteCount <= configuration.maximumEventBytes, "an event over the limit")
    precondition(
      part.events.count < 2 || part.events.byteCount <= configuration.batchLimit.bytes, "a batch with too many bytes")
    if let loss = part.events.loss {
      losses[events.count] = losses[events.count].map { $0.joined(with: loss) } ?? loss
    }
    events += part.events
    lastID = part.lastID
  }
}
