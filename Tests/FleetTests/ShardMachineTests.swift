import Testing

@testable import Fleet

@Suite struct ShardMachineTests {
  @Test func aHostIsStaleSinceItHeardItsLeaderHoweverOftenItTriesToClaim() throws {
    let second: UInt64 = 1_000_000_000
    let leader = try #require(HostID([UInt8](repeating: 1, count: 16)))
    let host = try #require(HostID([UInt8](repeating: 2, count: 16)))
    var machine = ShardMachine(host: host, weight: 0, now: 0)
    let claim = ShardEntry(epoch: 1, former: 0, content: .claim(ShardEntry.Claim(host: leader, heads: [])))
    _ = machine.start()
    _ = machine.foundClaim(claim.bytes, at: 1, now: second)
    _ = machine.read(after: 1, [], first: 1, last: 1, at: second)
    let heartbeat = ShardMachine.Heartbeat(host: leader, epoch: 1, term: 1, last: 1)
    _ = machine.hear(heartbeat, at: 2 * second)
    #expect(machine.staleSince(at: 4 * second) == nil)
    for time in 8...60 {
      let now = UInt64(time) * second
      let isAsking = machine.tick(at: now).contains { if case .gather = $0 { true } else { false } }
      if isAsking { _ = machine.readFailed(at: now) }
      #expect(machine.staleSince(at: now) == 2 * second, "after \(time) s")
    }
    _ = machine.hear(heartbeat, at: 61 * second)
    #expect(machine.staleSince(at: 62 * second) == nil)
    #expect(machine.staleSince(at: 70 * second) == 61 * second)
  }
}
