import CLinux
import Glibc
import Testing

@testable import Fleet

/// The rules by which "SIZING" in streamd-fleet(7) computes, for a small fleet. With STREAMD_FLEET_HOSTS=1000 they are
/// tested for as many hosts, by default with ten times as many streams and for an hour, and the figures are printed.
@Suite struct FleetSizingTests {
  private static func number(_ name: String) -> Int? {
    unsafe getenv(name).flatMap { unsafe Int(String(cString: $0)) }
  }

  private static let isShown = number("STREAMD_FLEET_HOSTS") != nil

  private static var scale: FleetSizing.Scale {
    var scale = FleetSizing.Scale()
    guard let hostCount = number("STREAMD_FLEET_HOSTS") else { return scale }
    (scale.hostCount, scale.shardCount) = (hostCount, 16)
    scale.streamCount = number("STREAMD_FLEET_STREAMS") ?? 10 * hostCount
    // The last fifth has whole intervals.
    let unit = 5 * scale.interval
    scale.seconds = (UInt64(number("STREAMD_FLEET_SECONDS") ?? 3600) + unit - 1) / unit * unit
    scale.wantedShare = UInt64(number("STREAMD_FLEET_WANTED") ?? 10)
    return scale
  }

  @Test func aFleetSendsWhatTheManualSays() {
    let before = ProcessFigures.residentByteCount
    var day = FleetSizing(Self.scale)
    var parts: [FleetSizing.Totals] = []
    for percent in stride(from: 5, through: 100, by: 5) as StrideThrough<UInt64> {
      day.run(untilPercent: percent)
      parts.append(day.totals)
      guard Self.isShown else { continue }
      print("\(percent) %: \((ProcessFigures.residentByteCount - before) >> 20) MiB, \(day.summary)")
    }
    let quiet = day.totals.since(parts[15])
    if Self.isShown { print(day.table(of: quiet)) }
    #expect(day.violations == [])
    checkQuietHours(of: day, quiet)
    checkChanges(of: day, since: parts[0])
    #expect(day.differingStreams == [])
  }

  /// In the last fifth of the day, nothing but the streams is the reason for messages.
  private func checkQuietHours(of day: FleetSizing, _ quiet: FleetSizing.Totals) {
    let scale = day.scale
    let (seconds, polls) = (Int(scale.seconds) / 5, day.wantedCount * Int(scale.seconds) / 5 / Int(scale.interval))
    let records = quiet.counts.records
    // A poll is late by up to a twentieth of the interval. Streams that nobody wants have no records.
    #expect(abs(records - polls) <= polls / 15 + 1, "\(records) records of \(polls) polls")
    let entries = records + quiet.counts.claims + quiet.counts.signsOfLife
    for host in 0..<scale.hostCount {
      let received = quiet.traffic.received(.entries, by: host)
      #expect(abs(received.messages - entries) <= 5, "host \(host): \(received.messages) entries of \(entries)")
    }
    #expect(quiet.counts.recordBytes <= records * (scale.eventByteCount + 250), "\(quiet.counts.recordBytes) bytes")
    let heartbeats = quiet.traffic.sent(.heartbeats).messages
    #expect(1...scale.shardCount ~= day.leadingCount)
    #expect(abs(heartbeats - day.leadingCount * seconds) <= day.leadingCount, "\(heartbeats) heartbeats")
    // A question for each poll, unless a client of the leader wants the event, and an answer.
    let interest = quiet.traffic.sent(.interest).messages
    #expect(records * 3 / 2...records * 2 + scale.shardCount ~= interest, "\(interest) messages for interest")
    for kind in [.wants, .comparisons, .positions, .reads] as [FleetTraffic.Kind] {
      #expect(quiet.traffic.received(kind).messages == 0, "\(kind)")
    }
    #expect(quiet.counts.ticks <= scale.hostCount * seconds, "\(quiet.counts.ticks) ticks")
  }

  /// Counts what changes of leaders cost, after all hosts have started.
  private func checkChanges(of day: FleetSizing, since start: FleetSizing.Totals) {
    let (scale, counts) = (day.scale, day.totals.since(start).counts)
    #expect(counts.terms >= scale.shardCount + 3)
    // A host that is about to claim a shard asks all others, which leave it to that host.
    #expect(counts.gathers <= 2 * counts.terms, "\(counts.gathers) hosts asked for positions in \(counts.terms) terms")
    let traffic = day.totals.traffic
    #expect(traffic.sent(.positions).messages <= day.totals.counts.gathers * (scale.hostCount + 1))
    let renewals = day.totals.counts.claims - day.totals.counts.terms
    let due = max(day.totals.counts.records / 16_384, day.totals.counts.recordBytes >> 26)
    #expect(0...due ~= renewals, "\(renewals) claims were renewed")
    // A host tells each new leader of a shard which of its streams it wants, and is answered.
    let wants = traffic.sent(.wants).messages
    let told = 2 * day.listenerCount * (day.totals.counts.terms / scale.shardCount + 2)
    #expect(day.listenerCount...told ~= wants, "\(wants) messages for demand of \(day.listenerCount)")
    // Only hosts that start read the log, and all of them.
    #expect(traffic.received(.reads).messages >= scale.hostCount * scale.shardCount)
    #expect(traffic.received(.comparisons).messages == 0)
  }

  /// In a process of its own, because other tests take memory, too.
  @Test func aHostKeepsLessThanAKilobyteOfAStream() async {
    let result = await #expect(processExitsWith: .success, observing: [\.standardOutputContent]) {
      let follower = SizedFollower(streamCount: 10_000)
      let before = ProcessFigures.allocatedByteCount
      let machine = follower.follow()
      let byteCount = (ProcessFigures.allocatedByteCount - before) / 10_000
      #expect(300..<1024 ~= byteCount, "\(byteCount) bytes for each stream")
      print("a host keeps \(byteCount) bytes of each of 10,000 streams; \(follower.times(of: machine))")
    }
    if Self.isShown { print(String(decoding: result?.standardOutputContent ?? [], as: UTF8.self)) }
  }
}

/// Reads what the system says about this process.
enum ProcessFigures {
  static var residentByteCount: Int {
    guard let file = unsafe fopen("/proc/self/statm", "r") else { return 0 }
    defer { unsafe fclose(file) }
    var line = [CChar](repeating: 0, count: 100)
    guard unsafe fgets(&line, 100, file) != nil else { return 0 }
    let text = String(decoding: line.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    return (Int(text.split(separator: " ")[1]) ?? 0) * sysconf(Int32(_SC_PAGESIZE))
  }

  /// The memory that the C library has given out.
  static var allocatedByteCount: Int {
    let information = mallinfo2()
    return Int(information.uordblks) + Int(information.hblkhd)
  }

  /// The processor time of this thread, in nanoseconds.
  static var processorTime: UInt64 {
    var time = timespec()
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
    return UInt64(time.tv_sec) * 1_000_000_000 + UInt64(time.tv_nsec)
  }
}
