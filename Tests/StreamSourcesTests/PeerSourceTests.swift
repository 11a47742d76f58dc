import ClientTestSupport
import Events
import Glibc
import RSocket
import Reactive
import StreamProtocol
import StreamRuntime
import TestSupport
import Testing

@testable import StreamSources

/// The source, with a scripted server in place of another streamd.
@Suite(.timeLimit(.minutes(10))) struct PeerSourceTests {
  private let reports = Shared<[SourceReport]>([])
  private let checkpoint = Shared<Checkpoint?>(nil)

  private func source(
    _ address: String, on thread: SourceThread, _ change: (inout PeerConfiguration) -> Void = { _ in }
  ) throws -> Source<PeerSource> {
    var configuration = PeerConfiguration(address: try #require(ServerAddress(address)), stream: "s")
    configuration.retry = Backoff(first: .milliseconds(10), max: .milliseconds(20))
    change(&configuration)
    return PeerSource(configuration).source(
      on: thread, report: { [reports] report in reports.withLock { $0.append(report) } }
    ) { $0.checkpoint = { [checkpoint] _ in checkpoint.withLock { $0 } } }
  }

  private var failures: [String] {
    reports.withLock { $0 }.compactMap { if case .failing(let sentence, _, _) = $0 { sentence } else { nil } }
  }

  private func eventually(_ condition: () -> Bool) async throws {
    while !condition() { try await Task.sleep(for: .milliseconds(2)) }
  }

  /// The next request for the stream, without frames that grant credit.
  private func request(_ server: ScriptedServer) async throws -> (id: StreamID, credit: UInt32, options: String) {
    while let event = await server.next() {
      if case .request(let id, .stream, let credit, "s", let options) = event { return (id, credit, options) }
    }
    throw SystemError("request", code: ETIMEDOUT)
  }

  /// The next credit that is granted.
  private func grant(_ server: ScriptedServer) async throws -> UInt32 {
    guard case .other(.requestN(_, let count))? = await server.next() else {
      throw SystemError("grant", code: ETIMEDOUT)
    }
    return count
  }

  @Test func creditCrosses() async throws {
    try await withSourceThread { thread in
      try await ScriptedServer.run { server in
        let taker = Taker(.none)
        try source("unix:\(server.path)", on: thread).subscribe(taker)
        try await Task.sleep(for: .milliseconds(20))
        #expect(server.connectionCount == 0)
        taker.request(.max(1))
        let (id, credit, _) = try await request(server)
        #expect(credit == 1)
        server.act { $0.send("a", on: id, number: 1) }
        #expect(await taker.next(1) == ["a"])
        // Nobody wants another one.
        try await Task.sleep(for: .milliseconds(50))
        taker.request(.max(1))
        let count = try await grant(server)
        #expect((1...2).contains(count))
        server.act { peer in for number in 2..<2 + count { peer.send("\(number)", on: id, number: UInt64(number)) } }
        #expect(await taker.next(1) == [count == 1 ? "2" : "2|3"])
        #expect(server.connectionCount == 1)
        taker.cancel()
        #expect(await server.next() == .gone)
      }
    }
  }

  @Test func whatIsNotWantedStaysInTheSocket() async throws {
    try await withSourceThread { thread in
      try await ScriptedServer.run { server in
        let taker = Taker(.max(1))
        try source("unix:\(server.path)", on: thread).subscribe(taker)
        let first = try await request(server)
        var (number, credit) = (0 as UInt64, first.credit)
        while true {
          (number, credit) = (number + 1, credit - 1)
          server.act { [number] in $0.send("\(number)", on: first.id, number: number) }
          #expect(await taker.next(1) == ["\(number)"])
          if credit >= 2 { break }  // at the pace of a test, the window has grown
          taker.request(.max(1))
          // After an event that took long there is a grant only once no credit is left.
          if credit == 0 { credit = try await grant(server) }
        }
        // Two events are in advance: neither is taken before it is wanted, and neither is lost.
        for next in [number + 1, number + 2] { server.act { $0.send("\(next)", on: first.id, number: next) } }
        try await Task.sleep(for: .milliseconds(1200))
        #expect(taker.count == Int(number))
        taker.request(.max(1))
        #expect(await taker.next(1) == ["\(number + 1)|\(number + 2)"])
        #expect(failures.isEmpty)
        taker.cancel()
      }
    }
  }

  @Test func itContinuesAfterALostConnection() async throws {
    try await withSourceThread { thread in
      try await ScriptedServer.run { server in
        let taker = Taker(.unlimited)
        try source("unix:\(server.path)", on: thread).subscribe(taker)
        let first = try await request(server)
        #expect(first.options.hasPrefix("{\"from\":-9007"))
        server.act { peer in
          peer.send("1", on: first.id, number: 1)
          peer.close()
        }
        #expect(await taker.next(1) == ["1"])
        let second = try await request(server)
        #expect(second.options.hasPrefix("{\"from\":1,"))
        #expect(failures == ["the other streamd has closed the connection"])
        server.act(1) { $0.send("5", on: second.id, number: 5, gap: 3) }
        #expect(await taker.next(1) == ["5"])
        server.act(1) { $0.send("6", on: second.id, number: 6) }
        #expect(await taker.next(1) == ["6"])
        let place = "\"s\" of unix:\(server.path)"
        let expected: [SourceReport] = [.recovered(afterFailures: 1), .missed(.known(3), of: place), .current]
        #expect(reports.withLock { $0.suffix(3) }.elementsEqual(expected))
        taker.cancel()
      }
    }
  }

  /// The sentences are those of the last release: of one host, and of one of a fleet.
  @Test(arguments: [
    (ErrorCode.invalid, "no event has the id 70 yet"),
    (.invalid, "no event has the id 70 yet: this host was given 5 s to receive it"),
    (ErrorCode(rawValue: FailureReason.unknownPosition.wireCode()), "another sentence"),
  ]) func aPositionIsGivenUpAfterThreeRefusals(code: ErrorCode, sentence: String) async throws {
    try await withSourceThread { thread in
      let refuse: @Sendable (ClientTestSupport.Peer, ServerEvent) -> Void = { peer, event in
        if case .other(.setup(let setup)) = event {
          peer.machine.knowsReasons = FailureReason.areAnnounced(by: setup.payload.data)
        }
        guard case .request(let id, _, _, _, let options) = event, options.contains("\"from\":70,") else { return }
        peer.machine.sendError(id, code, sentence)
      }
      try await ScriptedServer.run(script: refuse) { server in
        let taker = Taker(.unlimited)
        let source = try source("unix:\(server.path)", on: thread)
        checkpoint.withLock { [fingerprint = PeerConfiguration(address: .unix(server.path), stream: "s").fingerprint] in
          $0 = SourcePosition.peer(lastID: 70).checkpoint(fingerprint)
        }
        source.subscribe(taker)
        for _ in 0..<3 { #expect(try await request(server).options.hasPrefix("{\"from\":70,")) }
        let last = try await request(server)
        #expect(last.options.hasPrefix("{\"from\":-9007"))
        #expect(failures.count == 3 && failures.last?.hasSuffix("begins with the oldest event there") == true)
        server.act(3) { $0.send("1", on: last.id, number: 1) }
        #expect(await taker.next(1) == ["1"])
        let place = "\"s\" of unix:\(server.path)"
        #expect(reports.withLock { $0.last } == .missed(.possible, of: place))
        taker.cancel()
      }
    }
  }

  @Test func aClosedConnectionIsNoticedWithDemandOnly() async throws {
    try await withSourceThread { thread in
      try await ScriptedServer.run { server in
        let taker = Taker(.max(1))
        try source("unix:\(server.path)", on: thread).subscribe(taker)
        let id = try await request(server).id
        server.act { $0.send("1", on: id, number: 1) }
        #expect(await taker.next(1) == ["1"])
        server.act { $0.close() }
        let before = thread.loop.busyNanoseconds
        try await Task.sleep(for: .milliseconds(200))
        #expect(thread.loop.busyNanoseconds - before < 100_000_000)  // it does not spin
        #expect(failures.isEmpty && server.connectionCount == 1)
        taker.request(.max(1))
        #expect(try await request(server).options.hasPrefix("{\"from\":1,"))
        #expect(failures == ["the other streamd has closed the connection"])
        taker.cancel()
      }
    }
  }

  @Test func whoCannotBeReachedIsNamed() async throws {
    try await withSourceThread { thread in
      let address = uniqueAddress()
      for (text, reason) in [
        ("tcp:\(address)", "Connection refused"), ("tcp:localhost:1", "Connection refused"),
        ("unix:/nonexistent/s", "No such file or directory"),
      ] {
        let taker = Taker(.unlimited)
        try source(text, on: thread).subscribe(taker)
        try await eventually { failures.contains("cannot connect to \(text): \(reason)") }
        taker.cancel()
      }
      let taker = Taker(.unlimited)
      let name = String(repeating: "x", count: 64)
      try source("tcp:\(name):1", on: thread).subscribe(taker)
      try await eventually {
        failures.contains { $0.hasPrefix("cannot connect to tcp:\(name):1: the name cannot be resolved: ") }
      }
      taker.cancel()
    }
  }

  /// What it sends is arbitrary, and it reads nothing.
  @Test func aHostileServerCostsItsConnectionOnly() async throws {
    try await withSourceThread { thread in
      let flood: @Sendable (ClientTestSupport.Peer, ServerEvent) -> Void = { peer, event in
        guard case .bytes = event else { return }
        peer.reads = false
        let keepalive: [UInt8] = [0, 0, 14, 0, 0, 0, 0, 0x0c, 0x80] + [UInt8](repeating: 0, count: 8)
        peer.write((0..<100_000).flatMap { _ in keepalive })
      }
      try await ScriptedServer.run(raw: true, script: flood) { server in
        let taker = Taker(.unlimited)
        try source("unix:\(server.path)", on: thread).subscribe(taker)
        try await eventually { failures.contains("the other streamd does not read what is sent to it") }
        taker.cancel()
      }
    }
  }
}
