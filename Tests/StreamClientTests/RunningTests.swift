import ClientTestSupport
import RSocket
import Reactive
import StreamClient
import StreamRuntime
import StreamServer
import TestSupport
import Testing

/// As in swift-service-lifecycle, whose services are conformed to with one line.
private protocol Service: Sendable {
  func run() async throws
}
extension StreamServer: Service {}
extension StreamConnection: Service {}

/// Servers and connections that run in a task.
@Suite(.timeLimit(.minutes(10))) struct RunningTests {
  private func run(_ service: any Service) -> Task<Void, any Error> { Task { try await service.run() } }

  @Test func aServerServesUntilItsTaskIsCancelled() async throws {
    let folder = try TemporaryFolder()
    let path = folder.path("s")
    let server = try StreamServer(limits: ServerLimits(workers: 2))
    let values = CurrentValueSubject<[[UInt8]], StreamFailure>([Array("1".utf8)])
    try server.add(StreamConfiguration(name: "numbers"), source: values)
    server.listen(on: try UnixSocket.listen(at: path, mode: 0o600))
    let task = run(server)
    let probe = try StreamConnection(socket: path).stream("numbers").probe(5)
    #expect(await probe.next() == .value("1"))
    task.cancel()
    try await task.value
    guard case .failed(.canceled) = await probe.next() else { return #expect(Bool(false), "no graceful end") }
  }

  @Test func aServerWhoseTaskIsCancelledAlreadyStops() async throws {
    let server = try StreamServer(limits: ServerLimits(workers: 1))
    let task = run(server)
    task.cancel()
    try await task.value
  }

  @Test func aConnectionConnectsWithoutARequestAndClosesWithItsTask() async throws {
    try await ScriptedServer.run(script: { _, _ in }) { server in
      let events = Recorder<ConnectionEvent>()
      let connection = try StreamConnection(socket: server.path, onEvent: { events.record($0) })
      let task = run(connection)
      let probe = connection.stream("s").probe(1)
      let connected = await events.next()
      #expect(connected?.level == .info && connected?.message == "connected")
      #expect(connected?.metadata == ["server": server.path])
      task.cancel()
      try await task.value
      #expect(await probe.next() == .failed(.disconnected("the connection was closed locally")))
      #expect(await events.next()?.level == .debug)
      let later = connection.stream("s").probe(1)
      #expect(await later.next() == .failed(.disconnected("the connection was closed locally")))
    }
  }

  @Test func aConnectionThatRunsConnectsAgainAfterALoss() async throws {
    let setups = Locked(0)
    try await ScriptedServer.run(script: { peer, event in
      guard case .other(.setup) = event else { return }
      let count = setups.withLock { count in
        count += 1
        return count
      }
      if count < 3 { peer.close() }
    }) { server in
      let events = Recorder<ConnectionEvent>()
      let connection = try StreamConnection(socket: server.path, onEvent: { events.record($0) })
      let task = run(connection)
      var levels: [ConnectionEvent.Level] = []
      while levels.last != .info || setups.withLock({ $0 }) < 3, let event = await events.next() {
        levels.append(event.level)
      }
      #expect(levels.contains(.warning) && setups.withLock { $0 } == 3, "\(levels)")
      task.cancel()
      try await task.value
    }
  }

  @Test func aFailureThatRepeatsIsReportedOnce() async throws {
    let events = Locked<[ConnectionEvent]>([])
    let path = "/tmp/streamd-test-there-is-no-such-folder/s"
    let connection = try StreamConnection(socket: path, onEvent: { event in events.withLock { $0.append(event) } })
    for _ in 0..<3 { _ = await connection.stream("s").probe(1).next() }
    connection.close()
    _ = await connection.stream("s").probe(1).next()
    let seen = events.withLock { $0 }
    #expect(seen.count == 1 && seen[0].level == .warning && seen[0].metadata == ["server": path], "\(seen)")
    #expect(seen[0].message.contains(path))
  }
}
