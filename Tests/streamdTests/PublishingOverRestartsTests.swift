import FoundationEssentials
import Glibc
import StreamClient
import TestSupport
import Testing

/// Publishers whose daemon goes away: every line once, in order.
@Suite(.timeLimit(.minutes(10))) struct PublishingOverRestartsTests {
  private static func stream(_ more: String = "") -> String {
    """
    [streams.build]
    publish = true
    keep = "disk"
    replay = 100000
    buffer = { events = 100000, bytes = "16MiB" }
    \(more)

    """
  }

  /// Publishes lines while the daemon is killed and stopped again and again, and compares with what the stream has.
  private func expectEachLineOnce(_ configuration: String, _ arguments: [String] = []) async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    try await daemon.start(configuration)
    let publisher = try ChildProcess(
      ChildProcess.built("streamctl"), ["--socket", daemon.folder.path("s"), "pub", "build"] + arguments,
      holdsInput: true)
    let lines = (1...30_000).map { "line \($0) \(String(repeating: "x", count: $0 % 70))" }
    let writing = Task {
      for start in stride(from: 0, to: lines.count, by: 1000) {
        let chunk = lines[start..<min(lines.count, start + 1000)].joined(separator: "\n") + "\n"
        guard await publisher.write(Array(chunk.utf8)) else { return false }
        try await Task.sleep(for: .milliseconds(30))
      }
      publisher.endInput()
      return true
    }
    // A program that never had a connection does not wait for one.
    _ = try await daemon.newest(of: "build")
    for isKill in [true, false, true, true] {
      try await Task.sleep(for: .milliseconds(200))
      if isKill { await daemon.kill() } else { #expect(await daemon.stop() == 0) }
      try await daemon.start(configuration)
    }
    try #require(try await writing.value)
    try #require(await publisher.end() == 0)
    let events = try await daemon.events(lines.count, of: "build")
    #expect(events.map { String(decoding: $0.data, as: UTF8.self) } == lines)
    #expect(try await daemon.newest(of: "build").id == events.last?.id)
    #expect(await publisher.text(of: publisher.errors).hasPrefix("streamctl: connection lost, reconnecting\n"))
    #expect(await daemon.stop() == 0)
  }

  @Test func everyLineIsStoredOnceOverKillsAndRestarts() async throws {
    try await expectEachLineOnce(Self.stream())
  }

  @Test func everyLineIsStoredOnceInALosslessStream() async throws {
    try await expectEachLineOnce(Self.stream(#"overflow = "block""#))
  }

  @Test func anotherRunWithTheSameNameSkipsStoredLines() async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    try await daemon.start(Self.stream())
    for count in [3, 3, 5] {
      let publisher = try ChildProcess(
        ChildProcess.built("streamctl"), ["--socket", daemon.folder.path("s"), "pub", "build", "--as", "nightly"],
        holdsInput: true)
      await publisher.write(Array((1...count).map { "\($0)\n" }.joined().utf8))
      publisher.endInput()
      #expect(await publisher.end() == 0)
      await daemon.kill()
      try await daemon.start(Self.stream())
    }
    let events = try await daemon.events(5, of: "build")
    #expect(events.map { String(decoding: $0.data, as: UTF8.self) } == ["1", "2", "3", "4", "5"])
    #expect(try await daemon.newest(of: "build").id == events.last?.id)
    #expect(await daemon.stop() == 0)
  }

  /// Ends the subscription that holds an event back.
  enum End: CaseIterable { case stop, restart, otherThrottle, otherBuffer, smallerBuffer }

  @Test(arguments: End.allCases)
  func aConfirmedValueThatThrottleHoldsIsStoredBeforeItsSubscriptionEnds(end: End) async throws {
    let daemon = try RestartedDaemon(hasManager: end == .restart)
    if end == .restart { try daemon.makeListener() }
    func stream(_ throttle: String = "1h", _ bytes: String = "1MiB") -> String {
      """
      [streams.s]
      publish = true
      keep = "disk"
      throttle = "\(throttle)"
      buffer = { bytes = "\(bytes)" }

      """
    }
    func publish(_ value: String) async throws {
      let program = ["--socket", daemon.folder.path("s"), "pub", "s", value]
      #expect(await (try ChildProcess(ChildProcess.built("streamctl"), program)).end() == 0)
    }
    func stop() async throws {
      daemon.signal(SIGTERM)
      #expect(try await daemon.end() == 0)
    }
    func newest() async throws -> String { String(decoding: try await daemon.newest(of: "s").data, as: UTF8.self) }
    try await daemon.start(stream())
    try await publish("1")
    try await publish("2")
    #expect(try await newest() == "1")
    switch end {
    case .stop, .restart:
      try await stop()
      try await daemon.start(stream())
    case .otherThrottle: try await daemon.reload(stream("2h"))
    case .otherBuffer: try await daemon.reload(stream("1h", "2MiB"))
    case .smallerBuffer: try await daemon.reload(stream("1h", "512KiB"))
    }
    #expect(try await newest() == "2")
    // The interval continues.
    try await publish("3")
    #expect(try await newest() == "2")
    let texts = try await daemon.events(2).map { String(decoding: $0.data, as: UTF8.self) }
    #expect(texts == ["1", "2"])
    try await stop()
    try await daemon.start(stream())
    #expect(try await newest() == "3")
    try await stop()
  }

  @Test func aConfirmedValueThatThrottleHoldsSurvivesAStopAlthoughASubscriberLeavesItNoRoom() async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    func stream(_ throttle: String) -> String {
      """
      [streams.s]
      publish = true
      keep = "disk"
      overflow = "block"
      buffer = { bytes = "64KiB" }
      replay = 2
      \(throttle)

      """
    }
    let values = ["1", String(repeating: "2", count: 40_000), String(repeating: "3", count: 40_000)]
    func publish(_ values: [String]) async throws {
      let program = try ChildProcess(
        ChildProcess.built("streamctl"), ["--socket", daemon.folder.path("s"), "pub", "s"], holdsInput: true)
      await program.write(Array(values.map { $0 + "\n" }.joined().utf8))
      program.endInput()
      #expect(await program.end() == 0)
    }
    try await daemon.start(stream(""))
    try await publish(Array(values[..<2]))
    try await daemon.reload(stream(#"throttle = "1h""#))
    try await publish([values[2]])
    let connection = try StreamConnection(socket: daemon.folder.path("s"))
    defer { connection.close() }
    let subscriber = CreditProbe()
    connection.stream("s").subscribe(subscriber)
    subscriber.request(1)
    #expect(await subscriber.next().data == Array(values[0].utf8))
    #expect(await daemon.stop() == 0)
    try await daemon.start(stream(#"throttle = "1h""#))
    #expect(try String(decoding: await daemon.newest(of: "s").data, as: UTF8.self) == values[2])
    #expect(await daemon.stop() == 0)
  }

  @Test func theOutputOfAShellPipelineIsPublishedOverRestarts() async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    try await daemon.start(Self.stream())
    let script = """
      i=0
      while [ $i -lt 60 ]; do i=$((i + 1)); echo "step $i"; echo "warning $i" >&2; sleep 0.05; done
      """
    let pipeline = try ChildProcess(
      "sh",
      [
        "-c",
        "(\(script)) 2>&1 | \(ChildProcess.built("streamctl")) --socket \(daemon.folder.path("s")) pub build",
      ])
    for isKill in [false, true] {
      try await Task.sleep(for: .milliseconds(700))
      if isKill { await daemon.kill() } else { #expect(await daemon.stop() == 0) }
      try await daemon.start(Self.stream())
    }
    #expect(await pipeline.end() == 0)
    let events = try await daemon.events(120, of: "build").map { String(decoding: $0.data, as: UTF8.self) }
    #expect(events == (1...60).flatMap { ["step \($0)", "warning \($0)"] })
    #expect(await daemon.stop() == 0)
  }
}

extension RestartedDaemon {
  /// The newest event of a stream.
  func newest(of stream: String) async throws -> StreamEvent {
    let connection = try StreamConnection(socket: folder.path("s"))
    defer { connection.close() }
    return try await connection.value(of: stream).value
  }
}
