import Synchronization
import Testing

@testable import Systemd

struct WatchdogTests {
  /// Participants whose beats the test sends.
  private final class Loops: Sendable {
    let beats: Mutex<[[@Sendable () -> Void]]>
    let keepAliveCount = Mutex(0)

    init(_ count: Int) { beats = Mutex(Array(repeating: [], count: count)) }

    func makeWatchdog() -> Watchdog {
      let count = beats.withLock { $0.count }
      return Watchdog(
        participants: (0..<count).map { index in { beat in self.beats.withLock { $0[index].append(beat) } } },
        keepAlive: { self.keepAliveCount.withLock { $0 += 1 } })
    }

    func beat(_ index: Int, round: Int) { beats.withLock { $0[index][round] }() }
    var pingCounts: [Int] { beats.withLock { $0.map(\.count) } }
    var keepAlives: Int { keepAliveCount.withLock { $0 } }
  }

  @Test func theKeepAliveWaitsForTheLastParticipant() {
    let loops = Loops(3)
    let watchdog = loops.makeWatchdog()
    #expect(watchdog.tick() == [])
    loops.beat(2, round: 0)
    loops.beat(0, round: 0)
    #expect(loops.keepAlives == 0)
    loops.beat(1, round: 0)
    #expect(loops.keepAlives == 1)
  }

  @Test func whileAParticipantHangsNoneIsPingedAndItIsReported() {
    let loops = Loops(3)
    let watchdog = loops.makeWatchdog()
    watchdog.tick()
    loops.beat(1, round: 0)
    #expect(watchdog.tick() == [0, 2])
    loops.beat(0, round: 0)
    #expect(watchdog.tick() == [2])
    #expect(loops.pingCounts == [1, 1, 1])
    #expect(loops.keepAlives == 0)
  }

  @Test func aLateParticipantCountsAgain() {
    let loops = Loops(1)
    let watchdog = loops.makeWatchdog()
    watchdog.tick()
    #expect(watchdog.tick() == [0])
    loops.beat(0, round: 0)
    #expect(loops.keepAlives == 1)
    #expect(watchdog.tick() == [])
    loops.beat(0, round: 1)
    #expect(loops.keepAlives == 2)
  }

  @Test func aBeatCountsOnceAndOnlyInItsRound() {
    let loops = Loops(2)
    let watchdog = loops.makeWatchdog()
    watchdog.tick()
    loops.beat(0, round: 0)
    loops.beat(0, round: 0)
    #expect(loops.keepAlives == 0)
    loops.beat(1, round: 0)
    watchdog.tick()
    loops.beat(0, round: 0)
    loops.beat(1, round: 0)
    #expect(loops.keepAlives == 1)
    loops.beat(0, round: 1)
    loops.beat(1, round: 1)
    #expect(loops.keepAlives == 2)
  }

  @Test func aParticipantMayBeatWithinThePing() {
    let keepAliveCount = Mutex(0)
    let watchdog = Watchdog(participants: [{ $0() }, { $0() }]) { keepAliveCount.withLock { $0 += 1 } }
    for _ in 0..<3 { watchdog.tick() }
    #expect(keepAliveCount.withLock { $0 } == 3)
  }

  @Test func withoutParticipantsEachTickIsAKeepAlive() {
    let loops = Loops(0)
    let watchdog = loops.makeWatchdog()
    for _ in 0..<2 { watchdog.tick() }
    #expect(loops.keepAlives == 2)
  }

  @Test func concurrentBeatsAreOneKeepAlivePerRound() async {
    let loops = Loops(8)
    let watchdog = loops.makeWatchdog()
    for round in 0..<200 {
      watchdog.tick()
      await withTaskGroup { group in
        for index in 0..<8 { group.addTask { loops.beat(index, round: round) } }
      }
    }
    #expect(loops.keepAlives == 200)
  }

  @Test func theTickIsHalfOfTheInterval() {
    #expect(Watchdog.period(for: .seconds(30)) == .seconds(15))
  }
}
