import TestSupport
import Testing

@testable import streamd

@Suite struct MemoryBudgetTests {
  private func configuration(_ count: Int, bytes: Int, keep: Configuration.Keep = .memory) -> Configuration {
    var configuration = Configuration()
    configuration.streams = (0..<count).map { number in
      var stream = Configuration.Stream(name: "s\(number)", source: .publish)
      stream.buffer = .init(events: 1024, bytes: bytes)
      stream.keep = keep
      return stream
    }
    return configuration
  }

  @Test func buffersAreLimitedByTheMachinesMemory() {
    let budget = MemoryBudget(limit: 4 << 30, reason: "the machine's memory")
    #expect(budget.verdict(on: configuration(500, bytes: 8 << 20)) == .fits)
    #expect(
      budget.verdict(on: configuration(1000, bytes: 8 << 20))
        == .overcommits(
          "the buffers of 1000 streams can take 7.8 GiB of memory together, more than the machine's memory, 4 GiB; "
            + "server.memory sets a limit"))
    #expect(
      budget.verdict(on: configuration(200, bytes: 64 << 30))
        == .refused(
          "the buffers of 200 streams can take 12.5 TiB of memory together, more than the machine's memory, 4 GiB, "
            + "4 times over; server.memory can allow it"))
    #expect(budget.verdict(on: configuration(200, bytes: 64 << 30, keep: .disk)) == .fits)
  }

  /// A region has the size of a buffer, in whole pages.
  @Test func aMapTakesTheMemoryOfItsBufferAgain() {
    var configuration = configuration(10, bytes: 8 << 20)
    let plain = MemoryBudget.demand(of: configuration.streams)
    for index in configuration.streams.indices { configuration.streams[index].map = true }
    let both = MemoryBudget.demand(of: configuration.streams)
    #expect(both >= 2 * plain && both - 2 * plain < 10 * (64 << 10))
  }

  @Test func aConfiguredLimitReplacesTheMachinesMemory() {
    let budget = MemoryBudget(limit: 4 << 30, reason: "the machine's memory")
    var configuration = configuration(1000, bytes: 8 << 20)
    configuration.server.memory = 16 << 30
    #expect(budget.verdict(on: configuration) == .fits)
    configuration.server.memory = 1 << 30
    #expect(
      budget.verdict(on: configuration)
        == .refused(
          "the buffers of 1000 streams can take 7.8 GiB of memory together, more than the allowed 1 GiB"))
  }

  @Test func theLowestLimitOfTheControlGroupsApplies() throws {
    let folder = try TemporaryFolder()
    for (name, text) in [("memory.max", "max\n"), ("cgroup.procs", "1\n")] {
      try folder.write(Array(text.utf8), to: name)
    }
    #expect(MemoryBudget.groupLimit("0::/\n", root: folder.path) == nil)
    try folder.write(Array("2000000\n".utf8), to: "memory.max")
    #expect(MemoryBudget.groupLimit("0::/a.slice/b.service\n", root: folder.path) == 2_000_000)
    #expect(MemoryBudget.groupLimit("4:cpu,memory:/x\n1:name=systemd:/\n", root: folder.path) == nil)
    #expect(MemoryBudget.groupLimit("rubbish\n0::/../..\n", root: folder.path) == 2_000_000)
  }

  @Test func excessiveBuffersAreRefusedBeforeTheyAreAllocated() async throws {
    let streams = (0..<200).map { "[streams.s\($0)]\npublish = true\nbuffer = { bytes = \"64GiB\" }\n" }.joined()
    let folder = try TemporaryFolder(["streamd.toml": streams])
    let (status, _, errors) = try await run(["--check", "--config", folder.path("streamd.toml")])
    #expect(status == 78)
    #expect(errors.contains(": streams: the buffers of 200 streams can take 12.5 TiB of memory together, more than "))
    try folder.write(Array(("[server]\nmemory = \"20000GiB\"\n" + streams).utf8), to: "streamd.toml")
    #expect(try await run(["--check", "--config", folder.path("streamd.toml")]).status == 0)
    try folder.write(Array(("[server]\nmemory = \"1GiB\"\n" + streams).utf8), to: "streamd.toml")
    let other = try await run(["--check", "--config", folder.path("streamd.toml")])
    #expect(other.status == 78)
    #expect(
      other.errors.contains("streamd.toml:2: server.memory: the buffers of 200 streams can take 12.5 TiB of memory"))
  }
}
