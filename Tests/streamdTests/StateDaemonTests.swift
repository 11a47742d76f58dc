import StreamClient
import TestSupport
import Testing

/// `key` and `tombstone`, on the daemon itself: read as paths, and computed by jq programs.
@Suite(.timeLimit(.minutes(5))) struct StateDaemonTests {
  private static let published = """
    [streams.s]
    publish = true
    write = ["*"]

    """
  private static let path = "key = \".k\"\ntombstone = \".gone\"\n"
  private static let program = #"key = '"\(.k)/\(.l)"'"# + "\ntombstone = \".gone == true\"\n"

  private func publish(_ lines: String..., to daemon: RestartedDaemon) async throws {
    let publisher = try ChildProcess(
      "sh",
      [
        "-c", "printf '%s\\n' \"$@\" | \(ChildProcess.built("streamctl")) --socket \(daemon.folder.path("s")) pub s",
        "sh",
      ]
        + lines)
    #expect(await publisher.end() == 0)
  }

  /// The first events of the state.
  private func state(_ daemon: RestartedDaemon, _ count: Int) async throws -> [String] {
    try await daemon.events(count, from: .state).map { String(decoding: $0.data, as: UTF8.self) }
  }

  @Test(arguments: ["memory", "disk"]) func aStateByProgramsSurvivesKillsAndStops(keep: String) async throws {
    let daemon = try RestartedDaemon()
    let streams = Self.published + Self.program + "keep = \"\(keep)\"\nbuffer.events = 4\n"
    try await daemon.start(streams)
    let events = ["a", "b", "c"].map { #"{"k":"\#($0)","l":1}"# }
    try await publish(events[0], events[1], events[2], #"{"k":"b","l":1,"gone":true}"#, to: daemon)
    for value in 0..<8 { try await publish(#"{"k":"d","l":\#(value % 2),"v":\#(value)}"#, to: daemon) }
    let expected = [events[0], events[2], #"{"k":"d","l":0,"v":6}"#, #"{"k":"d","l":1,"v":7}"#]
    #expect(try await state(daemon, 4) == expected)
    await daemon.kill()
    try await daemon.start(streams)
    #expect(try await state(daemon, 4) == expected)
    #expect(await daemon.stop() == 0)
    try await daemon.start(streams)
    #expect(try await state(daemon, 4) == expected)
    try await publish(#"{"k":"c","l":1,"gone":true}"#, to: daemon)
    #expect(try await state(daemon, 3) == [expected[0]] + expected[2...])
  }

  @Test func anEventOnWhichTheProgramFailsHasNoKeyAndIsReported() async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    try await daemon.start(Self.published + "key = \".a.b + 1\"\n")
    try await publish(#"{"a":5}"#, #"{"a":{"b":1}}"#, "x", #"{"a":{"b":[]}}"#, to: daemon)
    #expect(try await state(daemon, 1) == [#"{"a":{"b":1}}"#])
    #expect(ids(try await daemon.events(4)).count == 4)
    #expect(try await daemon.logs("event failed: key: Cannot index number with"))
  }

  @Test func aStateByAPathBeginsWithTheStoredEventsAndOneByAProgramWithTheNext() async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    try await daemon.start(Self.published)
    let events = (0..<3).map { #"{"k":\#($0),"l":1}"# }
    try await publish(events[0], events[1], to: daemon)
    try await daemon.reload(Self.published + Self.path + "max_keys = 1\n")
    await #expect(throws: (any Error).self) { try await state(daemon, 2) }
    try await daemon.reload(Self.published + Self.path)
    #expect(try await state(daemon, 2) == Array(events[..<2]))
    try await daemon.reload(Self.published + Self.program)
    try await publish(events[2], to: daemon)
    #expect(try await state(daemon, 1) == [events[2]])
    // Another reload changes nothing.
    try await daemon.reload(Self.published + Self.program + "replay = 0\n")
    #expect(try await state(daemon, 1) == [events[2]])
    try await daemon.reload(Self.published + Self.path)
    #expect(try await state(daemon, 3) == events)
  }
}
