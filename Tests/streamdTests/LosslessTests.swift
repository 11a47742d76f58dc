import FoundationEssentials
import StreamClient
import TestSupport
import Testing

/// `overflow = "block"` from end to end: a subscriber that rests is felt by whatever makes the events.
@Suite(.timeLimit(.minutes(10))) struct LosslessTests {
  /// Takes 10, rests until `made` stands still, then takes up to 500, and on until the source has made more.
  ///
  /// - Parameter made: how many events the source has made so far.
  private func rest(_ daemon: DaemonProcess, _ made: () async throws -> Int) async throws -> [Int] {
    let connection = try StreamConnection(socket: daemon.socket)
    let probe = CreditProbe()
    connection.stream("jobs", options: .init(from: .new)).subscribe(probe)
    var numbers: [Int] = []
    func take(_ count: Int) async {
      probe.request(count)
      for _ in 0..<count {
        let line = String(decoding: await probe.next().data, as: UTF8.self)
        numbers.append(Int(line) ?? -1)
      }
    }
    await take(10)
    let clock = try StreamConnection(socket: daemon.socket)
    var ticks = clock.stream("ticks").values.makeAsyncIterator()
    var before = -1
    var now = try await made()
    while now != before {
      before = now
      for _ in 0..<10 { _ = try await ticks.next() }
      now = try await made()
    }
    await take(490)
    while try await made() == before { await take(100) }
    clock.close()
    connection.close()
    return numbers
  }

  private let blocking = """
    overflow = "block"
    buffer = { events = 16 }
    replay = 0
    """

  @Test func aServerWaitsForTheSlowestSubscriberAndNoLineIsLost() async throws {
    let upstream = try Upstream.shared.get()
    let key = uniqueKey()
    let daemon = try await DaemonProcess(
      """
      [streams.jobs]
      http = { url = "\(upstream.url("/flood/\(key)"))", stream = "lines" }
      \(blocking)
      """)
    let numbers = try await rest(daemon) { try upstream.count(key) }
    #expect(numbers.count >= 500 && numbers == Array(1...numbers.count))
    #expect(await daemon.stop() == 0)
  }

  @Test func aProgramWaitsForTheSlowestSubscriberAndNoLineIsLost() async throws {
    let folder = try TemporaryFolder([
      "numbers.py": """
      import os, sys
      made = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
      number = 0
      while True:
          number += 1
          os.write(1, b"%0999d\\n" % number)
          os.pwrite(made, b"%d" % number, 0)
      """
    ])
    let daemon = try await DaemonProcess(
      """
      [streams.jobs]
      exec = { command = ["python3", "\(folder.path("numbers.py"))", "\(folder.path("made"))"] }
      \(blocking)
      """)
    let numbers = try await rest(daemon) {
      Int((try? String(contentsOfFile: folder.path("made"), encoding: .utf8)) ?? "") ?? 0
    }
    #expect(numbers.count >= 500 && numbers == Array(1...numbers.count))
    #expect(await daemon.stop() == 0)
  }
}
