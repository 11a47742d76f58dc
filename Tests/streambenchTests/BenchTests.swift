import TestSupport
import Testing

/// The load generator of the benchmarks, which ends when an event is lost, doubled or out of order.
@Suite(.timeLimit(.minutes(10))) struct BenchTests {
  @Test(arguments: ["throughput", "replay"])
  func everyEventReachesEverySubscriberOnceAndInOrder(row: String) async throws {
    let bench = try ChildProcess(
      ChildProcess.built("streambench"),
      ["--quick", "--runs", "1", "--verify", "--rows", row, ChildProcess.built("streamd")])
    let table = await bench.text(of: bench.output)
    let errors = await bench.text(of: bench.errors)
    #expect(await bench.end() == 0, "\(errors)")
    #expect(table.contains("streamd") && table.contains("bare limit"))
  }

  @Test func anUnknownRowIsAnErrorThatListsTheRows() async throws {
    let bench = try ChildProcess(ChildProcess.built("streambench"), ["--rows", "speed", "x"])
    #expect(await bench.text(of: bench.errors).contains("no row \"speed\"; there are start, connections"))
    #expect(await bench.end() == 64)
  }
}
