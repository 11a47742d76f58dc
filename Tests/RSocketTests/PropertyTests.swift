import RSocket
import Testing

/// A sequence of its seed alone, so that a failure can be repeated. Source: SplitMix64 (Steele, Lea, Flood, 2014).
private struct SplitMix: RandomNumberGenerator {
  var state: UInt64

  mutating func next() -> UInt64 {
    state &+= 0x9e37_79b9_7f4a_7c15
    var z = state
    z = (z ^ (z >> 30)) &* 0xbf58_476d_1ce4_e5b9
    z = (z ^ (z >> 27)) &* 0x94d0_49bb_1331_11eb
    return z ^ (z >> 31)
  }

  mutating func bytes(_ count: Int) -> [UInt8] { (0..<count).map { _ in UInt8.random(in: 0...255, using: &self) } }

  /// A frame that a hostile peer might send: mostly well formed, on few IDs, so that frames meet.
  mutating func frame() -> [UInt8] {
    let type = UInt16.random(in: 0...15, using: &self)
    let flags = UInt16.random(in: 0...0x3ff, using: &self) & UInt16.random(in: 0...0x3ff, using: &self)
    let id = UInt8.random(in: 0...6, using: &self)
    var body = bytes(Int.random(in: 0...24, using: &self)).map { $0 % 4 == 0 ? 0 : $0 }
    if flags & 0x100 != 0, Bool.random(using: &self) { body = [0, 0, 0, 2, 0, 0, 1] + body }
    let head: [UInt8] = [0, 0, 0, id, UInt8(type << 2 | flags >> 8), UInt8(truncatingIfNeeded: flags)]
    return [0, 0, UInt8(head.count + body.count)] + head + body
  }
}

@Suite struct PropertyTests {
  /// The result of a machine for `bytes` in random chunks.
  private func outcome(
    _ make: () -> Side, _ bytes: [UInt8], _ random: inout SplitMix, isWhole: Bool
  ) -> ([Side.Event], [UInt8], Int) {
    let side = make()
    var events: [Side.Event] = []
    var rest = bytes[...]
    while !rest.isEmpty {
      let chunk = rest.prefix(isWhole ? rest.count : Int.random(in: 1...9, using: &random))
      events += side.receive([UInt8](chunk))
      rest = rest.dropFirst(chunk.count)
    }
    return (events, side.take(), side.machine.liveCount)
  }

  @Test(arguments: 0..<8) func nothingThatArrivesCrashesAMachineAndSplitsDoNotMatter(seed: UInt64) throws {
    let limits = ConnectionLimits(maximumRequestBytes: 200, maximumRequests: 2)
    let makers: [() -> Side] = [
      { Side(ConnectionMachine(acceptingWith: limits)) }, { .openServer(limits: limits) },
      {
        let client = Side.openClient(limits: limits)
        for kind in [RequestKind.stream, .channel, .response] { _ = client.request(kind, initialRequest: 3) }
        return client
      },
    ]
    var random = SplitMix(state: seed)
    for round in 0..<400 {
      var bytes = round % 4 == 0 ? random.bytes(40) : []
      for _ in 0..<12 { bytes += random.frame() }
      for make in makers {
        let whole = outcome(make, bytes, &random, isWhole: true)
        let split = outcome(make, bytes, &random, isWhole: false)
        #expect(whole == split)
        #expect(whole.2 <= 3)
        #expect(try Frame.decodeAll(whole.1).allSatisfy { $0 != nil })
      }
    }
  }
}
