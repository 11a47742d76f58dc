import Testing

@testable import StreamRuntime

/// Loop-confined types are used on the loop's thread: debug builds, such as the tests, trap otherwise.
struct ConfinementTests {
  /// A loop that runs on its own thread.
  private static func runningLoop() async throws -> EventLoop {
    let loop = try EventLoop(name: "loop")
    try loop.start()
    await withCheckedContinuation { continuation in loop.execute { continuation.resume() } }
    return loop
  }

  @Test func theCheckStopsAnotherThread() async {
    await #expect(processExitsWith: .failure) {
      let loop = try await Self.runningLoop()
      loop.assertOnLoop()
    }
  }

  @Test func aTimerFromAnotherThreadStopsTheProcess() async {
    await #expect(processExitsWith: .failure) {
      let loop = try await Self.runningLoop()
      _ = loop.schedule(after: .seconds(1)) {}
    }
  }

  @Test func theLoopsThreadPassesTheCheck() async throws {
    let loop = try await Self.runningLoop()
    await withCheckedContinuation { continuation in
      loop.execute {
        loop.assertOnLoop()
        loop.cancel(loop.schedule(after: .seconds(1)) {})
        continuation.resume()
      }
    }
    loop.stop()
  }

  @Test func anyThreadMayUseALoopBeforeItRuns() throws {
    let loop = try EventLoop(name: "loop")
    loop.assertOnLoop()
    _ = loop.schedule(after: .zero) { loop.stop() }
    loop.run()
    loop.assertOnLoop()
  }
}
