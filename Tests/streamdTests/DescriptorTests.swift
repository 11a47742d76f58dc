import FoundationEssentials
import Glibc
import StreamClient
import StreamRuntime
import StreamServer
import TestSupport
import Testing

@testable import streamd

/// A daemon that may have few descriptors.
@Suite(.timeLimit(.minutes(10))) struct DescriptorTests {
  @Test func clientsCannotTakeTheDescriptorsOfTimersAndSources() async throws {
    let upstream = try Upstream.shared.get()
    let daemon = try await DaemonProcess(
      #"""
      [streams.feed]
      http = { url = "\#(upstream.url("/count/\(uniqueKey())"))", every = "20ms" }
      [streams.shell]
      exec = { command = ["sh", "-c", "while echo 1; do sleep 0.02; done"] }
      jq = "."
      """#, server: "handshake_timeout = \"1h\"\nmax_connections = 60000", environment: ["prlimit", "--nofile=96:96"])
    #expect(try await daemon.logs("max_connections is 60000, of which "))
    let connection = try StreamConnection(socket: daemon.socket)
    _ = try await connection.value(of: "$streams").value  // it is accepted
    var crowd = try (0..<120).map { _ in try UnixSocket.connect(to: daemon.socket).release() }
    for stream in ["ticks", "feed", "shell"] {
      var events = connection.stream(stream).values.makeAsyncIterator()
      for _ in 0..<3 { #expect(try await events.next() != nil) }
    }
    // Those for which there is no room are answered; they are the last.
    let last = try #require(crowd.last)
    _ = fcntl(last, F_SETFL, 0)
    var answer = [UInt8](repeating: 0, count: 1024)
    let count = read(last, &answer, answer.count)
    #expect(String(decoding: answer.prefix(max(0, count)), as: UTF8.self).contains("connections already"))
    crowd.forEach { close($0) }
    crowd = []
    let deadline = hangDeadline()
    while true {
      do {
        let newcomer = try StreamConnection(socket: daemon.socket)
        defer { newcomer.close() }
        _ = try await newcomer.value(of: "$streams").value
        break
      } catch {
        guard EventLoop.monotonicNow() < deadline else { throw error }
      }
    }
    connection.close()
    #expect(await daemon.stop() == 0)
  }

  @Test func aSmallLimitOfConnectionsIsReported() async throws {
    let daemon = try await DaemonProcess("", environment: ["prlimit", "--nofile=1024:1024"])
    #expect(try await daemon.logs("max_connections is 65536, of which "))
    #expect(try await daemon.logs(" fit: the descriptor limit (LimitNOFILE=) is 1024"))
    #expect(await daemon.stop() == 0)
  }

  @Test func tooFewDescriptorsForOneClientAreReportedAtTheStart() async throws {
    let folder = try TemporaryFolder(["streamd.toml": "[server]\nsocket = \"/nonexistent/s\"\n"])
    let (status, _, errors) = try await run(
      ["--config", folder.path("streamd.toml")], environment: ["prlimit", "--nofile=32:32"])
    #expect(status == 71)
    #expect(errors.contains("streamd cannot start: RLIMIT_NOFILE (LimitNOFILE=) of 32, at least "))
  }

  @Test func theConnectionLimitLeavesDescriptorsForStreamsAndLoops() throws {
    func limit(_ limit: Int, _ streams: [Configuration.Stream] = []) throws(SystemError) -> Int {
      try DescriptorBudget(limit: limit, openCount: 4).connectionLimit(for: streams, loops: 2)
    }
    let own = 4 + 40 + 16 + 2 * 4
    let views = StreamServer.maximumViewCount
    #expect(try limit(1024) == 1024 - own - views)
    let timer = Configuration.Stream(name: "t", source: .timer(.init(every: .seconds(1))))
    var shell = Configuration.Stream(name: "s", source: .exec(.init(command: ["x"])))
    shell.jq = "."
    #expect(try limit(1024, [timer, shell]) == 1024 - own - views - 2 - 14)
    #expect(try limit(1024, Array(repeating: shell, count: 100)) == (1024 - own - 100) / 2)
    let journal = Configuration.Stream(name: "j", source: .journal(.init()))
    #expect(try limit(1024, [journal]) == 1024 - own - views - 1 - 5)
    var mapped = timer
    mapped.map = true
    // Its log, a region that is replaced, the users' pages, and replies on their way.
    #expect(try limit(1024, [mapped]) == 1024 - own - views - 1 - 2 - 408 - (3 + 16))
    #expect(throws: SystemError.self) { try limit(own) }
  }
}
