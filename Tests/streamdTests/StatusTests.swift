import StreamClient
import TestSupport
import Testing

/// The status line for the service manager.
@Suite(.timeLimit(.minutes(10))) struct StatusTests {
  @Test func theStatusFollowsSubscribersWithoutWaitingForTheWatchdog() async throws {
    let daemon = try RestartedDaemon()
    let manager = try #require(daemon.manager)
    try await daemon.start(keptStream(keep: "no"), environment: ["WATCHDOG_USEC=1200000000"])
    func status(_ text: String) -> Bool {
      while let notice = manager.receive() {
        // A status right after another one has no rate behind the numbers.
        if notice.contains("STATUS=1 stream, \(text)") { return true }
      }
      return false
    }
    let connection = try StreamConnection(socket: daemon.folder.path("s"))
    var events = connection.stream("s").values.makeAsyncIterator()
    _ = try await events.next()
    #expect(status("1 subscriber"))
    connection.close()
    #expect(status("0 subscribers"))
    #expect(await daemon.stop() == 0)
  }

  @Test func theStatusHasTheNumberOfStreamsThatAreNotOnDisk() async throws {
    let daemon = try RestartedDaemon()
    let manager = try #require(daemon.manager)
    try await daemon.start(keptStream("a", keep: "disk") + keptStream("b", keep: "memory"), state: "/proc/streamd")
    var isNamed = false
    for _ in 0..<60 where !isNamed { isNamed = manager.receive()?.contains("; 1 not on disk") ?? false }
    #expect(isNamed)
    #expect(await daemon.stop() == 0)
  }

  @Test func theStatusNamesTheReasonWhyTheFleetCannotBeReached() async throws {
    let daemon = try RestartedDaemon()
    let manager = try #require(daemon.manager)
    try await daemon.start(
      """
      [cluster]
      name = "test"
      nats = ["nats://127.0.0.1:1"]

      [streams.s]
      timer.every = "1s"
      share = "fleet"
      """)
    var isNamed = false
    for _ in 0..<60 where !isNamed {
      isNamed = manager.receive()?.contains("; no connection to the fleet's brokers: cannot connect to NATS: ") ?? false
    }
    #expect(isNamed)
    #expect(await daemon.stop() == 0)
  }
}
