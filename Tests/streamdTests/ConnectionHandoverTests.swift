import Glibc
import Reactive
import StreamClient
import StreamRuntime
import StreamServer
import TestSupport
import Testing

/// Connections from one process of the service to the next, by way of the service manager.
@Suite(.timeLimit(.minutes(10))) struct ConnectionHandoverTests {
  /// A subscriber on a connection of its own that has got its first event.
  private struct Reader {
    let connection: StreamConnection
    let probe = CreditProbe()
    private(set) var lastID: UInt64 = 0

    init(_ daemon: RestartedDaemon, _ stream: String = "s") async throws {
      connection = try StreamConnection(socket: daemon.folder.path("s"))
      connection.stream(stream, options: .init(from: .new)).subscribe(probe)
      lastID = try #require(await next())
    }

    /// - Returns: nil once the connection is over.
    mutating func next() async -> UInt64? {
      probe.request(1)
      guard let id = await probe.next().id else { return nil }
      lastID = id
      return id
    }
  }

  /// Serves until clients have been handed over.
  private func handOver(_ daemon: RestartedDaemon) async throws {
    daemon.signal(SIGTERM)
    #expect(try await daemon.end() == 0)
    let manager = try #require(daemon.manager)
    let kept = manager.kept.map(\.name).filter { $0.hasPrefix("kept-connections") }
    #expect(kept == ["kept-connections-state", "kept-connections-by-16-at-0"])
  }

  /// It finds another one at its socket: after it has restored the connections, before it is ready.
  private func startInVain(_ daemon: RestartedDaemon) async throws {
    let listener = daemon.listener
    daemon.listener = nil
    defer { daemon.listener = listener }
    #expect(try await daemon.startAndEnd(keptStream(keep: "memory")) == 71)
    #expect(try await daemon.logs("streamd cannot start: cannot listen on"))
  }

  @Test func aProcessThatEndsBeforeItIsReadyLeavesTheConnectionsToTheNext() async throws {
    let daemon = try RestartedDaemon()
    try daemon.makeListener()
    try await daemon.start(keptStream(keep: "memory"))
    var reader = try await Reader(daemon)
    try await handOver(daemon)
    try await startInVain(daemon)
    #expect(try await daemon.logs("1 connection restored"))
    try await daemon.start(keptStream(keep: "memory"))
    #expect(try await daemon.logs("1 connection restored"))
    for _ in 0..<20 {
      let last = reader.lastID
      #expect(await reader.next() == last + 1)
    }
    try await daemon.eventually("the manager keeps them no longer") {
      daemon.manager?.kept.contains { $0.name.hasPrefix("kept-connections") } == false
    }
    #expect(daemon.keptLogs == ["kept-log-0"])
    reader.connection.close()
  }

  /// The service manager hands over the newest descriptor first, and may have had no room for one.
  @Test func parcelsAreMatchedInAnyOrderEvenIfOneIsMissing() async throws {
    let daemon = try RestartedDaemon()
    let manager = try #require(daemon.manager)
    try daemon.makeListener()
    // Connections share a loop by fours, and are saved loop by loop: the streams tell them apart, by their ids.
    let streams = ["a", "b", "c"].map { keptStream($0, keep: "memory") }.joined()
    try await daemon.start("workers = 1\n" + streams)
    var readers: [Reader] = []
    for stream in ["a", "b", "c"] { readers.append(try await Reader(daemon, stream)) }
    try await handOver(daemon)
    let parcel = try #require(manager.give("kept-connections-by-16-at-0"))
    var single: [CInt] = []
    DescriptorParcel.copy(from: parcel, perMessage: 16) { _, descriptor in
      if let (ends, _) = try? DescriptorParcel.pack([descriptor], perMessage: 16) { single += ends.map(\.end) }
      close(descriptor)
    }
    close(parcel)
    try #require(single.count == 3)
    for index in [2, 0] { manager.keep(single[index], as: "kept-connections-by-16-at-\(index)") }
    close(single[1])
    try await daemon.start("workers = 1\n" + streams)
    #expect(try await daemon.logs("2 connections restored"))
    #expect(try await daemon.logs("1 of 3 connections closed: their descriptors are missing"))
    var served = 0
    for index in readers.indices {
      let last = readers[index].lastID
      if let next = await readers[index].next() {
        #expect(next == last + 1)
        served += 1
      }
      readers[index].connection.close()
    }
    #expect(served == 2)
    try await daemon.eventually("the manager keeps them no longer") {
      !manager.kept.contains { $0.name.hasPrefix("kept-connections") }
    }
  }

  /// As after a downgrade from a later version.
  @Test func connectionsOfAnotherVersionAreClosedAndReported() async throws {
    let daemon = try RestartedDaemon()
    let manager = try #require(daemon.manager)
    try daemon.makeListener()
    try await daemon.start(keptStream(keep: "memory"))
    var readers: [Reader] = []
    for _ in 0..<3 { readers.append(try await Reader(daemon)) }
    try await handOver(daemon)
    let state = try #require(manager.kept.first { $0.name == "kept-connections-state" }).descriptor
    #expect(pwrite(state, [9], 1, 7) == 1)
    try await daemon.start(keptStream(keep: "memory"))
    let sentence =
      "3 connections (uid \(getuid()): 3) closed, as their saved state is not used: its format is version 9"
    #expect(try await daemon.logs(sentence))
    // Their events are there.
    for index in readers.indices {
      #expect(await readers[index].next() == nil)
      readers[index].connection.close()
    }
    #expect(try await daemon.events(1)[0].id ?? 0 <= readers[0].lastID)
    try await daemon.eventually("the manager keeps them no longer") {
      !manager.kept.contains { $0.name.hasPrefix("kept-connections") }
    }
  }

  @Test func connectionsAreClosedAfterThreeFailedProcesses() async throws {
    let daemon = try RestartedDaemon()
    try daemon.makeListener()
    try await daemon.start(keptStream(keep: "memory"))
    var reader = try await Reader(daemon)
    try await handOver(daemon)
    for _ in 0..<3 { try await startInVain(daemon) }
    try await daemon.start(keptStream(keep: "memory"))
    #expect(try await daemon.logs("1 of 1 connection closed: 3 processes ended before they served them"))
    #expect(await reader.next() == nil)
    reader.connection.close()
  }

  @Test(arguments: ["max_connections", "LimitNOFILE"]) func connectionsUpToTheLimitContinueAndOthersAreCanceled(
    limit: String
  ) async throws {
    let daemon = try RestartedDaemon()
    try daemon.makeListener()
    try await daemon.start(keptStream(keep: "memory"))
    var readers: [Reader] = []
    for _ in 0..<60 { readers.append(try await Reader(daemon)) }
    try await handOver(daemon)
    if limit == "max_connections" {
      try await daemon.start("max_connections = 25\n" + keptStream(keep: "memory"))
    } else {
      try await daemon.start(keptStream(keep: "memory"), commands: "ulimit -n 100")
    }
    var served = 0
    for index in readers.indices {
      if await readers[index].next() != nil { served += 1 }
      readers[index].connection.close()
    }
    if limit == "max_connections" { #expect(served == 25) } else { #expect(served > 0 && served < 60) }
    #expect(try await daemon.logs("\(served) connections restored"))
    #expect(
      try await daemon.logs(
        "\(60 - served) of 60 connections closed: no more than \(served) fit (max_connections, LimitNOFILE=)"))
  }

  /// A subscription that the rules admit no longer ends; the others notice nothing.
  @Test func newRulesApplyToRestoredConnections() async throws {
    let daemon = try RestartedDaemon()
    try daemon.makeListener()
    let open = keptStream("t", keep: "no")
    try await daemon.start(keptStream(keep: "memory") + open)
    var reader = try await Reader(daemon)
    let other = CreditProbe()
    reader.connection.stream("t", options: .init(from: .new)).subscribe(other)
    other.request(1)
    #expect(await other.next().id != nil)
    try await handOver(daemon)
    try await daemon.start(keptStream(keep: "memory") + open + "read = [\"uid:4000000000\"]\n")
    other.request(1)
    #expect(await other.next().id == nil)
    let last = reader.lastID
    #expect(await reader.next() == last + 1)
    try await daemon.eventually("the refusal is reported") {
      daemon.log.contains(": refused: uid \(getuid()) may not read \"t\"")
    }
    reader.connection.close()
  }
}
